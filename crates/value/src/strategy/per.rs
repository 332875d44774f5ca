//! Prioritized experience replay (Schaul et al., 2016): |TD|.

use super::{Definition, Sampling};

pub(super) static DEFINITION: Definition = Definition {
    name: "per",
    about: "|TD|",
    title: "prioritized",
    sampling: Sampling::Proportional,
    needs_soft_policy: false,
    needs_reliability: false,
    formula: |experience| experience.td.abs(),
};
