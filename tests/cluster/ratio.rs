//! Samples per insert as the shards count it, against what was asked for.

use crate::harness::Cluster;
use crate::process::until;

/// Since the replay was full enough. Over this many updates the slack of a few batches is well below the tolerance.
const UPDATES: f64 = 5200.0;

/// Trains, and compares what the shards have counted: Σ samples against Σ inserts − min_size, within 2%.
fn holds(asked: f64, min_size: u64, flags: &[&str]) {
    let cluster = Cluster::start(2, 2, flags);
    until("there are enough updates", || cluster.updates() >= UPDATES);
    // Stopped while it is looked at, and with it whatever it grants. Both shards still answer.
    cluster.learner.stop();
    let counters = [0, 1].map(|shard| cluster.table(shard));
    let samples: u64 = counters.iter().map(|counters| counters.samples).sum();
    let inserts: u64 = counters.iter().map(|counters| counters.inserts).sum();
    let got = samples as f64 / (inserts - min_size) as f64;
    println!("{samples} samples, {inserts} inserts: {got} samples per insert, {asked} were asked for");
    assert!((got / asked - 1.0).abs() < 0.02, "{got} samples per insert instead of {asked}: {counters:?}");
    assert!(counters.iter().all(|counters| counters.inserts > 0 && counters.samples > 0));
    cluster.learner.go_on();
}

#[test]
fn one_update_for_each_transition_is_held_within_two_percent() {
    holds(128.0, 1000, &[]);
}

#[test]
fn the_papers_ratio_is_held_within_two_percent_with_small_batches_and_longer_chunks() {
    let flags = ["--samples-per-insert", "8", "--batch-size", "32", "--chunk-steps", "8", "--lanes", "2"];
    holds(8.0, 1000, &flags);
}
