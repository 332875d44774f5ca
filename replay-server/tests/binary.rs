//! The real binary: how it starts, what it shows, how it ends, and how much memory strangers can make it take.

mod common;

use std::time::Duration;

use common::process::Process;
use common::raw_http2::Raw;
use common::*;
use proto::v1::insert_reply::Reply;
use proto::{limits, v1};
use tonic::Code;

const LOOPBACK: Option<&str> = Some("127.0.0.1:0");

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_its_health_and_its_metrics_and_ends_when_asked() {
    let mut process = Process::start(None, &["--id", "blue"]);
    let waiting = "waiting for a learner to configure this shard\n";
    until(async || process.page("/healthz").1 == waiting).await;
    let (head, _) = process.page("/healthz");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");

    let mut client = client(&process.address);
    let shard = grant_store(&mut client, store(), 100).await;
    assert_eq!(shard.id, "blue");
    assert_ne!(shard.incarnation, 0);
    until(async || process.page("/healthz").1 == "ok\n").await;
    let writing = write(&mut client, 0..1).await;
    assert_eq!(process.metric("quiver_replay_items"), 3.0);
    assert_eq!(process.metric("quiver_replay_capacity"), 1000.0);
    assert_eq!(process.metric("quiver_replay_writers_connected"), 1.0);
    assert_eq!(process.metric("quiver_replay_insert_seconds_count"), 1.0);
    assert_eq!(process.metric("quiver_rpc_connections"), 1.0);
    assert!(process.metric("process_resident_memory_bytes") > 1e6);

    process.terminate();
    assert_status(&writing.refusal().await, Code::Unavailable, "the shard is stopping: retry later");
    assert!(process.ended().success(), "{}", process.log());
    assert!(process.log().contains("server stopped, all requests completed"), "{}", process.log());
    assert!(!process.directory.path().join("s.sock").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_one_leaves_a_socket_that_its_successor_takes_over() {
    let mut process = Process::start(None, &[]);
    let before = state(&mut client(&process.address)).await.shard.unwrap();
    process.child.kill().unwrap();
    process.ended();
    let listen = process.address.to_string();
    let successor = Process::start(Some(&listen), &["--id", &before.id]);
    let after = state(&mut client(&successor.address)).await.shard.unwrap();
    assert_eq!(after.id, before.id);
    assert_ne!(after.incarnation, before.incarnation);

    // A running process keeps it.
    let binary = env!("CARGO_BIN_EXE_quiver-replay-server");
    let rival = std::process::Command::new(binary).args(["--listen", &listen]).output().unwrap();
    assert!(!rival.status.success());
    let said = String::from_utf8(rival.stderr).unwrap();
    assert!(said.contains("in use: another process listens on this socket"), "{said}");
    state(&mut client(&successor.address)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_with_exit_with_run_exits_after_each_end_of_a_run() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--exit-with-run", "--data-dir", data.path().to_str().unwrap()];
    // The second one finds a run that has ended, and waits: the learner might go further.
    for learner in 1..=2 {
        let mut process = Process::start(None, &flags);
        let mut client = client(&process.address);
        client.grant(grant(learner, None)).await.unwrap();
        let mut writing = Writing::open(&mut client, hello(0, 1)).await;
        client.grant(v1::GrantRequest { finished: true, ..grant(learner, None) }).await.unwrap();
        let reply = writing.reply().await.unwrap();
        assert!(
            matches!(reply, Some(Reply::Finished(_))),
            "{reply:?}: writers hear it before they are cut off"
        );
        assert!(process.ended().success(), "{}", process.log());
        let log = process.log();
        assert!(!log.contains("did not stop in time"), "{log}");
    }
}

#[test]
fn it_exits_when_its_parent_does() {
    let mut process = Process::start(None, &[]);
    drop(process.child.stdin.take());
    assert!(process.ended().success());
    let log = process.log();
    assert!(log.contains("stdin closed, exiting with the parent process (--exit-with-parent)"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_its_health_while_it_restores() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = folder.path().join("snapshot");
    // Opening a pipe blocks until there is a writer, so the restore lasts as long as this test wants.
    assert!(std::process::Command::new("mkfifo").arg(&snapshot).status().unwrap().success());
    let mut process = Process::spawn(None, &["--restore", snapshot.to_str().unwrap()]);
    until(async || process.status_file().exists()).await;
    let (head, text) = process.page("/healthz");
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(text, "restoring the snapshot\n");
    let (_, metrics) = process.page("/metrics");
    assert!(!metrics.contains("quiver_replay_inserts_total"), "totals appear when they are known");
    drop(std::fs::OpenOptions::new().write(true).open(&snapshot).unwrap());
    assert!(!process.ended().success());
    assert!(process.log().contains("--restore"), "{}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_silent_connections_use_little_memory_and_disturb_no_caller() {
    rpc::serve::raise_file_limit();
    let process = Process::start(LOOPBACK, &[]);
    let mut client = client(&process.address);
    grant_inserts(&mut client, 1_000_000).await;
    let mut writing = write(&mut client, 0..1).await;
    let mut sampling = Sampling::open(&mut client).await;
    let before = process.memory("VmRSS");

    let mut silent = Vec::new();
    for number in 0..1000 {
        let mut raw = Raw::connect(&process.address).await;
        // Half of them at least say that they speak HTTP/2.
        if number % 2 == 0 {
            raw.greet().await;
        }
        silent.push(raw);
        if number % 10 == 0 {
            assert_eq!(writing.write(chunk(0, 1, 0, 1 + number / 10)).await.items, 4);
            assert_eq!(sampling.draw(0, vec![0.5; 32]).await.len(), 32);
        }
    }
    until(async || process.metric("quiver_rpc_connections") >= 501.0).await;
    let taken = process.memory("VmRSS").saturating_sub(before);
    println!("{} bytes for each of 1,000 silent connections", taken / 1000);
    assert!(taken < 64 << 20, "{taken} bytes");
    // Those who never said a word are sent away after a while.
    let sent_away = "quiver_rpc_connections_refused_total{reason=\"silent\"}";
    until(async || process.metric(sent_away) == 500.0).await;
    assert_eq!(writing.write(chunk(0, 1, 0, 101)).await.items, 4);
    drop(silent);
    until(async || process.metric("quiver_rpc_connections") == 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_large_or_blow_up_take_little_memory() {
    let process = Process::start(LOOPBACK, &[]);
    let mut client = client(&process.address);
    grant_inserts(&mut client, 1_000_000).await;
    let before = process.memory("VmHWM");

    // Declared as 2 GB, with a beginning.
    let mut raw = Raw::connect(&process.address).await;
    raw.greet().await;
    raw.call(1, "/quiver.v1.Replay/Insert").await;
    raw.data(1, b"\x00\x7f\xff\xff\xff and so on").await;
    let too_large = "quiver_rpc_messages_refused_total{reason=\"too_large\"}";
    until(async || process.metric(too_large) == 1.0).await;
    for _ in 0..10 {
        let mut large = chunk(0, 1, 0, 0);
        large.frames = vec![1; limits::INSERT_BYTES_MAX].into();
        let writing = Writing::open(&mut client, hello(0, 1)).await;
        writing.send(large).await;
        assert_status(
            &writing.refusal().await,
            Code::ResourceExhausted,
            "exceeds the size limit of this server",
        );
    }
    assert_eq!(process.metric(too_large), 11.0);
    // A million numbers are a megabyte on the wire, and eight in memory.
    let columns: [fn(&mut v1::Chunk); 4] = [
        |chunk| chunk.item_firsts = vec![1; 1_000_000],
        |chunk| chunk.frame_bytes = vec![1; 1_000_000],
        |chunk| chunk.steps.as_mut().unwrap().weights_numbers = vec![1; 1_000_000],
        |chunk| chunk.item_lengths = vec![1; 1_000_000].into(),
    ];
    for spoil in columns {
        let mut large = chunk(0, 1, 0, 0);
        spoil(&mut large);
        let writing = Writing::open(&mut client, hello(0, 1)).await;
        writing.send(large).await;
        assert_status(&writing.refusal().await, Code::InvalidArgument, "bytes beside frames is 100");
    }
    let many = v1::Updates { priorities: vec![1.0; 2_000_000], ..v1::Updates::default() };
    let too_many = client.update_priorities(update(1, many)).await;
    refused(too_many, Code::ResourceExhausted, "exceeds the size limit of this server");
    // As many as fit into the size of a message.
    let many = v1::Updates { generations: vec![1; 2_400_000], ..v1::Updates::default() };
    let part = "generations has 2400000 entries";
    refused(client.update_priorities(update(1, many.clone())).await, Code::InvalidArgument, part);
    let request = v1::SampleRequest { updates: Some(many), ..sample(1, vec![]) };
    refused(Sampling::once(&mut client, request).await, Code::InvalidArgument, part);

    let taken = process.memory("VmHWM") - before;
    println!("{taken} bytes at most");
    assert!(taken < 48 << 20, "{taken} bytes");
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    assert_eq!(writing.write(chunk(0, 1, 0, 0)).await.items, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stops_in_time_though_a_stranger_holds_on() {
    let mut process = Process::start(LOOPBACK, &[]);
    // A request that never ends.
    let mut raw = Raw::connect(&process.address).await;
    raw.greet().await;
    raw.call(1, "/quiver.v1.Replay/Grant").await;
    raw.data(1, b"\x00\x00\x00\x00\x09half").await;
    until(async || process.metric("quiver_rpc_connections") == 1.0).await;
    process.terminate();
    assert!(process.ended().success());
    assert!(process.log().contains("open connections closed after the grace period"), "{}", process.log());
    tokio::time::timeout(Duration::from_secs(60), raw.closed()).await.unwrap();
}
