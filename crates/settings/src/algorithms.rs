//! The list of algorithms: what the settings must know about each without libtorch.
//!
//! `crates/agents` implements each algorithm in a file of the same name; a test there compares the two lists.

use value::{Choice, Strategy};

use crate::Settings;

/// An algorithm by name.
pub type Algorithm = Choice<AlgorithmEntry>;

/// Every algorithm, the paper's first.
const LIST: &[Algorithm] = &[SOFT_DQN, DQN, MUNCHAUSEN_DQN];

/// Soft Q-learning, the paper's.
pub const SOFT_DQN: Algorithm = Choice::of(&AlgorithmEntry {
    name: "soft-dqn",
    title: "soft DQN",
    about: "log-sum-exp values, softmax policy",
    has_soft_policy: true,
    epsilon: None,
    check: |_| Ok(()),
});

/// Plain Q-learning.
pub const DQN: Algorithm = Choice::of(&AlgorithmEntry {
    name: "dqn",
    title: "DQN",
    about: "max values, ε-greedy policy",
    has_soft_policy: false,
    // A greedy policy does not explore by itself.
    epsilon: Some((1.0, 0.01)),
    check: |_| Ok(()),
});

/// Munchausen DQN (Vieillard et al. 2020).
pub const MUNCHAUSEN_DQN: Algorithm = Choice::of(&AlgorithmEntry {
    name: "munchausen-dqn",
    title: "Munchausen DQN",
    about: "soft-dqn with a scaled log-policy in the reward, ε-greedy policy",
    has_soft_policy: true,
    epsilon: Some((1.0, 0.01)),
    check: |settings| {
        let (scale, floor) = (settings.munchausen_scale, settings.munchausen_floor);
        if !(0.0..=1.0).contains(&scale) {
            return Err(format!("munchausen_scale must be between 0 and 1, got {scale}"));
        }
        if !(floor.is_finite() && floor <= 0.0) {
            return Err(format!("munchausen_floor must be a number of at most 0, got {floor}"));
        }
        Ok(())
    },
});

/// An algorithm in the list.
#[derive(Debug)]
pub struct AlgorithmEntry {
    /// The name in settings.
    pub name: &'static str,
    /// The name in titles.
    pub title: &'static str,
    /// A few words for help.
    pub about: &'static str,
    /// Whether the agent has a policy softmax(Q/β) in its targets, and so action probabilities for priorities, whether or not
    /// it acts by that policy. Then `Agent::temperature` is `Some`.
    pub has_soft_policy: bool,
    /// First and final ε unless the user sets them; `None` keeps the preset's.
    pub epsilon: Option<(f64, f64)>,
    /// Checks the algorithm's own settings; called for every run. The error names the setting and the remedy.
    pub check: fn(&Settings) -> Result<(), String>,
}

impl AlgorithmEntry {
    /// Whether the strategy's priorities are defined for this algorithm.
    pub fn accepts(&self, strategy: Strategy) -> bool {
        self.has_soft_policy || !strategy.needs_soft_policy
    }
}

value::listed!(AlgorithmEntry, "algorithm", LIST);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_munchausen_dqn_can_not_use_are_refused_by_name() {
        let refused = |key: &str, text: &str| {
            let mut settings = Settings::paper();
            assert_eq!(settings.validate("pong"), Ok(()));
            settings.set(key, text).unwrap().unwrap();
            settings.validate("pong").unwrap_err()
        };
        assert!(refused("munchausen_scale", "1.5").contains("munchausen_scale must be between"));
        assert!(refused("munchausen_floor", "0.1").contains("munchausen_floor must be a number"));
        assert!(refused("munchausen_scale", "nan").contains("munchausen_scale must be between"));
    }
}
