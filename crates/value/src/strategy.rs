//! Priority strategies: how urgently an experience should be replayed.
//!
//! A strategy is a [`Definition`] in a file of its own and a line in the list below. It gives raw priorities; the replay shard adds
//! the small constant that keeps items from starving and applies the exponent, so that both can change without recomputing
//! anything here. The actor's initial priorities and the learner's updated ones come from the same function.

mod per;
mod reaper;
mod uniform;
mod ver;
mod ver_lower;

use crate::registry::Choice;
use crate::rho::Rho;

/// A priority strategy by name.
pub type Strategy = Choice<Definition>;

/// Every strategy: the paper's, then others.
const LIST: &[Strategy] =
    &[Strategy::UNIFORM, Strategy::PER, Strategy::VER, Strategy::REAPER, Strategy::VER_LOWER];

/// What a strategy is, and what it needs from the rest of the system.
#[derive(Debug)]
pub struct Definition {
    /// The name in settings.
    pub name: &'static str,
    /// The formula, for help.
    pub about: &'static str,
    /// The adjective in titles, as in "prioritized replay".
    pub title: &'static str,
    /// Whether items are drawn in proportion to (priority + constant)^exponent and importance weights correct for it; otherwise
    /// every item is drawn alike.
    pub uses_priorities: bool,
    /// Whether the formula contains the probability of an action under a soft policy. Agents without one refuse the strategy.
    pub needs_soft_policy: bool,
    /// Whether a shard must report the reliability of each sampled item: 1 − (TD error of its episode after the item /
    /// total TD error).
    pub needs_reliability: bool,
    /// The raw priority of an experience: a number ≥ 0, or NaN if the experience is not finite.
    pub formula: fn(&PriorityInputs<'_>) -> f64,
}

/// The inputs of a formula.
#[derive(Clone, Copy, Debug)]
pub struct PriorityInputs<'a> {
    /// Q(s,·) of the network that acted or learns.
    pub q: &'a [f64],
    pub action: usize,
    /// TD: the target of Q(s,a) less Q(s,a).
    pub td: f64,
    /// β of the soft policy, if the agent has one.
    pub temperature: Option<f64>,
    /// Which probability ρ is, for strategies that use it.
    pub rho: Rho,
    /// What the shard reported, from 0 to 1; `None` for an item that is not stored yet.
    pub reliability: Option<f64>,
}

impl Definition {
    /// The raw priority of an experience, before constant and exponent.
    pub fn priority(&self, experience: &PriorityInputs<'_>) -> f64 {
        (self.formula)(experience)
    }
}

crate::listed!(Definition, "strategy", LIST);

impl Strategy {
    pub const UNIFORM: Self = Choice::of(&uniform::DEFINITION);
    /// Prioritized experience replay (Schaul et al., 2016).
    pub const PER: Self = Choice::of(&per::DEFINITION);
    /// Valuable experience replay, the paper's.
    pub const VER: Self = Choice::of(&ver::DEFINITION);
    /// Reliability-adjusted prioritized replay (Pleiss et al., 2025).
    pub const REAPER: Self = Choice::of(&reaper::DEFINITION);
    /// The lower bound of what an experience is worth.
    pub const VER_LOWER: Self = Choice::of(&ver_lower::DEFINITION);

    /// Those that the paper compares, in its order.
    pub const PAPER: [Self; 3] = [Self::UNIFORM, Self::PER, Self::VER];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Priority;

    fn experience(q: &[f64], td: f64) -> PriorityInputs<'_> {
        PriorityInputs { q, action: 1, td, temperature: Some(0.05), rho: Rho::Old, reliability: None }
    }

    #[test]
    fn the_strategies_are_one_td_and_rho_td() {
        let of = |strategy: Strategy| strategy.priority(&experience(&[0.0, 0.0], -2.0));
        assert_eq!(
            [Strategy::UNIFORM, Strategy::PER, Strategy::VER, Strategy::REAPER].map(of),
            [1.0, 2.0, 1.0, 2.0]
        );
    }

    #[test]
    fn a_stored_items_reliability_scales_reaper_alone() {
        for strategy in LIST {
            let of = |reliability| {
                strategy.priority(&PriorityInputs { reliability, ..experience(&[0.0, 0.0], -2.0) })
            };
            let share = if strategy.needs_reliability { 0.25 } else { 1.0 };
            assert_eq!(of(Some(0.25)), share * of(None), "{strategy}");
        }
    }

    #[test]
    fn a_nan_td_does_not_pass_as_a_priority() {
        for strategy in LIST.iter().filter(|strategy| strategy.uses_priorities) {
            assert!(
                Priority::try_new(strategy.priority(&experience(&[0.0, 1.0], f64::NAN))).is_err(),
                "{strategy}"
            );
        }
    }

    #[test]
    fn a_strategy_that_needs_a_soft_policy_gives_no_priority_without_one() {
        for strategy in LIST {
            let hard = PriorityInputs { temperature: None, ..experience(&[0.0, 1.0], 1.0) };
            assert_eq!(
                Priority::try_new(strategy.priority(&hard)).is_err(),
                strategy.needs_soft_policy,
                "{strategy}"
            );
        }
    }

    #[test]
    fn names_are_the_same_everywhere() {
        for &strategy in LIST {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
            assert_eq!(serde_json::to_value(strategy).unwrap(), strategy.name);
            assert_eq!(serde_json::from_value::<Strategy>(strategy.name.into()).unwrap(), strategy);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let error = "rank".parse::<Strategy>().unwrap_err().to_string();
        assert!(
            error.starts_with("unknown strategy \"rank\", use one of: uniform, per, ver, reaper"),
            "{error}"
        );
        assert!(serde_json::from_str::<Strategy>("\"rank\"").is_err());
    }
}
