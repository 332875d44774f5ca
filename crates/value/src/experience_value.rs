//! The value of one experience, and the theorems that bound it.
//!
//! Replaying an experience of (s,a) turns Q_old into Q_new, which differs in Q(s,a) alone, by
//! `td` = α·TD. With V(s) = E_{a∼π}\[Q(s,a) − β·log π(a|s)\] (β = 0 for plain Q-learning), the
//! expected value of the backup is EVB = V_new(s) − V_old(s). Adding and subtracting
//! E_{a∼π_old}\[Q_new − β·log π_old\] splits it:
//!
//! - PIV, the policy's improvement, E_{π_new}\[Q_new − β·log π_new\] − E_{π_old}\[Q_new − β·log π_old\];
//! - EIV, the estimate's improvement, E_{π_old}\[Q_new − Q_old\], which is π_old(a|s)·td since
//!   only one value changed.
//!
//! So EVB = PIV + EIV by construction. In the soft case E_{π_new}\[…\] is the maximum over all
//! policies and PIV = β·KL(π_old‖π_new): never negative, and of second order in td.
//!
//! Naive differences of log-sum-exp "violate" the theorems by rounding, so none are taken: each
//! quantity has its own form, derived in the private module `odds`.

use crate::hard as plain;
use crate::odds::Odds;

/// The paper's three value metrics of one experience; `evb` = `piv` + `eiv` up to rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExperienceValue {
    /// Expected value of backup: V_new(s) − V_old(s).
    pub evb: f64,
    /// Policy improvement value: what the changed policy adds, both policies judged by Q_new.
    pub piv: f64,
    /// Evaluation improvement value: what the changed estimate adds under the old policy.
    pub eiv: f64,
}

/// The bounds of the theorems on the metrics of one experience; see [`Bounds::violation`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// At least |EVB|, |PIV| and |EIV| (theorems 1 and 2).
    pub upper: f64,
    /// At most |EVB| and |EIV|, but not |PIV|, which may be smaller (theorem 3).
    pub lower: f64,
}

/// The metrics of soft Q-learning, Q(s,a) changing by `td`. The relative error of each is
/// at most about 1e-13 (where a probability near 1e-300 carries the rounding of its logarithm).
///
/// With p = π_old(a|s): V_new − V_old = β·log(Σ exp(Q_new/β) / Σ exp(Q_old/β)), and as one term
/// of the sum is multiplied by e^(td/β), EVB = β·log(1 + p·(e^(td/β) − 1)); EIV = p·td; and PIV
/// is their difference, computed apart from both because it can be smaller than either's rounding.
pub fn soft(q: &[f64], action: usize, td: f64, temperature: f64) -> ExperienceValue {
    let odds = Odds::new(q, action, td, temperature);
    ExperienceValue {
        evb: temperature * odds.value_change(),
        piv: temperature * odds.curvature(),
        eiv: odds.probability_old() * td,
    }
}

/// The metrics of plain Q-learning, Q(s,a) changing by `td`.
///
/// With g = Q_old(s,a) − max_{b≠a} Q(s,b), the lead of a over its best rival: if a was greedy,
/// the value follows it down to the rival's and no further, EVB = max(td, −g), EIV = td and
/// PIV = max(0, −g − td); if not, only what rises above the rival counts, EVB = PIV =
/// max(0, g + td) and EIV = 0. No Q_new is ever formed, so a td far below the rounding of Q(s,a)
/// is not lost. Among equal values the lowest index is greedy, as in [`crate::hard::greedy`].
pub fn hard(q: &[f64], action: usize, td: f64) -> ExperienceValue {
    debug_assert!(action < q.len(), "an action in range");
    let others = || q.iter().enumerate().filter(|&(other, _)| other != action);
    let rival = others().map(|(_, &value)| value).fold(f64::NEG_INFINITY, f64::max);
    let lead = q[action] - rival;
    if plain::greedy(q) == action {
        ExperienceValue { evb: td.max(-lead), piv: (-lead - td).max(0.0), eiv: td }
    } else {
        let rise = (lead + td).max(0.0);
        ExperienceValue { evb: rise, piv: rise, eiv: 0.0 }
    }
}

/// Theorems 2 and 3: ρ^max·|td| above and ρ^min·|td| below, ρ^max and ρ^min being the larger and
/// the smaller of π_old(a|s) and π_new(a|s).
pub fn bounds_soft(q: &[f64], action: usize, td: f64, temperature: f64) -> Bounds {
    let odds = Odds::new(q, action, td, temperature);
    let (old, new) = (odds.probability_old(), odds.probability_new());
    Bounds { upper: old.max(new) * td.abs(), lower: old.min(new) * td.abs() }
}

/// Theorem 1: |td| above. The lower bound is 0, because a greedy policy may not change at all.
pub fn bounds_hard(td: f64) -> Bounds {
    Bounds { upper: td.abs(), lower: 0.0 }
}

impl Bounds {
    /// The largest of the five excesses of `metrics` over what the theorems allow in a state of
    /// value `v`. Above 0, a theorem is violated; at or below, it is how near the nearest came.
    pub fn violation(&self, metrics: &ExperienceValue, v: f64) -> f64 {
        [
            excess(metrics.evb, self.upper, v),
            excess(metrics.piv, self.upper, v),
            excess(metrics.eiv, self.upper, v),
            shortfall(metrics.evb, self.lower, v),
            shortfall(metrics.eiv, self.lower, v),
        ]
        .into_iter()
        .fold(f64::NEG_INFINITY, f64::max)
    }
}

/// How far |metric| lies above the upper `bound`, beyond the [`tolerance`]: a violation if
/// positive. `v` is the state's value. Infinite where a NaN is involved, which proves nothing.
pub fn excess(metric: f64, bound: f64, v: f64) -> f64 {
    beyond(metric.abs() - bound, bound, v)
}

/// How far |metric| lies below the lower `bound`, beyond the [`tolerance`]: a violation if
/// positive. Meant for EVB and EIV only. Infinite where a NaN is involved.
pub fn shortfall(metric: f64, bound: f64, v: f64) -> f64 {
    beyond(bound - metric.abs(), bound, v)
}

/// 1e-9·bound + 1e-12·max(1, |V|): what rounding may do to a bound in a state of value `v`.
pub fn tolerance(bound: f64, v: f64) -> f64 {
    1e-9 * bound + 1e-12 * v.abs().max(1.0)
}

fn beyond(difference: f64, bound: f64, v: f64) -> f64 {
    let excess = difference - tolerance(bound, v);
    if excess.is_nan() { f64::INFINITY } else { excess }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_action_gains_exactly_its_change() {
        let gain = |metrics: ExperienceValue| (metrics.piv, metrics.eiv);
        for td in [1e-300, -0.01, 3.0, -1e12] {
            let metrics = soft(&[2.0], 0, td, 0.5);
            assert!((metrics.evb - td).abs() <= 1e-15 * td.abs());
            assert_eq!(gain(metrics), (0.0, td));
            assert_eq!(hard(&[2.0], 0, td).evb, td);
            assert_eq!(gain(hard(&[2.0], 0, td)), (0.0, td));
        }
    }

    #[test]
    fn a_greedy_action_falls_no_further_than_its_rival() {
        let metrics = hard(&[5.0, 3.0], 0, -10.0);
        assert_eq!(metrics, ExperienceValue { evb: -2.0, piv: 8.0, eiv: -10.0 });
    }

    #[test]
    fn another_action_counts_only_above_the_greedy_one() {
        assert_eq!(hard(&[5.0, 3.0], 1, 1.0), ExperienceValue { evb: 0.0, piv: 0.0, eiv: 0.0 });
        assert_eq!(hard(&[5.0, 3.0], 1, 3.0), ExperienceValue { evb: 1.0, piv: 1.0, eiv: 0.0 });
    }

    #[test]
    fn a_change_below_the_rounding_of_q_is_not_lost() {
        assert_eq!(hard(&[1e12, 0.0], 0, 1e-300).evb, 1e-300);
        let ExperienceValue { evb, piv, eiv } = soft(&[1e12, 1e12], 0, 1e-12, 1.0);
        assert!((evb / 5e-13 - 1.0).abs() < 1e-11);
        assert!((piv / 1.25e-25 - 1.0).abs() < 1e-11, "{piv:e}");
        assert_eq!(eiv, 5e-13);
    }

    #[test]
    fn no_change_is_worth_nothing() {
        let nothing = ExperienceValue { evb: 0.0, piv: 0.0, eiv: 0.0 };
        assert_eq!(soft(&[1.0, 2.0], 0, 0.0, 0.05), nothing);
        assert_eq!(hard(&[1.0, 2.0], 1, 0.0), nothing);
    }

    #[test]
    fn a_violation_is_what_exceeds_the_tolerance() {
        assert_eq!(tolerance(2.0, -3.0), 2e-9 + 3e-12);
        assert!(excess(-1.0 - 2e-9, 1.0, 0.0) > 0.0);
        assert!(excess(1.0 + 0.5e-9, 1.0, 0.0) < 0.0);
        assert!(shortfall(-1.0 + 2e-9, 1.0, 0.0) > 0.0);
        assert!(shortfall(1.0 - 0.5e-9, 1.0, 0.0) < 0.0);
    }

    #[test]
    fn each_broken_claim_is_seen_and_nan_breaks_them_all() {
        let bounds = Bounds { upper: 2.0, lower: 1.0 };
        let violated = |evb, piv, eiv| bounds.violation(&ExperienceValue { evb, piv, eiv }, 0.0) > 0.0;
        assert!(!violated(1.5, 0.0, -1.5));
        assert!(violated(3.0, 0.0, 1.5) && violated(0.5, 0.0, 1.5));
        assert!(violated(1.5, 0.0, 3.0) && violated(1.5, 0.0, 0.5));
        assert!(violated(1.5, 3.0, 1.5) && violated(1.5, f64::NAN, 1.5));
    }
}
