//! Prioritized experience replay (Schaul et al., 2016): |TD|.

use super::Definition;

pub(super) static DEFINITION: Definition = Definition {
    name: "per",
    about: "|TD|",
    title: "prioritized",
    uses_priorities: true,
    needs_soft_policy: false,
    needs_reliability: false,
    formula: |experience| experience.td.abs(),
};
