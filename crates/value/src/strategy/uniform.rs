//! Uniform replay: no priorities.

use super::{Definition, Sampling};

pub(super) static DEFINITION: Definition = Definition {
    name: "uniform",
    about: "every item alike",
    title: "uniform",
    sampling: Sampling::Uniform,
    needs_soft_policy: false,
    needs_reliability: false,
    formula: |_| 1.0,
};
