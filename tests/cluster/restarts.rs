//! Who comes back after a kill or an end, and what the others make of it.

use std::collections::BTreeSet;

use proto::v1;
use proto::v1::insert_request::Message;
use replay::testing::{LaneBuilder, NOOP};
use rustix::process::Signal;
use tonic::{Code, Status};

use crate::harness::Cluster;
use crate::process::{Process, until};
use crate::wire::{self, patiently, shard_client};

const FLAGS: [&str; 2] = ["--min-size", "128"];

/// Incarnations of an actor among the items of a shard.
fn incarnations(cluster: &Cluster, shard: usize, actor: u32) -> BTreeSet<u64> {
    let batch = cluster.items(shard);
    let lanes = batch.items().map(|item| item.lane());
    lanes.filter(|lane| lane.actor == actor).map(|lane| lane.incarnation).collect()
}

/// With the actors stopped, the learner's frames come to be what the shards have counted (CartPole skips none).
fn frames_agree(cluster: &Cluster) -> u64 {
    cluster.actors.iter().for_each(Process::stop);
    let counted = || (0..cluster.shards.len()).map(|shard| cluster.counters(shard).agent_steps).sum::<u64>();
    until("the learner's frames are the shards' count", || {
        cluster.learner.metric("quiver_learner_frames") == counted() as f64
    });
    cluster.actors.iter().for_each(Process::resume);
    counted()
}

#[test]
fn a_restarted_learners_weights_replace_newer_numbered_ones_of_its_former_life() {
    let mut cluster = Cluster::start(1, 1, &FLAGS);
    let version = |cluster: &Cluster| cluster.actors[0].metric("quiver_actor_weights_version");
    until("the actor has weights of some age", || version(&cluster) >= 500.0);
    let former = cluster.run().1;
    cluster.learner.kill();
    let before = version(&cluster) as u64;
    cluster.start_learner();
    // The run has no checkpoint, so the learner begins anew. What acted is written in every step.
    until("there is experience from weights with a smaller number of a newer learner", || {
        let batch = cluster.items(0);
        let mut acted = batch.items().filter_map(|item| item.steps().next()).map(|taken| taken.weights);
        acted.any(|weights| weights.incarnation > former && weights.number < before)
    });
    assert!(cluster.run().1 > former);
    let joins = cluster.actors[0].metric("quiver_actor_joins_total");
    assert_eq!(joins, 1.0, "the actor continued as it was");
    for reason in ["identity", "fenced"] {
        let name = format!("quiver_replay_requests_refused_total{{reason=\"{reason}\"}}");
        assert_eq!(cluster.shards[0].metric(&name), 0.0, "no chunk in flight was refused");
    }
    cluster.moves_on(&[0]);
    frames_agree(&cluster);
}

#[test]
fn a_restarted_actors_experience_is_accepted_and_its_former_life_is_fenced() {
    let mut cluster = Cluster::start(1, 1, &FLAGS);
    cluster.moves_on(&[0]);
    let old = *incarnations(&cluster, 0, 0).last().expect("there are items");
    cluster.actors[0].kill();
    cluster.start_actor(0);
    until("there are items of the actor's new life", || {
        incarnations(&cluster, 0, 0).last().is_some_and(|newest| *newest > old)
    });
    cluster.moves_on(&[0]);

    let fenced = "quiver_replay_requests_refused_total{reason=\"fenced\"}";
    let before = cluster.shards[0].metric(fenced);
    let status = cluster.runtime.block_on(write_as(&cluster, 0, old, true)).expect_err("it was replaced");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert_eq!(cluster.shards[0].metric(fenced), before + 1.0);
    cluster.moves_on(&[0]);
}

#[test]
fn a_client_without_a_ticket_disturbs_no_actor() {
    let cluster = Cluster::start(1, 1, &FLAGS);
    cluster.moves_on(&[0]);
    let own = *incarnations(&cluster, 0, 0).last().expect("there are items");
    for incarnation in [own, own + 1, u64::MAX] {
        let written = cluster.runtime.block_on(write_as(&cluster, 0, incarnation, false));
        let status = written.expect_err("nothing proves it");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("does not prove actor 0"), "{status}");
    }
    cluster.moves_on(&[0]);
    assert_eq!(cluster.actors[0].metric("quiver_actor_joins_total"), 1.0, "the actor was not disturbed");
    assert_eq!(cluster.actors[0].metric("quiver_actor_duplicate_chunks_total"), 0.0, "all of it is stored");
}

/// Writes one chunk as a start of an actor, with a ticket or without.
async fn write_as(cluster: &Cluster, actor: u32, incarnation: u64, proven: bool) -> Result<(), Status> {
    let address = cluster.shard_address(0);
    let v1::InfoReply { run, store, .. } = wire::info(&address).await;
    let store = store.expect("the learner has configured it");
    let ticket = if proven {
        let request = v1::IssueTicketRequest { caller: Some(proto::caller(&run)), actor, incarnation };
        shard_client(&address).issue_ticket(request).await?.into_inner().ticket
    } else {
        Default::default()
    };
    let hello = v1::InsertHello {
        caller: Some(proto::caller(&run)),
        actor,
        incarnation,
        codec: store.codec,
        frame_bytes: store.frame_bytes,
        stack: store.stack,
        ticket,
        ..v1::InsertHello::default()
    };
    let mut lane = LaneBuilder::new(replay::LaneKey { actor, incarnation, lane: 0 }).at(1 << 40, 1 << 40);
    lane.push(&vec![0; store.frame_bytes as usize], Some(NOOP));
    let mut chunk = lane.chunk([]);
    chunk.steps[0].starts_episode = true;
    let chunk = proto::convert::chunk_message(chunk);
    let messages = [Message::Hello(hello), Message::Chunk(chunk)];
    let requests = messages.map(|message| v1::InsertRequest { message: Some(message) });
    patiently(async {
        let mut replies = shard_client(&address).insert(tokio_stream::iter(requests)).await?.into_inner();
        while replies.message().await?.is_some() {}
        Ok(())
    })
    .await
}

#[test]
fn an_actor_that_requests_a_taken_index_waits_until_it_is_free() {
    let mut cluster = Cluster::start(1, 1, &FLAGS);
    cluster.moves_on(&[0]);
    let old = *incarnations(&cluster, 0, 0).last().expect("there are items");
    let second = cluster.start_member("second", &["--index", "0"]);
    until("it says what it waits for", || second.log().contains("waiting for an index of the run"));
    cluster.moves_on(&[0]);
    assert_eq!(
        cluster.actors[0].metric("quiver_actor_joins_total"),
        1.0,
        "the first actor was not disturbed"
    );
    cluster.actors[0].kill();
    until("there are items of the second actor", || {
        incarnations(&cluster, 0, 0).last().is_some_and(|newest| *newest > old)
    });
}

#[test]
fn a_stopped_learner_writes_a_checkpoint_and_resumes_from_it() {
    let mut cluster = Cluster::start(2, 2, &FLAGS);
    cluster.moves_on(&[0, 1]);
    let frames = frames_agree(&cluster);
    let published = cluster.learner.metric("quiver_learner_weights_version");
    assert!(published > 0.0);
    let incarnation = cluster.run().1;
    cluster.learner.signal(Signal::TERM);
    assert_eq!(cluster.learner.end().code(), Some(0));
    let checkpoints = std::fs::read_dir(cluster.run_dir().join("checkpoints")).unwrap().count();
    assert!(checkpoints > 0, "it leaves a checkpoint");

    cluster.start_learner();
    let text = cluster.learner.page("/metrics");
    assert!(crate::process::metric(&text, "quiver_learner_updates_total") >= 0.0);
    until("it has published the weights that it resumed from", || {
        cluster.learner.metric("quiver_learner_weights_version") >= published
    });
    assert!(cluster.learner.log().contains("resumed from a checkpoint"));
    cluster.moves_on(&[0, 1]);
    assert!(frames_agree(&cluster) > frames);
    assert!(cluster.run().1 > incarnation);
}

#[test]
fn the_only_shard_may_be_killed_after_it_has_evicted_items() {
    let mut cluster = Cluster::start(1, 1, &["--min-size", "128", "--capacity", "300"]);
    until("the shard has evicted items", || cluster.table(0).evicted > 100);
    cluster.shards[0].kill();
    until("the learner has noticed", || cluster.learner_waits_for(&["filling", "shards"]));
    cluster.start_shard(0);
    cluster.moves_on(&[0]);
}
