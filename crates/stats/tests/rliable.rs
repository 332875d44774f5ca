//! Agreement with rliable on scores for which it computed everything once (`fixtures/make.py`).

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use stats::aggregate::Aggregate;
use stats::improvement::probability_of_improvement;
use stats::profile::performance_profile;
use stats::{Bootstrap, Interval, Scores};

/// Sums in another order.
const EXACT: f64 = 1e-12;

/// Rounds here; rliable made 50,000.
const ROUNDS: usize = 20_000;

/// The Monte Carlo error of an interval's end, as a share of the interval's width. A 2.5% quantile of 20,000 normal draws
/// has a standard error of 0.0189 standard deviations, the interval is 3.92 of them wide, and rliable's own error adds
/// half as much again: four standard errors are 2.3%. Discrete statistics of five runs move in steps.
const TOLERANCE: f64 = 0.03;

#[derive(Deserialize)]
struct Fixture {
    cases: BTreeMap<String, Case>,
}

/// What rliable computed; matrices are runs × tasks.
#[derive(Deserialize)]
struct Case {
    scores: BTreeMap<String, Vec<Vec<f64>>>,
    points: BTreeMap<String, BTreeMap<String, f64>>,
    intervals: BTreeMap<String, BTreeMap<String, [f64; 2]>>,
    improvement: f64,
    improvement_interval: [f64; 2],
    thresholds: Vec<f64>,
    profiles: BTreeMap<String, Vec<f64>>,
    bands: BTreeMap<String, Vec<[f64; 2]>>,
}

impl Case {
    fn scores(&self, algorithm: &str) -> Scores {
        let runs = &self.scores[algorithm];
        let task = |index: usize| runs.iter().map(|run| run[index]).collect();
        Scores::new((0..runs[0].len()).map(task).collect()).unwrap()
    }
}

fn cases() -> BTreeMap<String, Case> {
    let fixture: Fixture = serde_json::from_str(include_str!("fixtures/rliable.json")).unwrap();
    assert_eq!(fixture.cases.len(), 2);
    fixture.cases
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(3)
}

#[track_caller]
fn assert_alike(ours: Interval, theirs: [f64; 2], of: &str) {
    let tolerance = TOLERANCE * (theirs[1] - theirs[0]);
    let apart = (ours.low - theirs[0]).abs().max((ours.high - theirs[1]).abs());
    assert!(apart <= tolerance, "{of}: {ours:?} against {theirs:?}");
}

#[test]
fn aggregates_are_those_of_rliable() {
    for (name, case) in cases() {
        for algorithm in ["a", "b"] {
            let scores = case.scores(algorithm);
            for aggregate in Aggregate::ALL {
                let (ours, theirs) = (aggregate.of(&scores), case.points[algorithm][aggregate.name()]);
                assert!((ours - theirs).abs() < EXACT, "{name} {algorithm} {aggregate:?}: {ours} {theirs}");
            }
        }
    }
}

#[test]
fn intervals_are_those_of_rliable_within_their_monte_carlo_error() {
    for (name, case) in cases() {
        for algorithm in ["a", "b"] {
            let scores = case.scores(algorithm);
            let all = |scores: &Scores| Aggregate::ALL.map(|aggregate| aggregate.of(scores)).to_vec();
            let ours = Bootstrap::new(ROUNDS).bands(&scores, &mut rng(), all).unwrap();
            for (aggregate, ours) in Aggregate::ALL.into_iter().zip(ours) {
                let theirs = case.intervals[algorithm][aggregate.name()];
                assert_alike(ours, theirs, &format!("{name} {algorithm} {aggregate:?}"));
            }
        }
    }
}

#[test]
fn the_probability_of_improvement_is_that_of_rliable() {
    for (name, case) in cases() {
        let (a, b) = (case.scores("a"), case.scores("b"));
        let ours = probability_of_improvement(&a, &b);
        assert!((ours - case.improvement).abs() < EXACT, "{name}: {ours} {}", case.improvement);
        let interval =
            Bootstrap::new(ROUNDS).interval_of_pair((&a, &b), &mut rng(), probability_of_improvement);
        assert_alike(interval.unwrap(), case.improvement_interval, &name);
    }
}

#[test]
fn performance_profiles_are_those_of_rliable() {
    for (name, case) in cases() {
        for algorithm in ["a", "b"] {
            let scores = case.scores(algorithm);
            let profile = |scores: &Scores| performance_profile(scores, &case.thresholds);
            for (ours, theirs) in profile(&scores).iter().zip(&case.profiles[algorithm]) {
                assert!((ours - theirs).abs() < EXACT, "{name} {algorithm}: {ours} {theirs}");
            }
            // A profile of 25 or 100 runs moves in steps, and an end may lie on either side of one.
            let step = 1.0 / scores.values().count() as f64 + EXACT;
            let bands = Bootstrap::new(ROUNDS).bands(&scores, &mut rng(), profile).unwrap();
            for (ours, theirs) in bands.iter().zip(&case.bands[algorithm]) {
                let apart = (ours.low - theirs[0]).abs().max((ours.high - theirs[1]).abs());
                assert!(apart <= step, "{name} {algorithm}: {ours:?} {theirs:?}");
            }
        }
    }
}
