//! Valuable experience replay (Li, Lu, Miao, 2021): ρ·|TD|, the upper bound of theorem 2.

use super::{Definition, PriorityInputs};
use crate::rho::rho;

pub(super) static DEFINITION: Definition = Definition {
    name: "ver",
    about: "ρ·|TD|",
    title: "valuable",
    uses_priorities: true,
    needs_soft_policy: true,
    needs_reliability: false,
    formula: priority,
};

fn priority(experience: &PriorityInputs<'_>) -> f64 {
    let PriorityInputs { q, action, td, temperature, rho: mode, .. } = *experience;
    // Without a soft policy there is no ρ. Settings refuse the combination; NaN is refused as a priority if one slips through.
    temperature.map_or(f64::NAN, |temperature| rho(mode, q, action, td, temperature) * td.abs())
}
