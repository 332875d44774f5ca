//! Exponential backoff with jitter.
//!
//! When a server restarts, all its clients reconnect at about the same time. Jitter spreads them, growing pauses reduce
//! the load on a struggling server, and the cap bounds how long a client sleeps after the server is back. This module
//! has no clock: the caller sleeps.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Upper bound of the first pause: about the time in which a restarted process is back.
const FIRST: Duration = Duration::from_millis(50);
/// Upper bound of every pause: the time that a client may lose after a long outage.
const CAP: Duration = Duration::from_secs(2);

/// Pauses between attempts. The upper bound doubles up to a cap; each pause is drawn from the upper half of its range.
#[derive(Clone, Debug)]
pub struct Backoff {
    whole: Duration,
    rng: ChaCha8Rng,
}

impl Backoff {
    /// Starts at the first pause. Different seeds give clients different pauses.
    pub fn new(seed: u64) -> Self {
        Self { whole: FIRST, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The pause before the next attempt.
    #[expect(clippy::should_implement_trait, reason = "it never ends and can be reset")]
    pub fn next(&mut self) -> Duration {
        let pause = self.whole.mul_f64(self.rng.random_range(0.5..=1.0));
        self.whole = (self.whole * 2).min(CAP);
        pause
    }

    /// Call after a successful attempt: the next pause is a first pause again.
    pub fn reset(&mut self) {
        self.whole = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bounds of the pauses in milliseconds.
    const WHOLES: [u64; 8] = [50, 100, 200, 400, 800, 1600, 2000, 2000];

    #[test]
    fn pauses_double_up_to_the_cap_and_stay_in_their_upper_half() {
        for seed in 0..200 {
            let mut backoff = Backoff::new(seed);
            for whole in WHOLES.map(Duration::from_millis) {
                let pause = backoff.next();
                assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
            }
        }
    }

    #[test]
    fn success_starts_over() {
        let mut backoff = Backoff::new(1);
        assert!((0..10).map(|_| backoff.next()).all(|pause| pause <= CAP));
        assert!(backoff.next() >= CAP / 2);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }

    #[test]
    fn clients_differ_and_repeat() {
        let pauses = |seed| {
            let mut backoff = Backoff::new(seed);
            WHOLES.map(|_| backoff.next())
        };
        assert_ne!(pauses(1), pauses(2));
        assert_eq!(pauses(1), pauses(1));
    }
}
