//! How long to wait before trying again.
//!
//! When a server comes back, all of its clients try at about the same time. Random pauses spread them, growing pauses
//! spare a server that is in trouble, and the cap bounds how long a client sleeps beside a server that is up again.
//! Knows no clock: the caller does the waiting.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The first pause at most: a process that is being restarted is back in about this time.
const FIRST: Duration = Duration::from_millis(50);
/// Any pause at most: what one is ready to lose when a server was away for long.
const CAP: Duration = Duration::from_secs(2);

/// Pauses between attempts: doubling, capped, and each drawn from its upper half.
#[derive(Clone, Debug)]
pub struct Backoff {
    whole: Duration,
    rng: ChaCha8Rng,
}

impl Backoff {
    /// Pauses from the first one on. Clients with different seeds pause differently.
    pub fn new(seed: u64) -> Self {
        Self { whole: FIRST, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// How long to pause before the next attempt.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and is reset in between")]
    pub fn next(&mut self) -> Duration {
        let pause = self.whole.mul_f64(self.rng.random_range(0.5..=1.0));
        self.whole = (self.whole * 2).min(CAP);
        pause
    }

    /// An attempt succeeded: the next pause is a first one again.
    pub fn reset(&mut self) {
        self.whole = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole pauses in milliseconds.
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
