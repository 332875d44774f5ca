//! Samples per insert as the shards count it, against what was asked for.

use crate::harness::Cluster;
use crate::process::until;

/// Over this many updates the slack of a few batches is well below the tolerance.
const UPDATES: f64 = 5000.0;
/// Where counting begins. A shard that is slow to answer at first may have the replay filled once more, which owes nothing.
const FIRST: f64 = 200.0;

/// Trains, and compares what the shards have counted since the ratio holds: Σ samples against Σ inserts, within 2%.
fn holds(asked: f64, flags: &[&str]) {
    let cluster = Cluster::start(2, 2, flags);
    let counted = |updates: f64| {
        until("there are enough updates", || cluster.updates() >= updates);
        // Stopped while it is looked at, and with it whatever it grants. Both shards still answer.
        cluster.learner.stop();
        let tables = [0, 1].map(|shard| cluster.table(shard));
        cluster.learner.resume();
        assert!(tables.iter().all(|table| table.inserts > 0 && table.samples > 0), "{tables:?}");
        tables.iter().fold((0, 0), |sum, table| (sum.0 + table.samples, sum.1 + table.inserts))
    };
    let (before, after) = (counted(FIRST), counted(FIRST + UPDATES));
    let (samples, inserts) = (after.0 - before.0, after.1 - before.1);
    let got = samples as f64 / inserts as f64;
    println!("{samples} samples, {inserts} inserts: {got} samples per insert, {asked} were asked for");
    assert!((got / asked - 1.0).abs() < 0.02, "{got} samples per insert instead of {asked}");
}

#[test]
fn one_update_for_each_transition_is_held_within_two_percent() {
    holds(128.0, &[]);
}

#[test]
fn the_papers_ratio_is_held_within_two_percent_with_small_batches_and_longer_chunks() {
    let flags = ["--samples-per-insert", "8", "--batch-size", "32", "--chunk-steps", "8", "--lanes", "2"];
    holds(8.0, &flags);
}
