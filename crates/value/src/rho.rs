//! ρ: the probability of the action taken, by which `ver` scales |TD|.

use serde::{Deserialize, Serialize};

use crate::odds::Odds;
use crate::soft;

/// Which probability of the action taken `ver` multiplies |TD| with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rho {
    /// ρ^max = max(π_old, π_new), as the paper's text says.
    Max,
    /// π_old alone, at the temperature of the run.
    Old,
    /// π_old alone, as softmax(Q) at temperature 1: what the authors' published code does.
    OldUnitTemperature,
}

// The paper's text first.
crate::names!(Rho, "rho", Max = "max", Old = "old", OldUnitTemperature = "old-unit-temperature");

/// The factor ρ of the strategy `ver`; `q` is Q_old(s,·) and `td` the distance of its entry
/// `action` to the target.
///
/// π_new is the softmax after Q(s,a) alone is replaced by its target Q(s,a) + td (with function
/// approximation the target stands in for Q_new: the paper's section 5). In log-odds that is
/// logit π_new = logit π_old + td/β. Only [`Rho::Max`] reads `td`.
pub fn rho(mode: Rho, q: &[f64], action: usize, td: f64, temperature: f64) -> f64 {
    match mode {
        Rho::Max => {
            let odds = Odds::new(q, action, td, temperature);
            odds.probability_old().max(odds.probability_new())
        }
        Rho::Old => soft::probability(q, temperature, action),
        Rho::OldUnitTemperature => soft::probability(q, 1.0, action),
    }
}

#[cfg(test)]
mod tests {
    use super::{Rho, rho};
    use crate::soft;
    use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};

    #[test]
    fn names_are_the_same_everywhere() {
        for rho in Rho::ALL {
            assert_eq!(rho.to_string().parse(), Ok(rho));
            assert_eq!(serde_json::to_value(rho).unwrap(), rho.name());
        }
        assert_eq!(
            "new".parse::<Rho>().unwrap_err().to_string(),
            "unknown rho \"new\", use one of: max, old, old-unit-temperature",
        );
    }

    #[test]
    fn rho_max_looks_ahead_only_for_a_better_estimate() {
        let q = [0.0, 0.1];
        let old = rho(Rho::Old, &q, 0, 0.3, 0.1);
        assert_eq!(rho(Rho::Max, &q, 0, -0.3, 0.1), old);
        // The target 0.3 turns odds of e^-1 into odds of e^2.
        let new = rho(Rho::Max, &q, 0, 0.3, 0.1);
        assert!((new - 1.0 / (1.0 + (-2f64).exp())).abs() < 1e-15);
    }

    #[test]
    fn unit_temperature_ignores_the_runs_temperature() {
        let q = [0.0, 1.0];
        let expected = 1.0 / (1.0 + 1f64.exp());
        for temperature in [0.05, 100.0] {
            let actual = rho(Rho::OldUnitTemperature, &q, 0, 5.0, temperature);
            assert!((actual - expected).abs() < 1e-15);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn rho_max_is_the_larger_softmax(
            q in prop::collection::vec(-5.0..5.0, 1..8),
            action in any::<prop::sample::Index>(),
            td in -5.0..5.0,
            temperature in 0.05..10.0,
        ) {
            let action = action.index(q.len());
            let mut replaced = q.clone();
            replaced[action] += td;
            let larger = soft::probability(&q, temperature, action)
                .max(soft::probability(&replaced, temperature, action));
            let rho = rho(Rho::Max, &q, action, td, temperature);
            prop_assert!((rho - larger).abs() <= 1e-12 * larger);
        }
    }
}
