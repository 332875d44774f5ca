//! Shards are known by name: they may come back at other addresses, and a run can continue without one.

use std::collections::BTreeSet;

use tonic::Code;

use crate::adjusting::adjust;
use crate::harness::Cluster;
use crate::process::until;

const FLAGS: [&str; 4] = ["--min-size", "128", "--lanes", "2"];

fn name(cluster: &Cluster, address: usize) -> String {
    cluster.info(address).shard.unwrap().id
}

/// Actors and lanes among the items of the shard at an address.
fn lanes(cluster: &Cluster, address: usize) -> BTreeSet<(u32, u32)> {
    let batch = cluster.items(address);
    batch.items().map(|item| (item.lane().actor, item.lane().lane)).collect()
}

#[test]
fn shards_that_come_back_at_each_others_addresses_keep_their_items_and_their_lanes() {
    let mut cluster = Cluster::start(2, 2, &FLAGS);
    cluster.moves_on(&[0, 1]);
    // The empty shard takes the place of the lost one.
    for (address, data) in [(0, "a"), (1, "b")] {
        cluster.shards[address].kill();
        cluster.start_shard_with(address, data);
    }
    cluster.moves_on(&[0, 1]);
    let names = [0, 1].map(|address| name(&cluster, address));
    let before = [0, 1].map(|address| lanes(&cluster, address));
    assert!(before.iter().all(|lanes| lanes.len() == 2) && before[0].is_disjoint(&before[1]), "{before:?}");
    let held = [0, 1].map(|address| cluster.counters(address).inserts);

    cluster.shards.iter_mut().for_each(crate::process::Process::kill);
    cluster.start_shard_with(0, "b");
    cluster.start_shard_with(1, "a");
    cluster.moves_on(&[0, 1]);
    assert_eq!([1, 0].map(|address| name(&cluster, address)), names);
    for (shard, address) in [(0, 1), (1, 0)] {
        assert!(cluster.counters(address).inserts > held[shard], "it has what it had");
        assert_eq!(lanes(&cluster, address), before[shard], "and no lanes of the other");
    }
    for actor in &cluster.actors {
        assert_eq!(actor.metric("quiver_actor_joins_total"), 1.0, "no actor had to rejoin as a new member");
    }
    let learner = cluster.learner.log();
    assert!(learner.contains("shard addresses swapped"), "{learner}");

    // The run remembers who is who.
    cluster.learner.kill();
    cluster.start_learner();
    cluster.moves_on(&[0, 1]);
    for (shard, address) in [(0, 1), (1, 0)] {
        assert_eq!(lanes(&cluster, address), before[shard]);
    }
}

#[test]
fn an_operator_can_exclude_a_shard_and_include_it_again() {
    let mut cluster = Cluster::start(2, 2, &FLAGS);
    cluster.moves_on(&[0, 1]);
    cluster.shards[1].kill();
    cluster.learner.kill();
    cluster.start_learner();
    until("the learner waits for the shard", || cluster.learner_waits_for(&["shards"]));
    for nonsense in ["2", "0,1", "one"] {
        let status = adjust(&cluster, "without_shards", nonsense).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    adjust(&cluster, "without_shards", "1").unwrap();
    cluster.moves_on(&[0]);
    until("the lanes of the lost shard write to the other", || lanes(&cluster, 0).len() == 4);
    // The list is replaced, so this would leave only the lost shard.
    let status = adjust(&cluster, "without_shards", "0").unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("without_shards leaves only shard 1"), "{status}");
    cluster.moves_on(&[0]);

    let members = |cluster: &Cluster| cluster.learner.metric("quiver_learner_members{role=\"actor\"}");
    until("no member follows the learner twice", || members(&cluster) == 2.0);

    // It lasts, until someone says otherwise.
    cluster.learner.kill();
    cluster.start_learner();
    cluster.moves_on(&[0]);
    // No one waits for a shard that is not there yet.
    adjust(&cluster, "without_shards", "none").unwrap();
    cluster.moves_on(&[0]);
    cluster.learner.kill();
    cluster.start_learner();
    cluster.moves_on(&[0]);
    assert_eq!(lanes(&cluster, 0).len(), 4);
    cluster.start_shard(1);
    cluster.moves_on(&[0, 1]);
    until("no member follows the learner twice", || members(&cluster) == 2.0);
    let learner = cluster.learner.log();
    assert!(learner.contains("shard rejoined the run"), "{learner}");
}

#[test]
fn a_shard_that_moved_keeps_its_lanes_though_a_stranger_is_where_it_was() {
    let mut cluster = Cluster::start(2, 2, &FLAGS);
    for (address, data) in [(0, "a"), (1, "b")] {
        cluster.shards[address].kill();
        cluster.start_shard_with(address, data);
    }
    cluster.moves_on(&[0, 1]);
    until("both actors have written", || [0, 1].iter().all(|&address| lanes(&cluster, address).len() == 2));
    let before = lanes(&cluster, 0);
    cluster.learner.kill();
    cluster.shards.iter_mut().for_each(crate::process::Process::kill);
    cluster.start_shard_with(0, "stranger");
    cluster.start_shard_with(1, "a");
    // It hears both at once.
    assert_ne!(name(&cluster, 0), name(&cluster, 1));
    cluster.start_learner();
    cluster.moves_on(&[0, 1]);
    assert_eq!(lanes(&cluster, 1), before);
    assert!(lanes(&cluster, 0).is_disjoint(&before));
}
