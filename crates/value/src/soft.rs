//! Soft (maximum entropy) Q-learning in one state: its value, its policy, its entropy.
//!
//! β, the temperature, prices entropy: small β approaches [`crate::hard`], large β approaches the
//! uniform policy. Everything is shifted by the largest Q, so no exponential overflows whatever
//! the values, and the shifted partition function is kept as 1 + `rest`, so that nothing is lost
//! when one action has almost all the probability.

use crate::hard;
use crate::odds::Odds;
pub use crate::target::td_error;

/// V(s) = β·log Σ_a exp(Q(s,a)/β), by the max-shifted log-sum-exp.
///
/// At least the largest Q, and above it by at most β·log of the number of actions.
pub fn value(q: &[f64], temperature: f64) -> f64 {
    let shifted = Shifted::new(q, temperature);
    shifted.best_value + temperature * shifted.rest().ln_1p()
}

/// Writes π(·|s) = softmax(Q/β) into `out`, which is as long as `q`.
pub fn policy(q: &[f64], temperature: f64, out: &mut [f64]) {
    debug_assert_eq!(q.len(), out.len(), "one probability per action");
    let shifted = Shifted::new(q, temperature);
    let mut partition = 0.0;
    for (action, probability) in out.iter_mut().enumerate() {
        *probability = shifted.log_weight(action).exp();
        partition += *probability;
    }
    for probability in out {
        *probability /= partition;
    }
}

/// log π(a|s), accurate also where π(a|s) underflows to 0 or rounds to 1.
pub fn log_probability(q: &[f64], temperature: f64, action: usize) -> f64 {
    Odds::new(q, action, 0.0, temperature).log_probability_old()
}

/// β·log π(a|s), at least `floor`: log π has no lower bound, and a target that contains it needs one.
///
/// Without the clip it is Q(s,a) − V(s).
pub fn clipped_log_policy(q: &[f64], temperature: f64, action: usize, floor: f64) -> f64 {
    debug_assert!(floor <= 0.0, "log-probabilities are not positive");
    (temperature * log_probability(q, temperature, action)).clamp(floor, 0.0)
}

/// π(a|s), accurate also where it is tiny.
pub fn probability(q: &[f64], temperature: f64, action: usize) -> f64 {
    Odds::new(q, action, 0.0, temperature).probability_old()
}

/// H(π(·|s)) = −Σ_a π(a|s)·log π(a|s) in nats: between 0 and the log of the number of actions.
pub fn entropy(q: &[f64], temperature: f64) -> f64 {
    let shifted = Shifted::new(q, temperature);
    let rest = shifted.rest();
    // With log π = u − log Z this is log Z + Σ π·(−u): no negative terms, hence no cancellation.
    let surprise = shifted.sum(|log_weight, weight| -log_weight * weight);
    rest.ln_1p() + surprise / (1.0 + rest)
}

/// E_{a∼π(·|s)}\[values(a)\], the policy being that of `q`.
pub(crate) fn expectation(q: &[f64], temperature: f64, values: &[f64]) -> f64 {
    debug_assert_eq!(q.len(), values.len(), "one value per action");
    let shifted = Shifted::new(q, temperature);
    let mut sum = 0.0;
    for (action, value) in values.iter().enumerate() {
        sum += shifted.log_weight(action).exp() * value;
    }
    sum / (1.0 + shifted.rest())
}

/// Q shifted by its largest value and divided by the temperature: u_a = (Q_a − max Q)/β ≤ 0.
struct Shifted<'a> {
    q: &'a [f64],
    temperature: f64,
    best: usize,
    best_value: f64,
}

impl<'a> Shifted<'a> {
    fn new(q: &'a [f64], temperature: f64) -> Self {
        debug_assert!(temperature > 0.0, "a temperature is positive");
        let best = hard::greedy(q);
        Self { q, temperature, best, best_value: q[best] }
    }

    /// u_a, the log of an action's weight in the partition function.
    fn log_weight(&self, action: usize) -> f64 {
        (self.q[action] - self.best_value) / self.temperature
    }

    /// The partition function less the best action's own weight, which is 1.
    fn rest(&self) -> f64 {
        self.sum(|_, weight| weight)
    }

    /// Sums `term(u, e^u)` over all actions but the best; an action whose weight underflows adds 0.
    fn sum(&self, term: impl Fn(f64, f64) -> f64) -> f64 {
        let mut sum = 0.0;
        for action in 0..self.q.len() {
            let log_weight = self.log_weight(action);
            let weight = log_weight.exp();
            if action != self.best && weight != 0.0 {
                sum += term(log_weight, weight);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive_value(q: &[f64], temperature: f64) -> f64 {
        let sum: f64 = q.iter().map(|value| (value / temperature).exp()).sum();
        temperature * sum.ln()
    }

    #[test]
    fn one_action_has_its_own_value_and_no_entropy() {
        for temperature in [1e-3, 1.0, 1e3] {
            assert_eq!(value(&[3.5], temperature), 3.5);
            assert_eq!(probability(&[3.5], temperature, 0), 1.0);
            assert_eq!(log_probability(&[3.5], temperature, 0), 0.0);
            assert_eq!(entropy(&[3.5], temperature), 0.0);
        }
    }

    #[test]
    fn equal_values_make_a_uniform_policy() {
        let mut policy_of_four = [0.0; 4];
        for q in [[0.0; 4], [1e12; 4], [-1e12; 4]] {
            policy(&q, 0.05, &mut policy_of_four);
            assert_eq!(policy_of_four, [0.25; 4]);
            assert!((entropy(&q, 0.05) - 4f64.ln()).abs() < 1e-15);
        }
    }

    #[test]
    fn huge_values_do_not_overflow() {
        assert_eq!(value(&[1e12, -1e12], 1e-3), 1e12);
        assert_eq!(value(&[-1e12, -1e12 - 1.0], 1e-3), -1e12);
        assert_eq!(value(&[f64::MAX, -f64::MAX], 1.0), f64::MAX);
        assert_eq!(entropy(&[f64::MAX, -f64::MAX], 1.0), 0.0);
    }

    #[test]
    fn log_probability_survives_where_the_probability_is_0_or_rounds_to_1() {
        assert_eq!(probability(&[0.0, 1.0], 1e-3, 0), 0.0);
        assert_eq!(log_probability(&[0.0, 1.0], 1e-3, 0), -1000.0);
        let log = log_probability(&[50.0, 0.0], 1.0, 0);
        assert!((log + (-50f64).exp()).abs() < 1e-34, "{log:e}");
    }

    #[test]
    fn a_small_temperature_approaches_the_hard_value() {
        let q = [0.2, 0.1, -3.0];
        assert_eq!(value(&q, 1e-3), hard::value(&q));
        assert!(value(&q, 1.0) > hard::value(&q));
    }

    #[test]
    fn nan_comes_out_as_nan() {
        let q = [0.0, f64::NAN, 1.0];
        assert!(value(&q, 1.0).is_nan());
        assert!(entropy(&q, 1.0).is_nan());
        for action in 0..3 {
            assert!(probability(&q, 1.0, action).is_nan());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_the_formulas_as_they_are_written(
            q in prop::collection::vec(-20.0..20.0, 1..8),
            temperature in 0.1..10.0,
        ) {
            let v = value(&q, temperature);
            prop_assert!((v - naive_value(&q, temperature)).abs() < 1e-12);
            let mut pi = vec![0.0; q.len()];
            policy(&q, temperature, &mut pi);
            prop_assert!((pi.iter().sum::<f64>() - 1.0).abs() < 1e-14);
            let mut h = 0.0;
            for (action, &p) in pi.iter().enumerate() {
                let naive = ((q[action] - v) / temperature).exp();
                prop_assert!((p - naive).abs() < 1e-12);
                prop_assert!((p - probability(&q, temperature, action)).abs() <= 1e-12 * p);
                prop_assert!((p.ln() - log_probability(&q, temperature, action)).abs() < 1e-11);
                h -= p * p.ln();
            }
            prop_assert!((h - entropy(&q, temperature)).abs() < 1e-12);
            for action in 0..q.len() {
                let clipped = clipped_log_policy(&q, temperature, action, f64::NEG_INFINITY);
                prop_assert!((clipped - (q[action] - v)).abs() < 1e-11);
                prop_assert_eq!(clipped_log_policy(&q, temperature, action, -0.5), clipped.max(-0.5));
            }
            // The value as the paper has it: E[Q] and the entropy's price.
            let mean = expectation(&q, temperature, &q);
            prop_assert!((v - (mean + temperature * h)).abs() < 1e-12 * (1.0 + v.abs()));
        }
    }
}
