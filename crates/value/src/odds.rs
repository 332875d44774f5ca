//! The log-odds of one action against all others, from which all quantities of one experience follow.
//!
//! Replaying an experience of (s,a) changes Q(s,a) alone, so the other actions enter only through
//! their common weight. With the log-odds d = log(π/(1−π)), π being the softmax probability of a,
//!
//! - π_old = σ(d) and, since the change x = td/β adds to the log-odds, π_new = σ(d + x);
//! - EVB/β = s(d + x) − s(d), where s(y) = log(1 + e^y) is the softplus.
//!
//! Log-odds lose nothing at either end: where π rounds to 1, 1 − π is still σ(−d), and where π
//! underflows, d itself remains.
//!
//! EVB for td > 0 is often written td + β·log(π + (1−π)·e^−x). That is the same number, but where π
//! is small it is the difference of two nearly equal ones: at π = 1e-10 and x = 1 six digits are
//! left. The forms below were chosen to subtract no two nearly equal numbers anywhere.

/// Log-odds of an action before and after its value changes by `td`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Odds {
    /// d, the log-odds under Q_old. +∞ where there is no other action.
    old: f64,
    /// d + x, the log-odds under Q_new.
    new: f64,
    /// x = td/β.
    change: f64,
}

impl Odds {
    pub(crate) fn new(q: &[f64], action: usize, td: f64, temperature: f64) -> Self {
        debug_assert!(action < q.len(), "an action in range");
        debug_assert!(temperature > 0.0, "a temperature is positive");
        let others = || q.iter().enumerate().filter(|&(other, _)| other != action);
        let rival = others().map(|(_, &value)| value).fold(f64::NEG_INFINITY, f64::max);
        let change = td / temperature;
        if q.len() == 1 {
            return Self { old: f64::INFINITY, new: f64::INFINITY, change };
        }
        let weight: f64 = others().map(|(_, &value)| ((value - rival) / temperature).exp()).sum();
        let log_weight = weight.ln();

        // A TD error may close a gap a thousand billion times the temperature, and then the
        // rounding of the gap would decide π_new: so the sum is carried in two parts.
        let (gap, gap_error) = two_sum(q[action], -rival);
        let (moved, moved_error) = two_sum(gap, td);
        Self {
            old: gap / temperature - log_weight,
            new: (moved + (moved_error + gap_error)) / temperature - log_weight,
            change,
        }
    }

    /// π_old(a|s).
    pub(crate) fn probability_old(self) -> f64 {
        sigmoid(self.old)
    }

    /// π_new(a|s).
    pub(crate) fn probability_new(self) -> f64 {
        sigmoid(self.new)
    }

    /// log π_old(a|s).
    pub(crate) fn log_probability_old(self) -> f64 {
        -softplus(-self.old)
    }

    /// s(d + x) − s(d), which is EVB/β, to a few units in the last place.
    ///
    /// For |x| < 1 it is log1p(π·expm1(x)): the change is relative to what there was, so a tiny x
    /// or π costs no digits, and the argument stays above −0.64, well clear of the pole at −1.
    /// Beyond, the difference itself is sound. The only large terms that could cancel are the
    /// linear parts of two positive log-odds, and these leave exactly x.
    pub(crate) fn value_change(self) -> f64 {
        if self.change.abs() < 1.0 {
            return (self.probability_old() * self.change.exp_m1()).ln_1p();
        }
        let linear = if self.old > 0.0 && self.new > 0.0 {
            self.change
        } else {
            self.new.max(0.0) - self.old.max(0.0)
        };
        linear + (softplus(-self.new.abs()) - softplus(-self.old.abs()))
    }

    /// s(d + x) − s(d) − π·x, which is PIV/β, to a few units in the last place. Never negative.
    ///
    /// This is of second order in x: as EVB less EIV, all digits would be gone at x ≈ 1e-16. It is
    /// also log E\[e^Y\] for the centred variable Y that is (1−π)·x with probability π and −π·x
    /// otherwise; as E\[Y\] = 0, it is log1p(E\[φ(Y)\]) with φ(y) = e^y − 1 − y ≥ 0, and no two
    /// terms have opposite signs. Beyond |x| = 1 the plain difference is sound once π ≤ 1/2, and
    /// swapping the action with the others (d → −d, x → −x) leaves the result as it is.
    pub(crate) fn curvature(self) -> f64 {
        if self.old > 0.0 {
            return Self { old: -self.old, new: -self.new, change: -self.change }.curvature();
        }
        let (taken, other) = (sigmoid(self.old), sigmoid(-self.old));
        if self.change.abs() < 1.0 {
            let mean = taken * exp_residue(other * self.change) + other * exp_residue(-taken * self.change);
            return mean.ln_1p();
        }
        softplus(self.new) - softplus(self.old) - taken * self.change
    }
}

/// σ(y) = 1/(1 + e^−y), with relative accuracy at both ends.
fn sigmoid(y: f64) -> f64 {
    if y >= 0.0 {
        1.0 / (1.0 + (-y).exp())
    } else {
        let odds = y.exp();
        odds / (1.0 + odds)
    }
}

/// s(y) = log(1 + e^y), without overflow.
fn softplus(y: f64) -> f64 {
    y.max(0.0) + (-y.abs()).exp().ln_1p()
}

/// φ(y) = e^y − 1 − y for |y| ≤ 1, by its series: y²/2·(1 + y/3·(1 + y/4·(…))).
fn exp_residue(y: f64) -> f64 {
    /// The first term left out, 1/19!, is 1.6e-17 of the first kept: below the rounding of f64.
    const POWER_MAX: u32 = 18;
    let tail = (3..=POWER_MAX).rev().fold(1.0, |tail, power| 1.0 + y / f64::from(power) * tail);
    0.5 * y * y * tail
}

/// The rounded sum of two numbers and what rounding took from it (Knuth's two-sum).
/// The error is 0 where the sum is not finite.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let b_seen = sum - a;
    let a_seen = sum - b_seen;
    (sum, (a - a_seen) + (b - b_seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The switch between the two forms must not show.
    #[test]
    fn both_forms_meet_at_a_change_of_one_temperature() {
        for old in [-700.0, -30.0, -1.0, 0.0, 0.5, 2.0, 40.0, 700.0] {
            for sign in [-1.0, 1.0] {
                let at = |change: f64| Odds { old, new: old + change, change };
                let (below, above) = (at(sign * (1.0 - 1e-15)), at(sign));
                let jump = below.value_change() / above.value_change() - 1.0;
                assert!(jump.abs() < 2e-13, "value change at {old}, {sign}: {jump:e}");
                let jump = below.curvature() / above.curvature() - 1.0;
                assert!(jump.abs() < 2e-13, "curvature at {old}, {sign}: {jump:e}");
            }
        }
    }

    #[test]
    fn the_residue_of_exp_is_what_is_left_of_it() {
        assert!((exp_residue(1.0) - (1f64.exp() - 2.0)).abs() < 1e-15);
        assert!((exp_residue(-1.0) - (-1f64).exp()).abs() < 1e-15);
        assert_eq!(exp_residue(1e-9), 0.5e-18 * (1.0 + 1e-9 / 3.0));
    }

    #[test]
    fn two_sum_keeps_what_rounding_took() {
        assert_eq!(two_sum(1e12, 1e-9), (1e12, 1e-9));
        assert_eq!(two_sum(1e-9, -1e12), (-1e12, 1e-9));
        assert_eq!(two_sum(f64::MAX, f64::MAX), (f64::INFINITY, 0.0));
    }

    #[test]
    fn a_gap_wider_than_f64_still_has_odds() {
        let odds = Odds::new(&[f64::MAX, -f64::MAX], 1, 1.0, 1.0);
        assert_eq!((odds.probability_old(), odds.probability_new()), (0.0, 0.0));
    }
}
