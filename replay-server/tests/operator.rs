//! What people do with a shard while it works: change it, look into it, ask who waits.

mod common;

use common::*;
use proto::v1;
use tonic::Code;

/// A shard with chunks of one lane.
async fn filled(store: v1::Store, chunks: u64) -> (Running, Client) {
    let (running, mut client) = Running::granted_store(store, 1 << 20).await;
    write(&mut client, 0..chunks).await;
    (running, client)
}

async fn inspect(client: &mut Client, top: u32) -> v1::InspectReply {
    let request = v1::InspectRequest { table: "replay".into(), top };
    client.inspect(request).await.unwrap().into_inner()
}

/// First steps of all items, in order.
async fn firsts(client: &mut Client) -> Vec<u64> {
    let mut firsts = inspect(client, 1000).await.top.unwrap().first_steps;
    firsts.sort_unstable();
    firsts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_capacity_evicts_by_the_remover_and_a_larger_one_makes_room() {
    // The item at step n has priority n + 1.
    for (remover, kept) in [("fifo", 6..11), ("lifo", 0..5), ("lowest-priority", 6..11)] {
        let table = v1::Table { remover: remover.into(), ..table("replay") };
        let (running, mut client) = filled(store_of(vec![table]), 3).await;
        let reply = client.configure(configure(Some(5), None)).await.unwrap().into_inner();
        assert_eq!(reply.store.unwrap().tables[0].capacity, 5);
        assert_eq!(firsts(&mut client).await, kept.clone().collect::<Vec<_>>(), "{remover}");
        assert_eq!(running.metric("quiver_replay_removals_total{cause=\"capacity\"}"), 6.0);
        assert_eq!(
            (running.metric("quiver_replay_items"), running.metric("quiver_replay_capacity")),
            (5.0, 5.0)
        );
        let mass: f64 = kept.clone().map(|first| first as f64 + 1.0).sum();
        assert_eq!(table_status(&mut client).await.mass, mass);

        // More than there ever was room for.
        client.configure(configure(Some(3000), None)).await.unwrap();
        write(&mut client, 3..500).await;
        assert_eq!(table_status(&mut client).await.items, 5 + 497 * 4, "{remover}");
        let mut sampling = Sampling::open(&mut client).await;
        let drawn = sampling.draw(0, (0..100).map(|point| f64::from(point) / 100.0).collect()).await;
        drawn.items().for_each(|item| assert_frames(&item));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exponent_changes_probabilities_at_once() {
    let (_running, mut client) = filled(store(), 2).await;
    let mut sampling = Sampling::open(&mut client).await;
    for (exponent, expected) in [(0.0, 1.0 / 7.0), (1.0, 7.0 / 28.0), (2.0, 49.0 / 140.0)] {
        let reply = client.configure(configure(None, Some(exponent))).await.unwrap().into_inner();
        assert_eq!(reply.store.unwrap().tables[0].priority_exponent, exponent);
        let drawn = sampling.draw(0, vec![0.999]).await;
        let last = drawn.items().next().unwrap();
        assert_eq!((last.first_step(), last.priority().get()), (6, 7.0));
        assert!((last.probability() - expected).abs() < 1e-12, "{exponent}: {}", last.probability());
    }
    assert_eq!(table_status(&mut client).await.mass, 140.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_not_configured() {
    let unconfigured = Running::start().await;
    let early = unconfigured.client().configure(configure(Some(5), None)).await;
    refused(early, Code::Unavailable, "no learner has configured this shard yet");

    let (running, mut client) = filled(store(), 2).await;
    let before = state(&mut client).await;
    let other = v1::ConfigureRequest { table: "other".into(), ..configure(Some(5), None) };
    for (request, code, part) in [
        (configure(None, Some(f64::NAN)), Code::InvalidArgument, "priority_exponent must be finite"),
        (configure(None, Some(f64::INFINITY)), Code::InvalidArgument, "priority_exponent must be finite"),
        (configure(None, Some(-0.5)), Code::InvalidArgument, "priority_exponent must be finite"),
        // All of it is checked before any of it is done.
        (configure(Some(2), Some(-0.5)), Code::InvalidArgument, "priority_exponent must be finite"),
        (configure(Some(0), Some(0.5)), Code::InvalidArgument, "capacity must be from 1"),
        (configure(Some(u64::MAX), None), Code::InvalidArgument, "capacity must be from 1"),
        (configure(Some(1 << 30), None), Code::ResourceExhausted, "raise the shard's --memory-limit"),
        (other, Code::InvalidArgument, "no table \"other\""),
    ] {
        refused(client.configure(request).await, code, part);
    }
    assert_eq!(state(&mut client).await, before);
    assert_eq!((running.refused("invalid"), running.refused("limit")), (7.0, 1.0));
    // Nothing to change is fine.
    client.configure(configure(None, None)).await.unwrap();
    assert_eq!(state(&mut client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_configured_or_granted_later_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}/s.sock", directory.path().display());
    let data = directory.path().join("data");
    let mut expected = store_of(vec![table("replay"), table("other")]);
    let running = Running::start_at(&listen, Some(&data)).await;
    let mut client = running.client();
    grant_store(&mut client, expected.clone(), 1000).await;
    write(&mut client, 0..3).await;
    // By an operator, for a table by its name.
    (expected.tables[1].capacity, expected.tables[1].priority_exponent) = (2500, 0.25);
    let change = v1::ConfigureRequest { table: "other".into(), ..configure(Some(2500), Some(0.25)) };
    assert_eq!(client.configure(change).await.unwrap().into_inner().store, Some(expected.clone()));
    // By a learner that says something else than before.
    (expected.tables[0].capacity, expected.tables[0].priority_exponent) = (4, 2.0);
    client.grant(grant_with(expected.clone(), None)).await.unwrap();
    let before = state(&mut client).await;
    assert_eq!(before.store, Some(expected.clone()));
    assert_eq!(firsts(&mut client).await, [7, 8, 9, 10]);
    running.stop().await;

    let running = Running::start_at(&listen, Some(&data)).await;
    let after = state(&mut client).await;
    assert_eq!(after.store, Some(expected.clone()));
    assert_eq!(after.shard.unwrap().tables, before.shard.unwrap().tables);
    assert_eq!(firsts(&mut client).await, [7, 8, 9, 10]);
    assert_eq!(table_status(&mut client).await.mass, 64.0 + 81.0 + 100.0 + 121.0);
    // And the table that was made larger takes as many.
    grant_store(&mut client, expected, 1 << 20).await;
    let mut writing = Writing::open(&mut client, hello(1, 1)).await;
    for sequence in 0..650 {
        let mut chunk = chunk(1, 1, 0, sequence);
        chunk.item_tables = vec![1; chunk.item_firsts.len()].into();
        writing.write(chunk).await;
    }
    assert_eq!(state(&mut client).await.shard.unwrap().tables[1].items, 2500);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_callers_are_listed_with_cause_and_duration() {
    let running = Running::start().await;
    let mut client = running.client();
    let waiters =
        async || running.client().info(v1::InfoRequest {}).await.unwrap().into_inner().blocked_callers;
    assert_eq!(waiters().await, []);
    // For a learner.
    let mut actors = Vec::new();
    for actor in [3, 8] {
        let writing = Writing::open(&mut client, hello(actor, 1)).await;
        writing.send(chunk(actor, 1, 0, 0)).await;
        actors.push(writing);
        until(async || waiters().await.len() == actors.len()).await;
    }
    let [first, second] = &waiters().await[..] else { panic!("not two") };
    let what = "shard configuration";
    assert_eq!((first.caller.as_str(), first.blocked_on.as_str()), ("actor 3", what));
    assert_eq!((second.caller.as_str(), second.blocked_on.as_str()), ("actor 8", what));
    assert!(
        first.blocked_seconds > second.blocked_seconds && second.blocked_seconds >= 0.0,
        "{first:?} {second:?}"
    );
    until(async || waiters().await[0].blocked_seconds > 1.0).await;

    // For inserts to be granted. One of the two gets its chunk in.
    client.grant(grant(1, running.allowance(1))).await.unwrap();
    let held = "insert allowance (limit 1)";
    until(async || waiters().await.iter().map(|waiter| waiter.blocked_on.as_str()).eq([held])).await;
    let [waiter] = &waiters().await[..] else { panic!("not one") };
    assert!(["actor 3", "actor 8"].contains(&waiter.caller.as_str()), "{waiter:?}");

    // The learner for inserts that do not come.
    let request = v1::GrantRequest { until_inserts: 100, wait_milliseconds: 10_000, ..grant(1, None) };
    let mut learner = running.client();
    let granting = tokio::spawn(async move { learner.grant(request).await });
    until(async || running.metric("quiver_replay_grants_blocked") == 1.0).await;
    let all = waiters().await;
    assert_eq!(
        (all[1].caller.as_str(), all[1].blocked_on.as_str()),
        ("learner", "inserts by actors, up to 100 in total")
    );
    assert_eq!(all.len(), 2);
    // No caller waits any more.
    client.grant(grant(1, running.allowance(1000))).await.unwrap();
    write(&mut client, 0..40).await;
    patiently(granting).await.unwrap().unwrap();
    until(async || waiters().await.is_empty()).await;
    assert_eq!(running.metric("quiver_replay_grants_blocked"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn histograms_count_every_item_and_the_top_is_sorted() {
    let (running, mut client) = filled(store(), 50).await;
    let mut sampling = Sampling::open(&mut client).await;
    let drawn = sampling.draw(0, vec![0.3; 5]).await;
    let often = drawn.items().next().unwrap().key();
    let reply = client.update_priorities(update(1, updates(&[(often, 0.0)]))).await.unwrap().into_inner();
    assert_eq!(reply.applied, 1);
    let before = state(&mut client).await;

    let reply = inspect(&mut client, 10).await;
    for histogram in [&reply.priorities, &reply.ages_inserts, &reply.times_sampled] {
        let v1::Histogram { bounds, counts } = histogram.as_ref().unwrap();
        assert_eq!((counts.iter().sum::<u64>(), bounds.len()), (199, counts.len()));
        assert!(bounds.is_sorted() && bounds[0] == 0.0, "{bounds:?}");
    }
    let count = |histogram: &Option<v1::Histogram>, bound: f64| {
        let v1::Histogram { bounds, counts } = histogram.as_ref().unwrap();
        counts[bounds.iter().position(|&other| other == bound).unwrap()]
    };
    // Priorities are 1 to 199, but for the one that is 0 now.
    assert_eq!((count(&reply.priorities, 0.0), count(&reply.priorities, 256.0)), (1, 72));
    assert_eq!((count(&reply.times_sampled, 0.0), count(&reply.times_sampled, 8.0)), (198, 1));
    assert_eq!((count(&reply.ages_inserts, 0.0), count(&reply.ages_inserts, 2.0)), (1, 1));
    let top = batch(reply.top);
    let firsts: Vec<u64> = top.items().map(|item| item.first_step()).collect();
    assert_eq!(firsts, (189..199).rev().collect::<Vec<_>>());
    assert!(top.items().all(|item| item.frames().len() == 0 && item.steps().len() == 1));
    let probability = top.items().next().unwrap().probability();
    assert!((probability - 199.0 / table_status(&mut client).await.mass).abs() < 1e-12);

    // As many as there are, none, and too many.
    assert_eq!(inspect(&mut client, 1000).await.top.unwrap().slots.len(), 199);
    assert_eq!(inspect(&mut client, 0).await.top.unwrap().slots.len(), 0);
    let many = v1::InspectRequest { top: 1001, ..v1::InspectRequest::default() };
    refused(client.inspect(many).await, Code::InvalidArgument, "top is 1001");
    let other = v1::InspectRequest { table: "other".into(), top: 1 };
    refused(client.inspect(other).await, Code::InvalidArgument, "no table \"other\"");
    // Looking is not drawing.
    assert_eq!(state(&mut client).await, before);
    assert_eq!(running.metric("quiver_replay_samples_total"), 5.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_items_can_all_be_inspected() {
    let (_running, mut client) = Running::granted(1 << 20).await;
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    for sequence in 0..320 {
        let mut chunk = chunk(0, 1, 0, sequence);
        chunk.item_firsts =
            (sequence * STEPS..(sequence + 1) * STEPS).filter_map(|step| step.checked_sub(255)).collect();
        chunk.item_lengths = vec![255; chunk.item_firsts.len()].into();
        chunk.item_priorities = vec![1.0; chunk.item_firsts.len()];
        writing.write(chunk).await;
    }
    let top = batch(inspect(&mut client, 1000).await.top);
    assert_eq!(top.len(), 1000);
    assert!(top.items().all(|item| item.steps().len() == 255));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_item_can_be_looked_at_with_its_very_frames() {
    let (_running, mut client) = filled(store(), 3).await;
    let top = batch(inspect(&mut client, 11).await.top);
    for item in top.items() {
        let reply = client.get_item(look(item.key())).await.unwrap().into_inner();
        assert_eq!(reply.store, Some(store()));
        let looked = batch(reply.batch);
        let [seen] = &looked.items().collect::<Vec<_>>()[..] else { panic!("not one") };
        assert_eq!((seen.key(), seen.first_step()), (item.key(), item.first_step()));
        assert_eq!((seen.times_sampled(), seen.probability()), (0, item.probability()));
        assert_frames(seen);
    }
    // It is no longer there, never was, or is of another life.
    let oldest = top.items().last().unwrap().key();
    client.configure(configure(Some(5), None)).await.unwrap();
    let never = replay::ItemKey { slot: u32::MAX, ..oldest };
    let other = replay::ItemKey { incarnation: oldest.incarnation ^ 1, ..top.items().next().unwrap().key() };
    for key in [oldest, never, other] {
        refused(client.get_item(look(key)).await, Code::NotFound, "no such item");
    }
    let none = v1::GetItemRequest { key: None, ..look(oldest) };
    refused(client.get_item(none).await, Code::InvalidArgument, "key is missing");
    let table = v1::GetItemRequest { table: "other".into(), ..look(oldest) };
    refused(client.get_item(table).await, Code::InvalidArgument, "no table \"other\"");
}
