//! What survives costs: starting again after a kill with a million transitions, callers' pauses during a snapshot, and
//! what each way of syncing to the disk does to inserts.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rpc::channel::channel;
use tokio::runtime::Runtime;

use crate::measure::quantile;
use crate::section::{Row, Section};
use crate::service::{recordings, runtime, spec};
use crate::shard::{ACTORS, Done, ShardFixture, Transport};

/// Transitions in the shard that is killed.
const ITEMS: u64 = 1_000_000;

/// Batches drawn while snapshots are taken, one after the other.
const BATCHES: usize = 5_000;

/// Measures all of it.
pub fn section(seconds: f64) -> Result<Section> {
    let recordings = recordings()?;
    let frames: Vec<_> = recordings.iter().map(|recording| recording.frames.clone()).collect();
    let directory = tempfile::tempdir()?;
    let runtime = runtime()?;
    let mut rows = Vec::new();

    let spec_large = spec(&recordings, ITEMS)?;
    let place = directory.path().join("large");
    let mut fixture =
        runtime.block_on(ShardFixture::start(Transport::Unix, &place, true, &spec_large, &frames))?;
    runtime.block_on(fixture.fill())?;
    let pauses = pauses(&runtime, &mut fixture)?;
    for (what, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)] {
        let pause = 1e3 * quantile(&pauses, share);
        rows.push(row(&format!("batch of 32 during snapshots of {ITEMS} items, {what}, ms"), pause));
    }
    let kill = Instant::now();
    drop(fixture);
    let killed = kill.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut fixture =
        runtime.block_on(ShardFixture::start(Transport::Unix, &place, true, &spec_large, &frames))?;
    let seconds_to_serve = start.elapsed().as_secs_f64();
    let items = runtime.block_on(fixture.status())?.first_table().items;
    ensure!(items == ITEMS, "{items} of {ITEMS} items were found again");
    rows.push(row(&format!("start after SIGKILL with {ITEMS} items until it serves, s"), seconds_to_serve));
    rows.push(row("the kill itself, s", killed));
    drop(fixture);

    let spec_small = spec(&recordings, 100_000)?;
    for fsync in ["none", "10", "0.5", "always"] {
        let place = directory.path().join(format!("fsync-{fsync}"));
        let fixture = ShardFixture::start_with(Transport::Unix, &place, Some(fsync), &spec_small, &frames);
        let mut fixture = runtime.block_on(fixture)?;
        let start = Instant::now();
        let more = move |_: &Done| start.elapsed().as_secs_f64() < 3.0 * seconds;
        let done = runtime.block_on(fixture.insert(ACTORS as usize, more))?;
        let rate = done.items as f64 / start.elapsed().as_secs_f64();
        rows.push(row(&format!("inserts/s of {ACTORS} writers with --fsync {fsync}"), rate));
        fixture.process.end()?;
    }
    Ok(Section {
        topic: "durability",
        title: "a shard with files; wall time".to_owned(),
        columns: &["figure"],
        rows,
    })
}

fn row(name: &str, figure: f64) -> Row {
    Row { name: name.to_owned(), cells: vec![Some(figure)] }
}

/// How long each batch took while snapshots were taken all the time, sorted.
fn pauses(runtime: &Runtime, fixture: &mut ShardFixture) -> Result<Vec<f64>> {
    let address = fixture.address().clone();
    let mut seconds = runtime
        .block_on(async {
            let snapshots = tokio::spawn(async move {
                let mut count = 0u32;
                loop {
                    let mut client = proto::v1::replay_client::ReplayClient::new(channel(&address))
                        .max_decoding_message_size(proto::limits::SAMPLE_BYTES_MAX);
                    let Ok(pieces) = client.snapshot(proto::v1::SnapshotRequest {}).await else {
                        return count;
                    };
                    let mut pieces = pieces.into_inner();
                    while let Ok(Some(_)) = pieces.message().await {}
                    count += 1;
                }
            });
            let seconds = fixture.latencies(32, BATCHES, 0).await;
            ensure!(!snapshots.is_finished(), "the snapshots ended early");
            snapshots.abort();
            seconds
        })
        .context("drawing beside snapshots")?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}
