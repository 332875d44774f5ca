//! Uniform replay: no priorities.

use super::Definition;

pub(super) static DEFINITION: Definition = Definition {
    name: "uniform",
    about: "every item alike",
    title: "uniform",
    uses_priorities: false,
    needs_soft_policy: false,
    needs_reliability: false,
    formula: |_| 1.0,
};
