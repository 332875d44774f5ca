//! How urgently an experience should be replayed.
//!
//! These are the raw priorities of the strategies. The small constant that keeps items from
//! starving and the exponent are applied by the replay shard, so that
//! both can change without recomputing anything here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::odds::Odds;
use crate::soft;

/// A priority that the sum tree can trust: finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Priority(f64);

/// Why a number is no priority.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("priority must be finite and at least 0, got {0}")]
pub struct InvalidPriority(pub f64);

impl Priority {
    /// The priority, unless it is NaN, infinite or negative.
    pub fn try_new(value: f64) -> Result<Self, InvalidPriority> {
        if value.is_finite() && value >= 0.0 { Ok(Self(value)) } else { Err(InvalidPriority(value)) }
    }

    /// The number itself.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Priority {
    type Error = InvalidPriority;
    fn try_from(value: f64) -> Result<Self, InvalidPriority> {
        Self::try_new(value)
    }
}

impl From<Priority> for f64 {
    fn from(priority: Priority) -> f64 {
        priority.0
    }
}

/// What an item's chance of being sampled is proportional to (before the exponent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Every item alike.
    Uniform,
    /// |TD|: prioritized experience replay (Schaul et al., 2016).
    Per,
    /// ρ·|TD|: valuable experience replay, the paper's. Needs a soft policy.
    Ver,
    /// |TD| by the share of its episode's error that is resolved: ReaPER (Pleiss et al., 2025). The share is what the
    /// replay says of an item; a new one has nothing behind it, and its share is 1.
    Reaper,
}

/// Which probability of the action taken [`Strategy::Ver`] multiplies |TD| with.
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

impl Strategy {
    /// Those that the paper compares, in its order.
    pub const PAPER: [Self; 3] = [Self::Uniform, Self::Per, Self::Ver];

    /// Every strategy: the paper's, then others.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::Per, Self::Ver, Self::Reaper];

    /// The name in configuration files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Per => "per",
            Self::Ver => "ver",
            Self::Reaper => "reaper",
        }
    }
}

impl Rho {
    /// Every mode, the paper's text first.
    pub const ALL: [Self; 3] = [Self::Max, Self::Old, Self::OldUnitTemperature];

    /// The name in configuration files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Old => "old",
            Self::OldUnitTemperature => "old-unit-temperature",
        }
    }
}

/// A name that is none of those accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {given:?}, use one of: {}", accepted.join(", "))]
pub struct UnknownName {
    /// What was to be named.
    pub what: &'static str,
    /// The name as given.
    pub given: String,
    /// The names there are.
    pub accepted: Vec<&'static str>,
}

impl FromStr for Strategy {
    type Err = UnknownName;
    fn from_str(given: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == given).ok_or_else(|| UnknownName {
            what: "strategy",
            given: given.to_owned(),
            accepted: Self::ALL.map(Self::name).into(),
        })
    }
}

impl FromStr for Rho {
    type Err = UnknownName;
    fn from_str(given: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|rho| rho.name() == given).ok_or_else(|| UnknownName {
            what: "rho",
            given: given.to_owned(),
            accepted: Self::ALL.map(Self::name).into(),
        })
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Rho {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The factor ρ of [`Strategy::Ver`]; `q` is Q_old(s,·) and `td` the distance of its entry
/// `action` to the target.
///
/// π_new is the softmax after Q(s,a) alone is replaced by its target Q(s,a) + td (with function
/// approximation the target stands in for Q_new: the paper's section 5). In log-odds that is
/// logit π_new = logit π_old + td/β. Only [`Rho::Max`] looks at `td`.
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

/// The raw priority of one experience: 1, |td| or ρ·|td|.
///
/// No constant is added and no exponent applied; see the module's documentation. `rho_mode` and
/// `temperature` matter to [`Strategy::Ver`] only. For [`Strategy::Reaper`] it is that of a new item.
pub fn priority(
    strategy: Strategy,
    rho_mode: Rho,
    q: &[f64],
    action: usize,
    td: f64,
    temperature: f64,
) -> f64 {
    match strategy {
        Strategy::Uniform => 1.0,
        Strategy::Per | Strategy::Reaper => td.abs(),
        Strategy::Ver => rho(rho_mode, q, action, td, temperature) * td.abs(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Priority, Rho, Strategy, priority, rho};
    use crate::soft;
    use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};

    #[test]
    fn refuses_what_a_sum_tree_could_not_hold() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-300] {
            assert!(Priority::try_new(bad).is_err(), "{bad}");
        }
        assert_eq!(Priority::try_new(0.25).map(Priority::get), Ok(0.25));
        assert_eq!(serde_json::to_string(&Priority(0.25)).unwrap(), "0.25");
        assert!(serde_json::from_str::<Priority>("-1.0").is_err());
    }

    #[test]
    fn names_are_the_same_everywhere() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
            assert_eq!(serde_json::to_value(strategy).unwrap(), strategy.name());
        }
        for rho in Rho::ALL {
            assert_eq!(rho.to_string().parse(), Ok(rho));
            assert_eq!(serde_json::to_value(rho).unwrap(), rho.name());
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        assert_eq!(
            "rank".parse::<Strategy>().unwrap_err().to_string(),
            "unknown strategy \"rank\", use one of: uniform, per, ver, reaper",
        );
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

    #[test]
    fn the_strategies_are_one_td_and_rho_td() {
        let (q, td) = ([0.0, 0.0], -2.0);
        let of = |strategy| priority(strategy, Rho::Old, &q, 1, td, 0.05);
        assert_eq!(Strategy::ALL.map(of), [1.0, 2.0, 1.0, 2.0]);
    }

    #[test]
    fn a_nan_td_does_not_pass_as_a_priority() {
        for strategy in [Strategy::Per, Strategy::Ver] {
            let raw = priority(strategy, Rho::Max, &[0.0, 1.0], 0, f64::NAN, 0.05);
            assert!(Priority::try_new(raw).is_err());
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
