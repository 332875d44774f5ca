//! When files reach the disk.

use crate::common::process::Process;
use crate::common::*;

/// A shard with a store, and a writer.
async fn begin(fsync: &str) -> (Process, tempfile::TempDir, Writing) {
    let data = tempfile::tempdir().unwrap();
    let process = Process::start(None, &["--data-dir", data.path().to_str().unwrap(), "--fsync", fsync]);
    let mut client = client(&process.address);
    grant_inserts(&mut client, 1000).await;
    let writing = Writing::open(&mut client, hello(0, 1)).await;
    (process, data, writing)
}

#[tokio::test(flavor = "multi_thread")]
async fn always_means_before_each_acknowledgement() {
    let (process, _data, mut writing) = begin("always").await;
    let syncs = || process.metric("quiver_replay_syncs_total");
    for sequence in 0..20 {
        let before = syncs();
        writing.write(chunk(0, 1, 0, sequence)).await;
        assert!(syncs() > before, "chunk {sequence} was acknowledged without a visit to the disk");
    }
    assert_eq!(process.metric("quiver_replay_sync_seconds_count"), syncs());
    let mut client = client(&process.address);
    let mut sampling = Sampling::open(&mut client).await;
    let before = syncs();
    let drawn = sampling.draw(0, vec![0.5]).await;
    assert!(syncs() > before, "a draw was answered without a visit to the disk");
    let before = syncs();
    let key = drawn.items().next().unwrap().key();
    client.update_priorities(update(1, updates(&[(key, 5.0)]))).await.unwrap();
    assert!(syncs() > before, "a priority was acknowledged without a visit to the disk");
    // Looking changes nothing.
    let before = syncs();
    state(&mut client).await;
    client.get_item(look(key)).await.unwrap();
    assert_eq!(syncs(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_share_a_visit_to_the_disk() {
    let (process, _data, _writing) = begin("always").await;
    let before = process.metric("quiver_replay_syncs_total");
    let mut writers = Vec::new();
    for actor in 1..=32 {
        let mut client = client(&process.address);
        let writing = Writing::open(&mut client, hello(actor, 1)).await;
        writing.send(chunk(actor, 1, 0, 0)).await;
        writers.push(writing);
    }
    for writing in &mut writers {
        assert_eq!(writing.stored().await.items, 3);
    }
    let syncs = process.metric("quiver_replay_syncs_total") - before;
    println!("{syncs} visits to the disk for 32 chunks");
    assert!((1.0..=32.0).contains(&syncs), "{syncs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn now_and_then_means_again_and_again_and_none_means_never() {
    let (process, _data, mut writing) = begin("0.5").await;
    writing.write(chunk(0, 1, 0, 0)).await;
    let before = process.metric("quiver_replay_syncs_total");
    until(async || process.metric("quiver_replay_syncs_total") >= before + 2.0).await;
    assert!(!process.log().contains("flush to disk failed"), "{}", process.log());

    let (process, _data, mut writing) = begin("none").await;
    for sequence in 0..20 {
        writing.write(chunk(0, 1, 0, sequence)).await;
    }
    assert_eq!(process.metric("quiver_replay_syncs_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_flush_of_a_former_process_is_reported_as_damage_once() {
    let (mut process, data, mut writing) = begin("none").await;
    writing.write(chunk(0, 1, 0, 0)).await;
    let before = state(&mut client(&process.address)).await.shard.unwrap();
    process.kill();
    // No disk fails on request: this is what the process leaves when a flush does.
    let marker = data.path().join("slot-0").join("flush-failed");
    std::fs::write(&marker, "changes lost?   ").unwrap();
    let flags = ["--data-dir", data.path().to_str().unwrap()];
    let figures = |process: &Process| {
        let time = process.metric("quiver_replay_flush_failed_time_seconds");
        (process.metric("quiver_replay_damaged_total{kind=\"flush\"}"), time)
    };
    let mut process = Process::start(None, &flags);
    assert!(process.log().contains("an earlier flush to disk failed, writing all files again"));
    assert!(process.log().contains("recovery completed with data loss"), "{}", process.log());
    let (failures, time) = figures(&process);
    assert!(failures == 1.0 && time > 0.0);
    let info = state(&mut client(&process.address)).await;
    assert!(info.recovered.unwrap().failed_flush);
    let shard = info.shard.unwrap();
    assert_ne!(shard.incarnation, before.incarnation, "keys may be of what is lost");
    assert_eq!(shard.tables[0].items, before.tables[0].items, "what can be read is kept");
    process.kill();

    let process = Process::start(None, &flags);
    assert_eq!(figures(&process), (0.0, time), "repaired, and the alert still knows when");
    assert_eq!(state(&mut client(&process.address)).await.shard.unwrap().incarnation, shard.incarnation);
}
