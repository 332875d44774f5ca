//! What a shard promises to those who keep to the protocol.

mod common;

use common::*;
use proto::v1::insert_reply::Reply;
use proto::{PROTOCOL, v1};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_inserted_is_drawn_as_it_was_and_can_be_given_new_priorities() {
    let running = Running::granted(1000).await;
    let mut client = running.client();
    let mut writing = Writing::open(&mut client, hello(3, 9)).await;
    let stored = writing.write(chunk(3, 9, 0, 0)).await;
    assert_eq!((stored.sequence, stored.items, stored.duplicate), (0, 3, false));
    assert_eq!(writing.write(chunk(3, 9, 0, 1)).await.items, 4);

    // Priorities are 1 to 7, the exponent is 1: the point 0.999 draws the last item.
    let mut sampling = Sampling::open(&mut client).await;
    let reply = sampling.ask(sample(1, vec![0.999, 0.0])).await.unwrap();
    let [last, first] = &reply.items[..] else { panic!("{reply:?}") };
    assert_eq!((last.first_step, last.priority, last.times_sampled), (6, 7.0, 1));
    assert_eq!((last.probability, first.probability), (7.0 / 28.0, 1.0 / 28.0));
    assert_eq!((last.age_inserts, first.age_inserts), (0, 6));
    assert_eq!(last.lane, Some(v1::LaneKey { actor: 3, incarnation: 9, lane: 0 }));
    let frames: Vec<_> = (3..=7).map(|step| frame(0, step)).collect();
    assert_eq!(last.frames, frames);
    assert_eq!(first.frames, [frame(0, 0), frame(0, 1)]);
    assert_eq!(last.steps, [chunk(3, 9, 0, 1).steps[2].taken.unwrap()]);
    let standing = reply.shard.unwrap();
    assert_eq!((standing.id.as_str(), standing.incarnation, standing.items), ("shard-a", 7, 7));
    assert_eq!((standing.mass, standing.inserts_allowed), (28.0, 1000));
    assert_eq!(standing.counters.unwrap().samples, 2);

    let updates = vec![v1::PriorityUpdate { key: last.key, priority: 107.0 }];
    let gone = v1::ItemKey { shard_incarnation: 7, slot: 3, generation: 999 };
    let mut request = update(1, updates);
    request.updates.push(v1::PriorityUpdate { key: Some(gone), priority: 1.0 });
    request.remove = vec![first.key.unwrap(), gone];
    request.largest_priority = 500.0;
    let reply = client.update_priorities(request).await.unwrap().into_inner();
    assert_eq!((reply.applied, reply.stale, reply.removed), (1, 1, 1));
    let standing = reply.shard.unwrap();
    assert_eq!((standing.mass, standing.items, standing.largest_priority), (127.0, 6, 500.0));

    // The caller has nothing more to say, so the stream ends well.
    drop(writing.requests);
    assert!(patiently(writing.replies.message()).await.unwrap().is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_sent_again_is_acknowledged_as_a_duplicate_and_a_gap_is_counted() {
    let running = Running::granted(1000).await;
    let mut client = running.client();
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.write(chunk(0, 1, 5, 0)).await;
    drop(writing);
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    let again = writing.write(chunk(0, 1, 5, 0)).await;
    assert_eq!((again.lane, again.sequence, again.duplicate, again.items), (5, 0, true, 0));
    let after_gap = writing.write(chunk(0, 1, 5, 3)).await;
    // The item whose state reaches back into the gap goes without frames.
    assert_eq!((after_gap.chunks_lost, after_gap.duplicate), (2, false));
    assert!(after_gap.items_without_frames > 0);
    let counters = state(&mut client).await.shard.unwrap().counters.unwrap();
    assert_eq!((counters.chunks, counters.duplicate_chunks, counters.lost_chunks), (2, 1, 2));
    for (result, count) in [("stored", 2.0), ("duplicate", 1.0), ("lost", 2.0), ("refused", 0.0)] {
        assert_eq!(running.metric(&format!("replay_chunks_total{{result=\"{result}\"}}")), count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_was_told_nothing_waits_and_answers() {
    let running = Running::start().await;
    let mut client = running.client();
    let info = state(&mut client).await;
    assert_eq!((info.protocol, info.run.as_str(), info.table), (PROTOCOL, "", None));
    assert_eq!(info.shard.unwrap().items, 0);
    let mut sampling = Sampling::open(&mut client).await;
    assert!(sampling.ask(sample(1, vec![0.5])).await.unwrap().items.is_empty());
    let key = v1::ItemKey { shard_incarnation: 7, slot: 0, generation: 0 };
    let one = vec![v1::PriorityUpdate { key: Some(key), priority: 1.0 }];
    let updated = client.update_priorities(update(1, one)).await.unwrap().into_inner();
    assert_eq!((updated.applied, updated.stale, updated.removed), (0, 1, 0));

    // The writer waits, is told for what, and goes on once the learner has spoken.
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.send(chunk(0, 1, 0, 0)).await;
    let Some(Reply::Waiting(waiting)) = writing.reply().await.unwrap() else { panic!("no word") };
    assert_eq!(waiting.what, "the learner has not said yet what this shard holds");
    assert!(waiting.seconds >= 1.0);
    assert_eq!(running.metric("replay_writers_waiting"), 1.0);
    client.grant(grant(1, allowance(7, 10))).await.unwrap();
    assert_eq!(writing.stored().await.items, 3);
    assert_eq!(running.metric("replay_writers_waiting"), 0.0);
    assert!(running.metric("replay_writer_wait_seconds_total") >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_waits_for_its_allowance_says_so_and_goes_on() {
    let running = Running::granted(5).await;
    let mut client = running.client();
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.write(chunk(0, 1, 0, 0)).await;
    // 3 of 5 are stored: the next chunk still fits, and goes beyond. The third does not.
    writing.write(chunk(0, 1, 0, 1)).await;
    writing.send(chunk(0, 1, 0, 2)).await;
    let Some(Reply::Waiting(waiting)) = writing.reply().await.unwrap() else { panic!("no word") };
    assert_eq!(waiting.what, "the learner grants no more inserts (allowance 5 reached)");
    let info = client.info(v1::InfoRequest {}).await.unwrap().into_inner().shard.unwrap();
    assert_eq!((info.writers_waiting, info.items, info.inserts_allowed), (1, 7, 5));

    // An allowance comes with a sample request as well. One that is too small changes nothing.
    let mut sampling = Sampling::open(&mut client).await;
    let with = |inserts| v1::SampleRequest { allowance: allowance(7, inserts), ..sample(1, vec![]) };
    sampling.ask(with(7)).await.unwrap();
    assert_eq!(running.metric("replay_writers_waiting"), 1.0);
    sampling.ask(with(8)).await.unwrap();
    assert_eq!(writing.stored().await.sequence, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_share_what_is_granted_and_each_gets_its_turn() {
    let running = Running::granted(0).await;
    let mut client = running.client();
    let mut writers = Vec::new();
    for actor in 0..20 {
        let writing = Writing::open(&mut client, hello(actor, 1)).await;
        writing.send(chunk(actor, 1, 0, 0)).await;
        writers.push(writing);
    }
    until(async || running.metric("replay_writers_waiting") == 20.0).await;
    // One after the other, then the rest at once.
    for inserts in 1..=4 {
        client.grant(grant(1, allowance(7, inserts * 3))).await.unwrap();
        until(async || running.metric("replay_writers_waiting") == 20.0 - inserts as f64).await;
        assert_eq!(running.metric("replay_inserts_total"), inserts as f64 * 3.0);
    }
    client.grant(grant(1, allowance(7, 1000))).await.unwrap();
    for writing in &mut writers {
        assert_eq!(writing.stored().await.items, 3);
    }
    assert_eq!(running.metric("replay_inserts_total"), 60.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_incarnation_of_an_actor_is_fenced() {
    let running = Running::granted(1000).await;
    let mut client = running.client();
    let mut old = Writing::open(&mut client, hello(4, 1)).await;
    old.write(chunk(4, 1, 0, 0)).await;
    let mut new = Writing::open(&mut client, hello(4, 2)).await;
    new.write(chunk(4, 2, 0, 0)).await;
    old.send(chunk(4, 1, 0, 1)).await;
    assert_status(&old.refusal().await, Code::FailedPrecondition, "incarnation 1 was replaced by 2");
    assert_eq!(running.refused("fenced"), 1.0);
    new.write(chunk(4, 2, 0, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_learner_is_refused_everywhere() {
    let running = Running::granted(1000).await;
    let mut client = running.client();
    let mut old = Sampling::open(&mut client).await;
    old.ask(sample(1, vec![])).await.unwrap();
    client.grant(grant(4, None)).await.unwrap();
    let text = "learner incarnation 1 was replaced by 4";
    assert_status(&old.ask(sample(1, vec![])).await.unwrap_err(), Code::FailedPrecondition, text);
    let mut late = Sampling::open(&mut client).await;
    assert_status(&late.ask(sample(1, vec![])).await.unwrap_err(), Code::FailedPrecondition, text);
    let late = client.update_priorities(update(1, vec![])).await.unwrap_err();
    assert_status(&late, Code::FailedPrecondition, text);
    let late = client.grant(grant(1, allowance(7, 5000))).await.unwrap_err();
    assert_status(&late, Code::FailedPrecondition, text);
    assert_eq!(state(&mut client).await.shard.unwrap().inserts_allowed, 1000);
    assert_eq!(running.refused("fenced"), 4.0);
    // A sample request makes a newer learner known too.
    let mut newer = Sampling::open(&mut client).await;
    newer.ask(sample(5, vec![])).await.unwrap();
    assert!(client.grant(grant(4, None)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_comes_back_ignores_the_allowance_of_its_former_life() {
    let directory = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}/s.sock", directory.path().display());
    let running = Running::start_at(&listen, 7).await;
    let mut client = running.client();
    client.grant(grant(1, allowance(7, 1000))).await.unwrap();
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.write(chunk(0, 1, 0, 0)).await;
    running.stop().await;
    assert_status(&writing.refusal().await, Code::Unavailable, "");

    let running = Running::start_at(&listen, 8).await;
    // The same client finds the way.
    let standing = client.grant(grant(1, allowance(7, 1000))).await.unwrap().into_inner().shard.unwrap();
    assert_eq!((standing.incarnation, standing.items, standing.inserts_allowed), (8, 0, 0));
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.send(chunk(0, 1, 0, 1)).await;
    let mut sampling = Sampling::open(&mut client).await;
    let stale = v1::SampleRequest { allowance: allowance(7, 1000), ..sample(1, vec![]) };
    assert_eq!(sampling.ask(stale).await.unwrap().shard.unwrap().inserts_allowed, 0);
    let Some(Reply::Waiting(_)) = writing.reply().await.unwrap() else { panic!("no word") };
    client.grant(grant(1, allowance(8, 1000))).await.unwrap();
    // What came before is lost with the former life, and said to be.
    assert_eq!(writing.stored().await.chunks_lost, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_of_the_run_every_writer_hears_of_it() {
    let running = Running::granted(3).await;
    let mut client = running.client();
    let mut idle = Writing::open(&mut client, hello(0, 1)).await;
    idle.write(chunk(0, 1, 0, 0)).await;
    let waiting = Writing::open(&mut client, hello(1, 1)).await;
    waiting.send(chunk(1, 1, 0, 0)).await;
    until(async || running.metric("replay_writers_waiting") == 1.0).await;
    client.grant(v1::GrantRequest { finished: true, ..grant(1, None) }).await.unwrap();
    let late = Writing::open(&mut client, hello(2, 1)).await;
    for mut writing in [idle, waiting, late] {
        assert_eq!(writing.reply().await.unwrap(), Some(Reply::Finished(v1::Finished {})));
        assert_eq!(writing.reply().await.unwrap(), None);
    }
    // It stays finished, and can still be drawn from.
    client.grant(grant(1, allowance(7, 100))).await.unwrap();
    assert_eq!(state(&mut client).await.shard.unwrap().items, 3);
    let mut sampling = Sampling::open(&mut client).await;
    assert_eq!(sampling.ask(sample(1, vec![0.1])).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_can_wait_for_inserts() {
    let running = Running::granted(1000).await;
    let mut client = running.client();
    let waiting = |until_inserts, wait_milliseconds| v1::GrantRequest {
        until_inserts,
        wait_milliseconds,
        ..grant(1, None)
    };
    let inserts =
        |reply: tonic::Response<v1::GrantReply>| reply.into_inner().shard.unwrap().counters.unwrap().inserts;
    // In vain.
    assert_eq!(inserts(client.grant(waiting(1, 20)).await.unwrap()), 0);
    // Not at all.
    assert_eq!(inserts(client.grant(waiting(1, 0)).await.unwrap()), 0);
    // Until they are there.
    let mut other = running.client();
    let granted = tokio::spawn(async move { other.grant(waiting(7, 10_000)).await });
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.write(chunk(0, 1, 0, 0)).await;
    writing.write(chunk(0, 1, 0, 1)).await;
    assert_eq!(inserts(patiently(granted).await.unwrap().unwrap()), 7);
    assert_eq!(inserts(client.grant(waiting(7, 10_000)).await.unwrap()), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_can_be_granted_again_but_not_changed() {
    let running = Running::granted(1000).await;
    let mut client = running.client();
    client.grant(grant(1, None)).await.unwrap();
    client.grant(v1::GrantRequest { table: None, ..grant(1, None) }).await.unwrap();
    let other = v1::Table { capacity: 2000, ..table() };
    let status = client.grant(v1::GrantRequest { table: Some(other), ..grant(1, None) }).await.unwrap_err();
    assert_status(&status, Code::FailedPrecondition, "table has capacity 1000, not 2000");
    let other = v1::Table { uniform: true, ..table() };
    let status = client.grant(v1::GrantRequest { table: Some(other), ..grant(1, None) }).await.unwrap_err();
    assert_status(&status, Code::FailedPrecondition, "sampler Proportional, not Uniform");
    assert_eq!(state(&mut client).await.table, Some(table()));
    assert_eq!(running.refused("table"), 2.0);
}
