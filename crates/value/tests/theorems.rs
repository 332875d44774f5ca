//! The paper's three theorems, as properties of random states and experiences.

use proptest::prelude::*;
use value::experience_value::{self, ExperienceValue};
use value::{hard, soft};

/// A state's values, the action taken, the actual change of its value, the temperature.
#[derive(Clone, Debug)]
struct Experience {
    q: Vec<f64>,
    action: usize,
    td: f64,
    temperature: f64,
}

fn log_uniform(from: f64, to: f64) -> impl Strategy<Value = f64> {
    (from.log10()..to.log10()).prop_map(|exponent| 10f64.powf(exponent))
}

/// From one action to eight; spreads from far below the temperature to far above; sometimes all
/// values equal, sometimes around 1e12.
fn states(temperature: f64) -> impl Strategy<Value = Vec<f64>> {
    let offset = prop_oneof![Just(0.0), -100.0..100.0, Just(1e12), Just(-1e12)];
    let spread = prop_oneof![
        1 => Just(0.0),
        6 => log_uniform(1e-3, 1e3).prop_map(move |spread| spread * temperature),
        1 => Just(1e12),
    ];
    (offset, spread, prop::collection::vec(-1.0..1.0, 1..=8))
        .prop_map(|(offset, spread, units)| units.iter().map(|u| offset + spread * u).collect())
}

/// From 1e-300, far below any rounding of Q, to 1e12; also exactly 0.
fn td_errors(temperature: f64) -> impl Strategy<Value = f64> {
    let size = prop_oneof![
        1 => Just(0.0),
        1 => log_uniform(1e-300, 1e-10),
        4 => log_uniform(1e-10, 1e4).prop_map(move |td| td * temperature),
        1 => log_uniform(1.0, 1e12),
    ];
    (size, any::<bool>()).prop_map(|(size, negative)| if negative { -size } else { size })
}

fn experiences() -> impl Strategy<Value = Experience> {
    log_uniform(1e-3, 1e3).prop_flat_map(|temperature| {
        (states(temperature), any::<prop::sample::Index>(), td_errors(temperature))
            .prop_map(move |(q, action, td)| Experience { action: action.index(q.len()), q, td, temperature })
    })
}

/// Failures are printed whole, so no file of them is kept.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn soft_metrics(e: &Experience) -> ExperienceValue {
    experience_value::soft(&e.q, e.action, e.td, e.temperature)
}

proptest! {
    #![proptest_config(config(4096))]

    #[test]
    fn theorem_1_q_learning_is_bounded_by_td(e in experiences()) {
        let ExperienceValue { evb, piv, eiv } = experience_value::hard(&e.q, e.action, e.td);
        // No tolerance is needed: the forms subtract nothing that rounding could push over.
        prop_assert!(evb.abs() <= e.td.abs());
        prop_assert!(piv.abs() <= e.td.abs());
        prop_assert!(eiv.abs() == e.td.abs() || eiv == 0.0);
        let bounds = experience_value::bounds_hard(e.td);
        let violation = bounds.violation(&ExperienceValue { evb, piv, eiv }, hard::value(&e.q));
        prop_assert!(violation <= 0.0, "{violation:e}");
    }

    #[test]
    fn theorem_2_soft_q_learning_is_bounded_by_rho_max_td(e in experiences()) {
        let metrics = soft_metrics(&e);
        let bounds = experience_value::bounds_soft(&e.q, e.action, e.td, e.temperature);
        let v = soft::value(&e.q, e.temperature);
        for metric in [metrics.evb, metrics.piv, metrics.eiv] {
            prop_assert!(experience_value::excess(metric, bounds.upper, v) <= 0.0, "{metrics:?} {bounds:?}");
        }
    }

    #[test]
    fn theorem_3_evb_and_eiv_are_at_least_rho_min_td(e in experiences()) {
        let metrics = soft_metrics(&e);
        let bounds = experience_value::bounds_soft(&e.q, e.action, e.td, e.temperature);
        let v = soft::value(&e.q, e.temperature);
        for metric in [metrics.evb, metrics.eiv] {
            prop_assert!(experience_value::shortfall(metric, bounds.lower, v) <= 0.0, "{metrics:?} {bounds:?}");
        }
        prop_assert!(bounds.violation(&metrics, v) <= 0.0, "{metrics:?} {bounds:?}");
    }

    /// The allowance for |V| in the tolerance would hide a coarse EVB where |V| is large, so the
    /// theorems are also held to a purely relative one.
    #[test]
    fn soft_theorems_hold_to_relative_rounding_alone(e in experiences()) {
        let ExperienceValue { evb, piv, eiv } = soft_metrics(&e);
        let bounds = experience_value::bounds_soft(&e.q, e.action, e.td, e.temperature);
        let smallest = 1e-300;
        prop_assert!(evb.abs().max(piv.abs()).max(eiv.abs()) <= bounds.upper * (1.0 + 1e-9) + smallest);
        prop_assert!(evb.abs().min(eiv.abs()) >= bounds.lower * (1.0 - 1e-9) - smallest);
    }

    #[test]
    fn evb_is_piv_plus_eiv(e in experiences()) {
        for ExperienceValue { evb, piv, eiv } in [soft_metrics(&e), experience_value::hard(&e.q, e.action, e.td)] {
            let allowed = 1e-12 * piv.abs().max(eiv.abs()) + 1e-300;
            prop_assert!((evb - (piv + eiv)).abs() <= allowed, "{evb:e} {piv:e} {eiv:e}");
        }
    }

    #[test]
    fn a_better_estimate_never_makes_the_policy_worse(e in experiences()) {
        prop_assert!(soft_metrics(&e).piv >= 0.0);
        prop_assert!(experience_value::hard(&e.q, e.action, e.td).piv >= 0.0);
    }

    #[test]
    fn evb_has_the_sign_of_td(e in experiences()) {
        prop_assert!(soft_metrics(&e).evb * e.td.signum() >= 0.0);
        prop_assert!(experience_value::hard(&e.q, e.action, e.td).evb * e.td.signum() >= 0.0);
    }

    #[test]
    fn hard_metrics_are_their_definitions(
        q in prop::collection::vec(-4i32..4, 1..=5),
        action in any::<prop::sample::Index>(),
        td in -6i32..6,
    ) {
        // Small integers: sums are exact and ties are common.
        let old: Vec<f64> = q.iter().copied().map(f64::from).collect();
        let (action, td) = (action.index(old.len()), f64::from(td));
        let mut new = old.clone();
        new[action] += td;
        let (before, after) = (hard::greedy(&old), hard::greedy(&new));
        let defined = ExperienceValue {
            evb: new[after] - old[before],
            piv: new[after] - new[before],
            eiv: new[before] - old[before],
        };
        prop_assert_eq!(experience_value::hard(&old, action, td), defined);
    }
}

/// Changes of up to four temperatures among values of a few, where a quadrature is accurate.
fn gentle_experiences() -> impl Strategy<Value = Experience> {
    log_uniform(1e-3, 1e3).prop_flat_map(|temperature| {
        let units = prop::collection::vec(-50.0..50.0, 1..=8);
        let change = (log_uniform(1e-12, 4.0), any::<bool>());
        (units, any::<prop::sample::Index>(), change).prop_map(move |(units, action, (size, negative))| {
            Experience {
                action: action.index(units.len()),
                q: units.iter().map(|unit| unit * temperature).collect(),
                td: if negative { -size } else { size } * temperature,
                temperature,
            }
        })
    })
}

proptest! {
    #![proptest_config(config(512))]

    /// dV/dQ(s,a) = π and dπ/dQ(s,a) = π·(1−π)/β, so EVB and PIV are integrals along the change:
    /// a slow and obvious route, on which nothing cancels.
    #[test]
    fn soft_metrics_are_integrals_of_the_policy(e in gentle_experiences()) {
        let odds_against = |td: f64| -> f64 {
            let others = e.q.iter().enumerate().filter(|&(other, _)| other != e.action);
            others.map(|(_, value)| ((value - e.q[e.action] - td) / e.temperature).exp()).sum()
        };
        let slope = |u: f64| 1.0 / (1.0 + odds_against(u * e.td));
        let curvature = |u: f64| slope(u) * slope(u) * odds_against(u * e.td) / e.temperature;
        let evb = e.td * simpson(slope);
        let piv = e.td * e.td * simpson(|u| (1.0 - u) * curvature(u));
        let metrics = soft_metrics(&e);
        prop_assert!((metrics.evb - evb).abs() <= 1e-9 * evb.abs(), "{metrics:?} {evb:e}");
        prop_assert!((metrics.piv - piv).abs() <= 1e-9 * piv, "{metrics:?} {piv:e}");
    }
}

/// ∫_0^1 f by Simpson's rule; at a hundredth of a temperature per panel its error is below 1e-9.
fn simpson(f: impl Fn(f64) -> f64) -> f64 {
    let panels = 400;
    let h = 1.0 / f64::from(panels);
    let inner: f64 = (1..panels).map(|k| if k % 2 == 1 { 4.0 } else { 2.0 } * f(f64::from(k) * h)).sum();
    (f(0.0) + inner + f(1.0)) * h / 3.0
}

#[test]
fn piv_may_lie_below_the_lower_bound() {
    // The smaller the change, the further: PIV is of second order in it, the bound of first.
    let q = [1.0, 0.5, 0.0];
    for td in [0.1, -0.1, 1e-6] {
        let metrics = experience_value::soft(&q, 0, td, 0.5);
        let bounds = experience_value::bounds_soft(&q, 0, td, 0.5);
        let v = soft::value(&q, 0.5);
        assert!(experience_value::shortfall(metrics.piv, bounds.lower, v) > 0.0, "{metrics:?} {bounds:?}");
        assert!(bounds.violation(&metrics, v) <= 0.0, "theorem 3 does not speak of PIV");
    }
}

#[test]
fn naive_differences_violate_the_bounds_and_ours_do_not() {
    // Temperature 100, four equal values, V near 13,863, TD near 1e-5.
    let temperature = 100.0;
    let q = [13_863.0 - temperature * 4f64.ln(); 4];
    let v = soft::value(&q, temperature);
    let mut naive_violations = 0;
    for step in 1..=100 {
        let td = 1e-7 * f64::from(step);
        let mut new = q;
        new[0] += td;
        let naive = soft::value(&new, temperature) - v;
        let bounds = experience_value::bounds_soft(&q, 0, td, temperature);
        naive_violations += u32::from(naive > bounds.upper || naive < bounds.lower);
        let evb = experience_value::soft(&q, 0, td, temperature).evb;
        assert!(evb <= bounds.upper * (1.0 + 1e-14) && evb >= bounds.lower * (1.0 - 1e-14));
    }
    assert!(naive_violations > 50, "only {naive_violations} of 100");
}
