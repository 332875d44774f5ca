//! What a shard promises to those who keep to the protocol.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use proto::v1::insert_reply::Reply;
use proto::{PROTOCOL, v1};
use replay::{ItemKey, LaneKey};
use rpc::channel::Credentials;
use rpc::shard_entry::ShardEntry;
use rpc::writer::ChunkWriter;
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_inserted_is_drawn_as_it_was_and_can_be_given_new_priorities() {
    let (running, mut client) = Running::granted(1000).await;
    let mut writing = Writing::open(&mut client, hello(3, 9)).await;
    let stored = writing.write(chunk(3, 9, 0, 0)).await;
    assert_eq!((stored.sequence, stored.items, stored.duplicate), (0, 3, false));
    assert_eq!(writing.write(chunk(3, 9, 0, 1)).await.items, 4);

    // Priorities are 1 to 7, the exponent is 1: the point 0.999 draws the last item.
    let mut sampling = Sampling::open(&mut client).await;
    let reply = sampling.ask(sample(1, vec![0.999, 0.0])).await.unwrap();
    let drawn = batch(reply.batch);
    let [last, first] = &drawn.items().collect::<Vec<_>>()[..] else { panic!("{drawn:?}") };
    assert_eq!((last.first_step(), last.priority().get(), last.times_sampled()), (6, 7.0, 1));
    assert_eq!((last.probability(), first.probability()), (7.0 / 28.0, 1.0 / 28.0));
    assert_eq!((last.age_inserts(), first.age_inserts()), (0, 6));
    assert_eq!(last.lane(), LaneKey { actor: 3, incarnation: 9, lane: 0 });
    assert_eq!((last.frames().len(), first.frames().len()), (5, 2));
    assert_frames(last);
    assert_frames(first);
    let shard = reply.shard.unwrap();
    assert_eq!((shard.id.as_str(), shard.incarnation), ("shard-a", running.incarnation));
    assert_eq!((shard.tables[0].items, shard.tables[0].mass), (7, 28.0));
    assert_eq!((shard.tables[0].samples, shard.allowance), (2, 1000));

    let gone = ItemKey { slot: 3, generation: 999, ..last.key() };
    let mut request = updates(&[(last.key(), 107.0), (gone, 1.0)]);
    request.removed_slots = vec![first.key().slot, gone.slot];
    request.removed_generations = vec![first.key().generation, gone.generation];
    request.largest_priority = 500.0;
    let reply = client.update_priorities(update(1, request)).await.unwrap().into_inner();
    assert_eq!((reply.applied, reply.stale, reply.removed), (1, 1, 1));
    let table_status = reply.shard.unwrap().tables[0];
    assert_eq!((table_status.mass, table_status.items, table_status.largest_priority), (127.0, 6, 500.0));

    // The caller has nothing more to say, so the stream ends well.
    drop(writing.requests);
    assert!(patiently(writing.replies.message()).await.unwrap().is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_sent_again_is_acknowledged_as_a_duplicate_and_a_gap_is_counted() {
    let (running, mut client) = Running::granted(1000).await;
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
        assert_eq!(running.metric(&format!("quiver_replay_chunks_total{{result=\"{result}\"}}")), count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unconfigured_shard_blocks_writers_and_answers_info() {
    let running = Running::start().await;
    let mut client = running.client();
    let info = state(&mut client).await;
    assert_eq!((info.protocol, info.run.as_str(), info.store), (PROTOCOL, "", None));
    assert_eq!((info.shard.unwrap().tables, info.durable), (vec![], false));
    let mut sampling = Sampling::open(&mut client).await;
    assert!(sampling.draw(0, vec![0.5]).await.is_empty());
    let key = ItemKey { incarnation: running.incarnation, slot: 0, generation: 0 };
    let updated = client.update_priorities(update(1, updates(&[(key, 1.0)]))).await.unwrap().into_inner();
    assert_eq!((updated.applied, updated.stale, updated.removed), (0, 1, 0));

    // The writer waits, learns on what it is blocked, and continues after the grant.
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.send(chunk(0, 1, 0, 0)).await;
    let Some(Reply::Blocked(waiting)) = writing.reply().await.unwrap() else { panic!("no word") };
    assert_eq!(waiting.on, "shard configuration");
    assert!(waiting.seconds >= 1.0);
    assert_eq!(running.metric("quiver_replay_writers_blocked"), 1.0);
    client.grant(grant(1, running.allowance(10))).await.unwrap();
    assert_eq!(writing.stored().await.items, 3);
    assert_eq!(running.metric("quiver_replay_writers_blocked"), 0.0);
    assert!(running.metric("quiver_replay_writer_wait_seconds_total") >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_blocks_on_its_allowance_is_reported_and_continues() {
    let (running, mut client) = Running::granted(5).await;
    // After the first, 3 of 5 are stored: the second chunk still fits, and goes beyond. The third does not.
    let mut writing = write(&mut client, 0..2).await;
    writing.send(chunk(0, 1, 0, 2)).await;
    let Some(Reply::Blocked(waiting)) = writing.reply().await.unwrap() else { panic!("no word") };
    assert_eq!(waiting.on, "insert allowance (limit 5)");
    let shard = client.info(v1::InfoRequest {}).await.unwrap().into_inner().shard.unwrap();
    assert_eq!((shard.writers_blocked, shard.tables[0].items, shard.allowance), (1, 7, 5));

    // An allowance comes with a sample request as well. One that is too small changes nothing.
    let mut sampling = Sampling::open(&mut client).await;
    let with = |inserts| v1::SampleRequest { allowance: running.allowance(inserts), ..sample(1, vec![]) };
    sampling.ask(with(7)).await.unwrap();
    assert_eq!(running.metric("quiver_replay_writers_blocked"), 1.0);
    sampling.ask(with(8)).await.unwrap();
    assert_eq!(writing.stored().await.sequence, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_share_what_is_granted_and_each_gets_its_turn() {
    let (running, mut client) = Running::granted(0).await;
    let mut writers = Vec::new();
    for actor in 0..20 {
        let writing = Writing::open(&mut client, hello(actor, 1)).await;
        writing.send(chunk(actor, 1, 0, 0)).await;
        writers.push(writing);
    }
    until(async || running.metric("quiver_replay_writers_blocked") == 20.0).await;
    // One after the other, then the rest at once.
    for inserts in 1..=4 {
        client.grant(grant(1, running.allowance(inserts * 3))).await.unwrap();
        until(async || running.metric("quiver_replay_writers_blocked") == 20.0 - inserts as f64).await;
        assert_eq!(running.metric("quiver_replay_inserts_total"), inserts as f64 * 3.0);
    }
    client.grant(grant(1, running.allowance(1000))).await.unwrap();
    for writing in &mut writers {
        assert_eq!(writing.stored().await.items, 3);
    }
    assert_eq!(running.metric("quiver_replay_inserts_total"), 60.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_incarnation_of_an_actor_is_fenced() {
    let (running, mut client) = Running::granted(1000).await;
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
    let (running, mut client) = Running::granted(1000).await;
    let mut old = Sampling::open(&mut client).await;
    old.ask(sample(1, vec![])).await.unwrap();
    client.grant(grant(4, None)).await.unwrap();
    let text = "learner incarnation 1 was replaced by 4";
    refused(old.ask(sample(1, vec![])).await, Code::FailedPrecondition, text);
    refused(Sampling::once(&mut client, sample(1, vec![])).await, Code::FailedPrecondition, text);
    refused(client.update_priorities(update(1, updates(&[]))).await, Code::FailedPrecondition, text);
    refused(client.grant(grant(1, running.allowance(5000))).await, Code::FailedPrecondition, text);
    assert_eq!(state(&mut client).await.shard.unwrap().allowance, 1000);
    assert_eq!(running.refused("fenced"), 4.0);
    // A sample request makes a newer learner known too.
    Sampling::once(&mut client, sample(5, vec![])).await.unwrap();
    assert!(client.grant(grant(4, None)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_comes_back_ignores_the_allowance_of_its_former_life() {
    let directory = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}/s.sock", directory.path().display());
    let former = Running::start_at(&listen, None).await;
    let stale = former.allowance(1000);
    let mut client = former.client();
    client.grant(grant(1, stale)).await.unwrap();
    let writing = write(&mut client, 0..1).await;
    former.stop().await;
    assert_status(&writing.refusal().await, Code::Unavailable, "");

    // Without a data directory it comes back as somebody else.
    let running = Running::start_at(&listen, None).await;
    let shard = client.grant(grant(1, stale)).await.unwrap().into_inner().shard.unwrap();
    assert_eq!((shard.incarnation, shard.allowance), (running.incarnation, 0));
    assert_eq!(shard.tables[0].items, 0);
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    writing.send(chunk(0, 1, 0, 1)).await;
    let mut sampling = Sampling::open(&mut client).await;
    let request = v1::SampleRequest { allowance: stale, ..sample(1, vec![]) };
    assert_eq!(sampling.ask(request).await.unwrap().shard.unwrap().allowance, 0);
    let Some(Reply::Blocked(_)) = writing.reply().await.unwrap() else { panic!("no word") };
    client.grant(grant(1, running.allowance(1000))).await.unwrap();
    // What came before is lost with the former life, and said to be.
    assert_eq!(writing.stored().await.chunks_lost, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_of_the_run_every_writer_hears_of_it() {
    let (running, mut client) = Running::granted(3).await;
    let idle = write(&mut client, 0..1).await;
    let waiting = Writing::open(&mut client, hello(1, 1)).await;
    waiting.send(chunk(1, 1, 0, 0)).await;
    until(async || running.metric("quiver_replay_writers_blocked") == 1.0).await;
    client.grant(v1::GrantRequest { finished: true, ..grant(1, None) }).await.unwrap();
    let late = Writing::open(&mut client, hello(2, 1)).await;
    for mut writing in [idle, waiting, late] {
        assert_eq!(writing.reply().await.unwrap(), Some(Reply::Finished(v1::Finished {})));
        assert_eq!(writing.reply().await.unwrap(), None);
    }
    // It stays finished, and can still be drawn from.
    client.grant(grant(1, running.allowance(100))).await.unwrap();
    assert_eq!(table_status(&mut client).await.items, 3);
    let mut sampling = Sampling::open(&mut client).await;
    assert_eq!(sampling.draw(0, vec![0.1]).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_can_wait_for_inserts() {
    let (running, mut client) = Running::granted(1000).await;
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
    write(&mut client, 0..2).await;
    assert_eq!(inserts(patiently(granted).await.unwrap().unwrap()), 7);
    assert_eq!(inserts(client.grant(waiting(7, 10_000)).await.unwrap()), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_can_be_granted_again_but_what_it_holds_for_ever_not_changed() {
    let (running, mut client) = Running::granted(1000).await;
    client.grant(grant(1, None)).await.unwrap();
    client.grant(v1::GrantRequest { store: None, ..grant(1, None) }).await.unwrap();
    type Change = fn(&mut v1::Store);
    let changes: [(Change, &str); 11] = [
        (|store| store.bytes_max += 64, "bytes_max 1048576, not 1048640"),
        (|store| store.stack = 2, "stack 4, not 2"),
        (|store| store.frame_bytes = 100, "frame_bytes 64, not 100"),
        (|store| store.codec = "delta".into(), "codec none, not delta"),
        (|store| store.actions = 5, "actions 4, not 5"),
        (|store| store.tables.push(table("other")), "number of tables 1, not 2"),
        (|store| store.tables[0].name = "other".into(), "table replay, not other"),
        (|store| store.tables[0].sampler = "uniform".into(), "sampler proportional, not uniform"),
        (|store| store.tables[0].remover = "lifo".into(), "remover fifo, not lifo"),
        (|store| store.tables[0].max_times_sampled = 1, "max_times_sampled 0, not 1"),
        (|store| store.tables[0].priority_constant = 0.5, "priority_constant 0, not 0.5"),
    ];
    for (change, part) in changes {
        let mut other = store();
        change(&mut other);
        let request = grant_with(other, running.allowance(9999));
        refused(client.grant(request).await, Code::FailedPrecondition, part);
    }
    let info = state(&mut client).await;
    assert_eq!((info.store, info.shard.unwrap().allowance), (Some(store()), 1000));
    assert_eq!(running.refused("table"), changes.len() as f64);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_over_the_same_frames_are_drawn_from_each_in_its_own_way() {
    let alike = v1::Table { sampler: "uniform".into(), ..table("alike") };
    let small = v1::Table { capacity: 3, ..table("by-priority") };
    let (running, mut client) = Running::granted_store(store_of(vec![alike, small]), 1000).await;
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    for sequence in 0..2 {
        let both = chunk_for(LaneKey { actor: 0, incarnation: 1, lane: 0 }, sequence, 2);
        let stored = writing.write(proto::convert::chunk_message(both)).await;
        assert_eq!(stored.items, [6, 8][sequence as usize]);
    }
    let mut sampling = Sampling::open(&mut client).await;
    let points: Vec<f64> = (0..70).map(|point| f64::from(point) / 70.0).collect();
    let mut counts = [0; 7];
    let drawn = sampling.draw(0, points).await;
    for item in drawn.items() {
        assert_frames(&item);
        assert!((item.probability() - 1.0 / 7.0).abs() < 1e-12);
        counts[item.first_step() as usize] += 1;
    }
    assert_eq!(counts, [10; 7]);
    // The other one keeps the newest three, of priorities 5 to 7.
    let drawn = sampling.draw(1, vec![0.0, 0.4, 0.999]).await;
    let mut found: Vec<_> = drawn.items().map(|item| (item.first_step(), item.probability())).collect();
    found.sort_by_key(|&(first, _)| first);
    assert_eq!(found, [(4, 5.0 / 18.0), (5, 6.0 / 18.0), (6, 7.0 / 18.0)]);
    drawn.items().for_each(|item| assert_frames(&item));
    // Each has priorities of its own.
    let key = drawn.items().find(|item| item.first_step() == 4).unwrap().key();
    let request = v1::Updates { table: 1, ..updates(&[(key, 87.0)]) };
    assert_eq!(client.update_priorities(update(1, request)).await.unwrap().into_inner().applied, 1);
    let shard = state(&mut client).await.shard.unwrap();
    let [alike, small] = &shard.tables[..] else { panic!("{shard:?}") };
    assert_eq!((alike.items, alike.mass, alike.samples, alike.largest_priority), (7, 7.0, 70, 7.0));
    assert_eq!((small.items, small.mass, small.samples, small.largest_priority), (3, 100.0, 3, 87.0));
    assert_eq!((small.inserts, small.evicted, shard.counters.unwrap().inserts), (7, 4, 14));
    assert_eq!(running.metric("quiver_replay_items"), 10.0);
    let other = v1::SampleRequest { table: 2, ..sample(1, vec![0.5]) };
    refused(sampling.ask(other).await, Code::InvalidArgument, "no table number 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_uses_items_up_is_a_queue() {
    let queue = v1::Table { sampler: "fifo".into(), max_times_sampled: 1, ..table("queue") };
    let (running, mut client) = Running::granted_store(store_of(vec![queue]), 1000).await;
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    let mut sampling = Sampling::open(&mut client).await;
    let mut taken = Vec::new();
    for sequence in 0..30 {
        writing.write(chunk(0, 1, 0, sequence)).await;
        // Where to draw does not matter. Sometimes fewer are there than were asked for.
        let asked = [1, 3, 9][sequence as usize % 3];
        let drawn = sampling.draw(0, vec![0.7; asked]).await;
        assert!(drawn.items().all(|item| item.times_sampled() == 1 && item.probability() == 1.0));
        drawn.items().for_each(|item| assert_frames(&item));
        taken.extend(drawn.items().map(|item| item.first_step()));
    }
    loop {
        let drawn = sampling.draw(0, vec![0.0; 7]).await;
        taken.extend(drawn.items().map(|item| item.first_step()));
        if drawn.is_empty() {
            break;
        }
    }
    // Each once, in the order of insertion.
    assert_eq!(taken, (0..119).collect::<Vec<_>>());
    let table = table_status(&mut client).await;
    assert_eq!((table.items, table.used_up, table.samples), (0, 119, 119));
    assert_eq!(running.metric("quiver_replay_removals_total{cause=\"used_up\"}"), 119.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_that_come_with_a_request_are_applied_before_it_draws() {
    let (running, mut client) = Running::granted(1000).await;
    let _writing = write(&mut client, 0..1).await;
    let mut sampling = Sampling::open(&mut client).await;
    // Priorities are 1, 2 and 3.
    let drawn = sampling.draw(0, vec![0.0, 0.4, 0.9]).await;
    let keys: Vec<ItemKey> = drawn.items().map(|item| item.key()).collect();
    let gone = ItemKey { generation: 77, ..keys[0] };
    let mut changed = updates(&[(keys[0], 95.0), (gone, 5.0), (keys[0], 94.0)]);
    // One that can't be decoded goes as well, and a larger priority is known elsewhere.
    (changed.removed_slots, changed.removed_generations) = (vec![keys[1].slot], vec![keys[1].generation]);
    changed.largest_priority = 500.0;
    let request = v1::SampleRequest { updates: Some(changed), ..sample(1, vec![0.5; 4]) };
    let reply = sampling.ask(request).await.unwrap();
    assert_eq!((reply.applied, reply.stale), (2, 1));
    for item in batch(reply.batch).items() {
        assert_eq!((item.key(), item.priority().get(), item.probability()), (keys[0], 94.0, 94.0 / 97.0));
    }
    let table = reply.shard.unwrap().tables[0];
    assert_eq!((table.items, table.mass, table.largest_priority), (2, 97.0, 500.0));
    assert_eq!((table.updates, table.stale_updates, table.removed_items), (2, 1, 1));
    for (result, count) in [("applied", 2.0), ("stale", 1.0), ("removed", 1.0)] {
        assert_eq!(
            running.metric(&format!("quiver_replay_priority_updates_total{{result=\"{result}\"}}")),
            count
        );
    }
    // Without points they are applied all the same, and those of a former life are stale.
    let former = updates(&[(ItemKey { incarnation: running.incarnation ^ 1, ..keys[2] }, 9.0)]);
    let reply = sampling.ask(v1::SampleRequest { updates: Some(former), ..sample(1, vec![]) }).await.unwrap();
    assert_eq!((reply.applied, reply.stale), (0, 1));
    let last = updates(&[(keys[2], 6.0)]);
    let reply = sampling.ask(v1::SampleRequest { updates: Some(last), ..sample(1, vec![]) }).await.unwrap();
    assert_eq!((reply.applied, reply.shard.unwrap().tables[0].mass), (1, 100.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_counts_chunks_and_steps_until_they_are_acknowledged() {
    let (running, mut client) = Running::granted(0).await;
    let place = ShardEntry::fixed(running.address.clone());
    let writer = ChunkWriter::spawn(0, place, Credentials::none(), hello(3, 9), 2, 0);
    let mut steps = 0;
    for sequence in 0..2 {
        let chunk = chunk_for(LaneKey { actor: 3, incarnation: 9, lane: 0 }, sequence, 1);
        steps += proto::agent_steps(&proto::convert::chunk_message(chunk.clone()));
        writer.send(chunk).await.unwrap();
    }
    assert!(steps > 2, "{steps}");
    let blocked = tokio::time::timeout(Duration::from_millis(200), writer.flush()).await;
    assert!(blocked.is_err(), "nothing is acknowledged without an allowance");
    assert_eq!((writer.in_flight(), writer.steps_in_flight()), (2, steps));
    client.grant(grant(1, running.allowance(100))).await.unwrap();
    patiently(writer.flush()).await.unwrap();
    assert_eq!((writer.in_flight(), writer.steps_in_flight()), (0, 0));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_finds_another_shard_pauses_longer_each_time_and_loses_nothing() {
    let (running, _) = Running::granted(1000).await;
    let name = Arc::new(Mutex::new("another".to_owned()));
    let (address, id) = (running.address.clone(), name.clone());
    let place =
        move || Some(ShardEntry { id: id.lock().unwrap().clone(), ..ShardEntry::unnamed(address.clone()) });
    let started = Instant::now();
    let writer = ChunkWriter::spawn(0, place, Credentials::none(), hello(3, 9), 2, 0);
    writer.send(chunk_for(LaneKey { actor: 3, incarnation: 9, lane: 0 }, 0, 1)).await.unwrap();
    let tries = || writer.sent().reconnects.load(Ordering::Relaxed);
    until(async || tries() >= 5).await;
    // The pauses before these tries last 0.025, 0.05, 0.1, 0.2 and 0.4 s at the least.
    assert!(started.elapsed() >= Duration::from_millis(770), "{:?}", started.elapsed());
    "shard-a".clone_into(&mut name.lock().unwrap());
    patiently(writer.flush()).await.unwrap();
    assert_eq!(writer.sent().chunks.load(Ordering::Relaxed), 1);
    running.stop().await;
}
