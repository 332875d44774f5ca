//! A shorter version of "each strategy solves CartPole"; the full one is the table in the README.

use run::record;

use crate::harness::{order, succeed};

/// Three quarters of the preset's frames. A random player gets about 22 and an untrained network about 10; the bar is
/// generous because another CPU's arithmetic is another course of training.
fn learns(strategy: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let settings = [("strategy", strategy), ("frames", "15000"), ("evaluate_final_episodes", "40")];
    let summary = succeed(&order(&path, "cartpole", &settings, false));
    assert!(summary.contains("trained agent"), "{summary}");
    let evaluations = record::evaluations(&path).unwrap().values;
    let (first, last) = (&evaluations[0], evaluations.last().unwrap());
    assert!(first.mean < 60.0, "untrained: {}", first.mean);
    assert!(last.mean > 100.0 && last.scores.len() == 40, "{strategy}: {}", last.mean);
    assert!(!record::training(&path).unwrap().values.is_empty());
    assert!(!record::episodes(&path).unwrap().values.is_empty());
}

#[test]
fn uniform_replay_learns_cartpole() {
    learns("uniform");
}

#[test]
fn prioritized_replay_learns_cartpole() {
    learns("per");
}

#[test]
fn valuable_replay_learns_cartpole() {
    learns("ver");
}

#[test]
fn reliability_adjusted_replay_learns_cartpole() {
    learns("reaper");
}

#[test]
fn replay_by_the_lower_bound_learns_cartpole() {
    learns("ver-lower");
}

#[test]
fn plain_dqn_learns_cartpole() {
    algorithm_learns("dqn", "per");
}

#[test]
fn munchausen_dqn_learns_cartpole() {
    algorithm_learns("munchausen-dqn", "ver");
}

fn algorithm_learns(algorithm: &str, strategy: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let settings = [
        ("algorithm", algorithm),
        ("strategy", strategy),
        ("frames", "15000"),
        ("epsilon_decay_steps", "3000"),
        ("evaluate_final_episodes", "40"),
    ];
    succeed(&order(&path, "cartpole", &settings, false));
    let last = record::evaluations(&path).unwrap().values.pop().unwrap();
    assert!(last.mean > 100.0, "{algorithm}: {}", last.mean);
}
