//! Golden numbers: this crate against an independent calculation at 1,000 digits.
//!
//! The table was written by `tests/golden.py` (mpmath), from the paper's definitions alone.

#[allow(clippy::approx_constant, reason = "the entropy of a fair coin is meant to be ln 2")]
mod table;

use value::{experience_value, rho, soft, target};

/// One experience of soft Q-learning and everything that follows from it.
pub struct Soft {
    q: &'static [f64],
    action: usize,
    td: f64,
    temperature: f64,
    value: f64,
    log_old: f64,
    entropy: f64,
    old: f64,
    new: f64,
    evb: f64,
    piv: f64,
    eiv: f64,
}

/// A double soft value.
pub struct Double {
    online: &'static [f64],
    target: &'static [f64],
    temperature: f64,
    value: f64,
}

/// An n-step soft target.
pub struct NStep {
    rewards: &'static [f64],
    log_probabilities: &'static [f64],
    discount: f64,
    temperature: f64,
    bootstrap: Option<f64>,
    target: f64,
}

/// Twelve digits of the number itself, or of a scale that its terms are known to have.
#[track_caller]
fn check(what: &str, actual: f64, expected: f64, scale: f64) {
    let error = (actual - expected).abs();
    let allowed = 1e-12 * expected.abs().max(scale);
    assert!(error <= allowed, "{what}: {actual:e}, not {expected:e}");
}

/// Where the exact number is below this, f64 has no twelve digits for it.
const SMALLEST: f64 = 1e-290;

#[test]
fn values_policies_and_entropies_agree() {
    for case in table::SOFT {
        let (q, temperature) = (case.q, case.temperature);
        let largest = q.iter().fold(temperature, |largest, x| largest.max(x.abs()));
        let mut policy = vec![0.0; q.len()];
        soft::policy(q, temperature, &mut policy);
        check("value", soft::value(q, temperature), case.value, largest);
        check("policy", policy[case.action], case.old, SMALLEST);
        check("probability", soft::probability(q, temperature, case.action), case.old, SMALLEST);
        check("log", soft::log_probability(q, temperature, case.action), case.log_old, SMALLEST);
        check("entropy", soft::entropy(q, temperature), case.entropy, SMALLEST);
    }
}

#[test]
fn metrics_agree_to_twelve_digits_however_small() {
    for case in table::SOFT {
        let metrics = experience_value::soft(case.q, case.action, case.td, case.temperature);
        check("evb", metrics.evb, case.evb, SMALLEST);
        check("piv", metrics.piv, case.piv, SMALLEST);
        check("eiv", metrics.eiv, case.eiv, SMALLEST);
    }
}

#[test]
fn bounds_and_rho_agree() {
    for case in table::SOFT {
        let (larger, smaller) = (case.old.max(case.new), case.old.min(case.new));
        let rho = rho::rho(value::Rho::Max, case.q, case.action, case.td, case.temperature);
        let bounds = experience_value::bounds_soft(case.q, case.action, case.td, case.temperature);
        check("rho", rho, larger, SMALLEST);
        check("upper", bounds.upper, larger * case.td.abs(), SMALLEST);
        check("lower", bounds.lower, smaller * case.td.abs(), SMALLEST);
    }
}

#[test]
fn double_soft_values_agree() {
    for case in table::DOUBLE {
        let value = target::double_soft_value(case.online, case.target, case.temperature);
        check("double soft value", value, case.value, case.temperature);
    }
}

#[test]
fn n_step_soft_targets_agree() {
    for case in table::N_STEP {
        let target = target::n_step_soft(
            case.rewards,
            case.log_probabilities,
            case.discount,
            case.temperature,
            case.bootstrap,
        );
        check("n-step soft target", target, case.target, 1.0);
    }
}
