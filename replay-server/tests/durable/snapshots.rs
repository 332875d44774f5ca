//! A shard carried elsewhere while it works.

use std::fs;
use std::path::{Path, PathBuf};

use proto::v1;
use replay::ItemKey;
use tonic::Code;

use super::ledger::{Actor, expected, finish, firsts, for_each_lane};
use crate::common::process::Process;
use crate::common::*;

const ACTORS: u32 = 3;

fn uniform_store() -> v1::Store {
    let table = v1::Table { capacity: 1 << 16, sampler: "uniform".into(), ..table("replay") };
    v1::Store { bytes_max: 32 << 20, ..store_of(vec![table]) }
}

/// A shard with a data directory in `place`, configured to hold `store`.
async fn begin(place: &Path, store: v1::Store) -> (Process, v1::ShardStatus) {
    let process = Process::start(None, &["--data-dir", place.to_str().unwrap()]);
    let mut client = client(&process.address);
    let shard = grant_store(&mut client, store, 1 << 16).await;
    (process, shard)
}

/// All pieces of a snapshot in a file.
async fn take(client: &mut Client, file: PathBuf) -> PathBuf {
    let mut pieces = patiently(client.snapshot(v1::SnapshotRequest {})).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    while let Some(reply) = patiently(pieces.message()).await.unwrap() {
        bytes.extend_from_slice(&reply.piece);
    }
    fs::write(&file, bytes).unwrap();
    file
}

fn restored(data: Option<&Path>, snapshot: &Path) -> Process {
    let snapshot = snapshot.to_str().unwrap();
    match data {
        Some(data) => Process::start(None, &["--data-dir", data.to_str().unwrap(), "--restore", snapshot]),
        None => Process::start(None, &["--restore", snapshot]),
    }
}

/// All that is to be known of each item, by where it came from.
async fn contents(process: &Process) -> Vec<(u32, u32, u64, f64, u32, u64)> {
    let mut client = client(&process.address);
    let top = v1::InspectRequest { top: 1000, ..v1::InspectRequest::default() };
    let top = batch(client.inspect(top).await.unwrap().into_inner().top);
    let known = |item: proto::BatchItem<'_>| {
        let lane = item.lane();
        let (priority, times_sampled) = (item.priority().get(), item.times_sampled());
        (lane.actor, lane.lane, item.first_step(), priority, times_sampled, item.age_inserts())
    };
    let mut all: Vec<_> = top.items().map(known).collect();
    all.sort_by_key(|&(actor, lane, first, ..)| (actor, lane, first));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_taken_while_writers_write_holds_what_was_there_and_nothing_twice() {
    let place = tempfile::tempdir().unwrap();
    let (process, shard) = begin(&place.path().join("data"), uniform_store()).await;
    let mut client = client(&process.address);
    let actors: Vec<Actor> = (0..ACTORS).map(|actor| Actor::start(&process.address, actor, 1)).collect();
    let acknowledged = || actors.iter().map(Actor::acknowledged).collect::<Vec<_>>();
    // Some megabytes, so that it takes several pieces.
    until(async || acknowledged().iter().all(|&chunks| chunks > 1000)).await;
    let least = acknowledged();
    let snapshot = take(&mut client, place.path().join("snapshot")).await;
    assert!(fs::metadata(&snapshot).unwrap().len() > 2 << 20);
    let (handed, _) = finish(actors).await;

    let copy = restored(Some(&place.path().join("elsewhere")), &snapshot);
    let mut client = crate::common::client(&copy.address);
    let info = state(&mut client).await;
    let copied = info.shard.unwrap();
    assert_eq!((info.run.as_str(), info.store), (RUN, Some(uniform_store())));
    // It takes the other one's place, and keys given out since mean nothing.
    assert_eq!(copied.id, shard.id);
    assert_ne!(copied.incarnation, shard.incarnation);
    client.grant(v1::GrantRequest { store: None, ..grant(1, None) }).await.unwrap();
    let all = firsts(&all_items(&mut client, 0).await);
    for_each_lane(&handed, |(actor, lane), at_most| {
        let there = &all[&(actor, lane)];
        let at_least = expected(lane, least[actor as usize]).end as usize;
        assert!(there.len() >= at_least, "actor {actor} lane {lane}: {} of {at_least}", there.len());
        assert!(at_most.take(there.len()).eq(there.iter().copied()), "actor {actor} lane {lane}");
    });

    // It survives its process like any other.
    let items = copied.tables[0].items;
    drop(copy);
    let data = place.path().join("elsewhere");
    let copy = Process::start(None, &["--data-dir", data.to_str().unwrap()]);
    let mut client = crate::common::client(&copy.address);
    let again = state(&mut client).await.shard.unwrap();
    assert_eq!((again.id, again.incarnation, again.tables[0].items), (copied.id, copied.incarnation, items));
    // Writers continue where the snapshot leaves them: what it has is a duplicate, what follows is new.
    let request = grant(1, allowance(again.incarnation, 1 << 16));
    client.grant(v1::GrantRequest { store: None, ..request }).await.unwrap();
    let chunks = all[&(0, 0)].len().div_ceil(STEPS as usize) as u64;
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    assert!(writing.write(chunk(0, 1, 0, chunks - 1)).await.duplicate);
    let next = writing.write(chunk(0, 1, 0, chunks)).await;
    assert_eq!((next.duplicate, next.items, next.chunks_lost), (false, 4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_quiet_shard_is_that_shard_with_priorities_and_draws() {
    let place = tempfile::tempdir().unwrap();
    let (process, _) = begin(&place.path().join("data"), store()).await;
    let mut client = client(&process.address);
    let _writing = write(&mut client, 0..20).await;
    let mut sampling = Sampling::open(&mut client).await;
    let drawn = sampling.draw(0, vec![0.1, 0.5, 0.9, 0.9]).await;
    let keys: Vec<ItemKey> = drawn.items().map(|item| item.key()).collect();
    let request = update(1, updates(&[(keys[0], 1234.5), (keys[1], 0.25)]));
    client.update_priorities(request).await.unwrap();
    let snapshot = take(&mut client, place.path().join("snapshot")).await;
    let original = contents(&process).await;
    assert_eq!(original.len(), 79);

    // In a directory, and in the memory of a process.
    for data in [Some(place.path().join("elsewhere")), None] {
        let copy = restored(data.as_deref(), &snapshot);
        assert_eq!(contents(&copy).await, original);
        let mut client = crate::common::client(&copy.address);
        let reply = client.update_priorities(update(1, updates(&[(keys[0], 1.0)]))).await.unwrap();
        assert_eq!((reply.get_ref().applied, reply.get_ref().stale), (0, 1));
        let info = state(&mut client).await;
        assert_eq!(info.durable, data.is_some());
        assert_eq!(info.shard.unwrap().tables[0].largest_priority, 1234.5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_goes_into_an_empty_place_only_and_only_if_it_is_one() {
    let place = tempfile::tempdir().unwrap();
    let occupied = place.path().join("data");
    let (process, shard) = begin(&occupied, store()).await;
    let mut client = client(&process.address);
    let _writing = write(&mut client, 0..5).await;
    let snapshot = take(&mut client, place.path().join("snapshot")).await;
    let original = contents(&process).await;
    drop(process);
    let flags = |data: &Path, snapshot: &Path| {
        ["--data-dir", data.to_str().unwrap(), "--restore", snapshot.to_str().unwrap()].map(str::to_owned)
    };
    let fails = |data: &Path, snapshot: &Path| {
        let said = Process::fails(&flags(data, snapshot).each_ref().map(String::as_str));
        assert!(said.contains("--restore"), "{said}");
        said
    };
    let said = fails(&occupied, &snapshot);
    assert!(said.contains("already holds the replay of run \"run-1\""), "{said}");

    let empty = place.path().join("empty");
    let whole = fs::read(&snapshot).unwrap();
    let spoilt = place.path().join("spoilt");
    let spoil = |bytes: &[u8]| fs::write(&spoilt, bytes).unwrap();
    spoil(b"garbage");
    assert!(fails(&empty, &spoilt).contains("not a snapshot"), "garbage");
    spoil(&[7; 100_000]);
    assert!(fails(&empty, &spoilt).contains("not a snapshot"), "more garbage");
    spoil(&whole[..whole.len() - 10]);
    assert!(fails(&empty, &spoilt).contains("truncated"), "the end is missing");
    spoil(&whole[..whole.len() / 2]);
    assert!(fails(&empty, &spoilt).contains("truncated"), "half is missing");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    spoil(&flipped);
    assert!(fails(&empty, &spoilt).contains("damaged"), "a bit is another");
    spoil(&[&whole[..], b"x"].concat());
    assert!(fails(&empty, &spoilt).contains("damaged"), "a byte more");
    let missing = place.path().join("missing");
    assert!(fails(&empty, &missing).contains("No such file"), "there is none");

    // All that in vain: the place is still empty, and no process holds it.
    let process = Process::start(None, &["--data-dir", empty.to_str().unwrap()]);
    let info = state(&mut crate::common::client(&process.address)).await;
    assert_eq!((info.run.as_str(), info.store), ("", None));
    assert_ne!(info.shard.unwrap().id, shard.id);
    drop(process);
    let copy = restored(Some(&empty), &snapshot);
    assert_eq!(contents(&copy).await, original);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_snapshot_is_taken_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let store = v1::Store { bytes_max: 64 << 20, frame_bytes: 1 << 18, ..store() };
    let (process, _) = begin(&place.path().join("data"), store).await;
    let mut client = client(&process.address);
    let hello = v1::InsertHello { frame_bytes: 1 << 18, ..hello(0, 1) };
    let mut writing = Writing::open(&mut client, hello).await;
    // More than any buffer on the way takes.
    for sequence in 0..50 {
        let mut chunk = chunk(0, 1, 0, sequence);
        set_frames(&mut chunk, &vec![vec![sequence as u8; 1 << 18]; STEPS as usize]);
        writing.write(chunk).await;
    }
    let mut slow = client.snapshot(v1::SnapshotRequest {}).await.unwrap().into_inner();
    patiently(slow.message()).await.unwrap();
    let mut other = crate::common::client(&process.address);
    let second = other.snapshot(v1::SnapshotRequest {}).await;
    refused(second, Code::Unavailable, "another snapshot is in progress");
    // It blocks no other caller.
    assert_eq!(table_status(&mut client).await.items, 199);
    drop(slow);
    until(async || other.snapshot(v1::SnapshotRequest {}).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_holds_nothing_has_no_snapshot() {
    let process = Process::start(None, &[]);
    let mut client = client(&process.address);
    let mut pieces = client.snapshot(v1::SnapshotRequest {}).await.unwrap().into_inner();
    let piece = patiently(pieces.message()).await;
    refused(piece, Code::Unavailable, "no learner has configured this shard yet");
}
