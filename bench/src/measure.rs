//! What a rate is: work done per second of CPU time of the whole process, in stretches that run side by side.
//!
//! CPU time and not the clock on the wall, so that other programs on the machine cost a measurement little beyond
//! the caches that they share; of the whole process, so that no side gains by work on a second thread. Within a round
//! the sides of a comparison take turns in slices (A B A B …) until each has had its stretch, so that a machine that
//! grows slower does so for all of them, and the ratio of two stretches of one round is steadier than either.

use rustix::time::{ClockId, clock_gettime};

/// How many stretches each side gets.
pub const ROUNDS: usize = 3;

/// The share of a stretch that one slice takes, if one call does not take longer.
const SLICE_SHARE: f64 = 0.02;

/// The share of a stretch for which each side runs before anything counts.
const WARM_UP_SHARE: f64 = 0.2;

/// What the header says of all rates.
pub fn legend() -> String {
    format!(
        "rates are per second of CPU time unless a title says otherwise, best and median of {ROUNDS} stretches; sides \
         take turns; ratios are medians over stretches"
    )
}

/// One side's rates, a number per round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates(pub [f64; ROUNDS]);

impl Rates {
    /// Of the fastest stretch: what is possible.
    pub fn best(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    /// Of the stretch in the middle: what is usual.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0;
        sorted.sort_by(f64::total_cmp);
        sorted[ROUNDS / 2]
    }

    /// How many times as fast as `other`: the median of the ratios of each round.
    pub fn ratio(&self, other: &Rates) -> f64 {
        Rates(std::array::from_fn(|round| self.0[round] / other.0[round])).median()
    }
}

/// One side of a comparison: one call's worth of work on what the sides share.
pub type Side<'a, Shared> = Box<dyn FnMut(&mut Shared) + 'a>;

/// Calls per second of each side, in the order of `sides`.
pub fn interleaved<Shared>(seconds: f64, shared: &mut Shared, sides: &mut [Side<'_, Shared>]) -> Vec<Rates> {
    let mut slice_of = |side: &mut Side<'_, Shared>| {
        let pace = warm_up(seconds * WARM_UP_SHARE, || side(shared));
        (pace * seconds * SLICE_SHARE).ceil() as u64
    };
    let slices: Vec<u64> = sides.iter_mut().map(&mut slice_of).collect();
    let mut rates = vec![Rates::default(); sides.len()];
    for round in 0..ROUNDS {
        let mut spent = vec![Spent::default(); sides.len()];
        while spent.iter().any(|spent| spent.seconds < seconds) {
            for ((side, spent), &slice) in sides.iter_mut().zip(&mut spent).zip(&slices) {
                let start = cpu_seconds();
                (0..slice).for_each(|_| side(shared));
                spent.seconds += cpu_seconds() - start;
                spent.calls += slice;
            }
        }
        for (rates, spent) in rates.iter_mut().zip(spent) {
            rates.0[round] = spent.calls as f64 / spent.seconds;
        }
    }
    rates
}

/// What a side has done of its stretch.
#[derive(Clone, Copy, Default)]
struct Spent {
    calls: u64,
    /// CPU time they took.
    seconds: f64,
}

/// Calls per second, roughly. Asking for CPU time is a system call, so the calls between two questions double.
fn warm_up(seconds: f64, mut call: impl FnMut()) -> f64 {
    let (start, mut calls, mut burst, mut elapsed) = (cpu_seconds(), 0u64, 1u64, 0.0);
    while elapsed < seconds {
        (0..burst).for_each(|_| call());
        calls += burst;
        burst *= 2;
        elapsed = cpu_seconds() - start;
    }
    calls as f64 / elapsed
}

/// The number that this share of the others lies below.
///
/// # Panics
///
/// If there are no numbers.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// CPU time that the process has taken so far.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_is_the_largest_and_median_the_middle() {
        let rates = Rates([2.0, 9.0, 1.0]);
        assert_eq!((rates.best(), rates.median()), (9.0, 2.0));
    }

    #[test]
    fn a_ratio_compares_stretches_of_one_round() {
        // The machine was twice as slow in the second round and three times in the third.
        let (ours, other) = (Rates([6.0, 3.0, 2.0]), Rates([12.0, 6.0, 4.0]));
        assert_eq!(ours.ratio(&other), 0.5);
    }

    #[test]
    fn every_side_runs_and_sides_share() {
        let mut calls = [0u64; 2];
        let mut sides: Vec<Side<'_, [u64; 2]>> =
            vec![Box::new(|calls| calls[0] += 1), Box::new(|calls| calls[1] += 1)];
        let rates = interleaved(0.001, &mut calls, &mut sides);
        assert!(rates.iter().all(|rates| rates.best() >= rates.median() && rates.median() > 0.0));
        assert!(calls.iter().all(|&calls| calls > 0));
    }
}
