//! ρ^min·|TD|, the lower bound on |EVB| of theorem 3, where `ver` takes the upper bound.

use super::{Definition, PriorityInputs};
use crate::experience_value::bounds_soft;

pub(super) static DEFINITION: Definition = Definition {
    name: "ver-lower",
    about: "ρ^min·|TD|, the paper's lower bound on |EVB|",
    title: "lower-bound",
    uses_priorities: true,
    needs_soft_policy: true,
    needs_reliability: false,
    formula: priority,
};

fn priority(experience: &PriorityInputs<'_>) -> f64 {
    let PriorityInputs { q, action, td, temperature, .. } = *experience;
    temperature.map_or(f64::NAN, |temperature| bounds_soft(q, action, td, temperature).lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rho, Strategy};

    #[test]
    fn it_is_ver_with_the_smaller_of_both_probabilities() {
        let of = |td| {
            let q = &[0.0, 0.1];
            let experience =
                PriorityInputs { q, action: 0, td, temperature: Some(0.1), rho: Rho::Max, reliability: None };
            (DEFINITION.priority(&experience), Strategy::VER.priority(&experience))
        };
        // The target turns odds of e^-1 into odds of e^2, or into odds of e^-4.
        let probability = |log_odds: f64| 1.0 / (1.0 + (-log_odds).exp());
        for (td, smaller, larger) in [(0.3, -1.0, 2.0), (-0.3, -4.0, -1.0)] {
            let (lower, upper) = of(td);
            assert!((lower - 0.3 * probability(smaller)).abs() < 1e-15, "{td}");
            assert!((upper - 0.3 * probability(larger)).abs() < 1e-15, "{td}");
        }
    }
}
