//! The list of algorithms as the settings know them: what must be decided before libtorch is loaded.
//!
//! What an algorithm does is in `crates/agents`, in a file of the same name; a test there compares the two lists.

use value::{Choice, Listed, Strategy};

use crate::settings::Settings;

/// An algorithm by name.
pub type Algorithm = Choice<Entry>;

/// Every algorithm, the paper's first.
const LIST: &[Algorithm] = &[SOFT_DQN, DQN];

/// Soft Q-learning, the paper's.
pub const SOFT_DQN: Algorithm = Choice::of(&Entry {
    name: "soft-dqn",
    about: "log-sum-exp values, softmax policy",
    soft_policy: true,
    epsilon: None,
    check: |_| Ok(()),
});

/// Plain Q-learning.
pub const DQN: Algorithm = Choice::of(&Entry {
    name: "dqn",
    about: "max values, ε-greedy policy",
    soft_policy: false,
    // A greedy policy does not explore by itself.
    epsilon: Some((1.0, 0.01)),
    check: |_| Ok(()),
});

/// An algorithm in the settings.
#[derive(Debug)]
pub struct Entry {
    /// The name in settings.
    pub name: &'static str,
    /// A few words for help.
    pub about: &'static str,
    /// Whether the agent's policy is softmax(Q/β), so that it has action probabilities for priorities.
    pub soft_policy: bool,
    /// First and final ε unless the user sets them; `None` keeps the preset's.
    pub epsilon: Option<(f64, f64)>,
    /// Checks settings of its own. The error names the setting and says what to change.
    pub check: fn(&Settings) -> Result<(), String>,
}

impl Entry {
    /// Whether the strategy's priorities are defined for this algorithm.
    pub fn accepts(&self, strategy: Strategy) -> bool {
        self.soft_policy || !strategy.needs_soft_policy
    }
}

impl Listed for Entry {
    const KIND: &'static str = "algorithm";

    fn list() -> &'static [Algorithm] {
        LIST
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }
}
