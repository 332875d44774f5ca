//! Whether the highest bounds go with high |TD| and with high ρ: the claim of figure 5 as a statistic.
//!
//! The bound is ρ^max·|TD|, so "high" needs a meaning that is not the bound's own: each factor is high if it is above its
//! median over the whole sample. Among experiences that are picked without regard to a factor, half have a high one. So
//! the claim says two things of the experiences with the highest bounds: more than half have a high |TD|, and more than
//! half have a high ρ^max. Neither follows from the other, nor from the definition of the bound: if |TD| spans many
//! decades more than ρ^max, the highest bounds are the highest |TD|, whatever the policy.
//!
//! That both are high at once says less: if all of the highest bounds have a high |TD|, it is the second share again, and
//! exceeds the share among all experiences even where ρ^max is as it is everywhere.
//!
//! Transitions of one run depend on each other, so intervals are over runs: a share is a ratio of two sums over runs, its
//! variance is the linearised one, and its interval has the point of Student's t.

use std::collections::BTreeMap;

use stats::aggregate::quantile;
use stats::student;

use crate::experience::Experience;
use crate::figure::Verdict;

/// The shares of experiences, those with the highest bounds, that are compared with all; the claim is judged by the first.
pub const TOP_SHARES: [f64; 3] = [0.1, 0.02, 0.2];
/// Fewer runs than this decide nothing.
pub const RUNS_MIN: usize = 5;

/// The factors of one experience's bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    pub run: u64,
    pub bound: f64,
    /// α·|TD|.
    pub td: f64,
    /// ρ^max.
    pub policy: f64,
}

impl Factors {
    /// `None` for an experience that changed nothing: it has no bound to factorise.
    pub fn of(experience: &Experience) -> Option<Self> {
        let (bound, td) = (experience.bounds.upper, experience.change().abs());
        (td > 0.0).then(|| Self { run: experience.trial, bound, td, policy: bound / td })
    }
}

/// A share with its 95% interval over runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub share: f64,
    pub low: f64,
    pub high: f64,
}

/// How often the factors are high among the highest bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighFactors {
    /// The share of experiences that counts as the highest bounds.
    pub top_share: f64,
    pub experiences: usize,
    pub top: usize,
    pub runs: usize,
    pub td: Share,
    pub policy: Share,
    pub both: f64,
    /// The same among all experiences.
    pub both_of_all: f64,
    /// How often ρ^max is high among as many experiences with the highest |TD|.
    pub policy_of_top_td: f64,
}

impl HighFactors {
    /// # Panics
    /// If there are no factors.
    pub fn measure(factors: &[Factors], top_share: f64) -> Self {
        let median =
            |number: fn(&Factors) -> f64| quantile(&factors.iter().map(number).collect::<Vec<_>>(), 0.5);
        let (median_td, median_policy) = (median(|of| of.td), median(|of| of.policy));
        let high_td = |of: &&Factors| of.td > median_td;
        let high_policy = |of: &&Factors| of.policy > median_policy;
        let top = ((factors.len() as f64 * top_share).round() as usize).max(1);
        let highest = |number: fn(&Factors) -> f64| {
            let mut sorted: Vec<&Factors> = factors.iter().collect();
            sorted.sort_by(|one, other| number(other).total_cmp(&number(one)));
            sorted.truncate(top);
            sorted
        };
        let both = |of: &&Factors| high_td(of) && high_policy(of);
        let (by_bound, by_td) = (highest(|of| of.bound), highest(|of| of.td));
        let share = |of: &[&Factors], is: &dyn Fn(&&Factors) -> bool| {
            of.iter().filter(|factors| is(factors)).count() as f64 / of.len() as f64
        };
        let mut runs: Vec<u64> = factors.iter().map(|of| of.run).collect();
        runs.sort_unstable();
        runs.dedup();
        Self {
            top_share,
            experiences: factors.len(),
            top,
            runs: runs.len(),
            td: over_runs(&by_bound, runs.len(), &high_td),
            policy: over_runs(&by_bound, runs.len(), &high_policy),
            both: share(&by_bound, &both),
            both_of_all: share(&factors.iter().collect::<Vec<_>>(), &both),
            policy_of_top_td: share(&by_td, &high_policy),
        }
    }

    /// The claim holds if both shares are above one half, as far as runs can tell, and fails if one is below.
    pub fn verdict(&self) -> Verdict {
        let shares = [self.td, self.policy];
        match self.runs {
            ..RUNS_MIN => Verdict::Open,
            _ if shares.iter().all(|share| share.low > 0.5) => Verdict::Holds,
            _ if shares.iter().any(|share| share.high < 0.5) => Verdict::Fails,
            _ => Verdict::Open,
        }
    }
}

/// How many of `of` are as asked, with an interval over that many runs; a run without any of them counts as one too.
fn over_runs(of: &[&Factors], runs: usize, is: &dyn Fn(&&Factors) -> bool) -> Share {
    let mut by_run: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for factors in of {
        let (count, hits) = by_run.entry(factors.run).or_default();
        *count += 1.0;
        *hits += f64::from(u8::from(is(factors)));
    }
    let total: f64 = by_run.values().map(|(count, _)| count).sum();
    let share = by_run.values().map(|(_, hits)| hits).sum::<f64>() / total;
    if runs < 2 {
        return Share { share, low: 0.0, high: 1.0 };
    }
    // A run without any of them adds nothing to the sum of squares.
    let squares: f64 = by_run.values().map(|(count, hits)| (hits - share * count).powi(2)).sum();
    let error = (squares * runs as f64 / (runs - 1) as f64).sqrt() / total;
    let reach = student::upper_point(runs - 1) * error;
    Share { share, low: (share - reach).max(0.0), high: (share + reach).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Independent factors whose logarithms are spread by so many powers of ten.
    fn factors(runs: u64, td_decades: f64, policy_decades: f64) -> Vec<Factors> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut spread = |decades: f64| 10f64.powf(-decades * rng.random::<f64>());
        let experience = |index: u64| {
            let (td, policy) = (spread(td_decades), spread(policy_decades));
            Factors { run: index % runs, bound: td * policy, td, policy }
        };
        (0..10_000).map(experience).collect()
    }

    #[test]
    fn the_claim_holds_if_both_factors_vary_alike() {
        let measured = HighFactors::measure(&factors(10, 3.0, 3.0), 0.1);
        assert_eq!((measured.runs, measured.top), (10, 1_000));
        assert!(measured.td.low > 0.9 && measured.policy.low > 0.9, "{measured:?}");
        assert_eq!(measured.verdict(), Verdict::Holds);
        assert!((measured.both_of_all - 0.25).abs() < 0.02);
    }

    #[test]
    fn the_claim_does_not_hold_if_one_factor_decides_alone() {
        let alone = HighFactors::measure(&factors(10, 3.0, 0.0001), 0.1);
        assert_eq!(alone.td.share, 1.0);
        assert!(alone.policy.low < 0.5 && alone.policy.high > 0.5, "{alone:?}");
        assert_eq!(alone.verdict(), Verdict::Open);
        assert!(alone.both > 1.5 * alone.both_of_all, "both at once would suggest that the policy matters");
        // The policy is low where |TD| is high, and |TD| decides.
        let mut against = factors(10, 3.0, 0.0001);
        for of in &mut against {
            of.policy = 1.0 - 0.5 * of.td;
            of.bound = of.td * of.policy;
        }
        assert_eq!(HighFactors::measure(&against, 0.1).verdict(), Verdict::Fails);
    }

    #[test]
    fn fewer_than_five_runs_decide_nothing() {
        assert_eq!(HighFactors::measure(&factors(5, 3.0, 3.0), 0.1).verdict(), Verdict::Holds);
        assert_eq!(HighFactors::measure(&factors(4, 3.0, 3.0), 0.1).verdict(), Verdict::Open);
        assert_eq!(HighFactors::measure(&factors(1, 3.0, 3.0), 0.1).verdict(), Verdict::Open);
    }

    /// Runs that differ from each other: the interval must be as wide as they need and not as their transitions suggest.
    #[test]
    fn intervals_over_runs_cover_the_true_share() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (rounds, runs) = (2_000, 10);
        let covered = (0..rounds).filter(|_| {
            let mut of = Vec::new();
            for run in 0..runs {
                // A run's own share is anything from 0.4 to 0.8.
                let own = 0.4 + 0.4 * rng.random::<f64>();
                for _ in 0..50 {
                    let policy = f64::from(u8::from(rng.random::<f64>() < own));
                    of.push(Factors { run, bound: 1.0, td: 1.0, policy });
                }
            }
            let share = over_runs(&of.iter().collect::<Vec<_>>(), runs as usize, &|of| of.policy == 1.0);
            (share.low..=share.high).contains(&0.6)
        });
        let covered = covered.count() as f64 / f64::from(rounds);
        // Nominal 0.95; the standard error of this estimate is 0.005.
        assert!((0.925..=0.975).contains(&covered), "{covered}");
    }
}
