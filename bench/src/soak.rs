//! A shard under full load for hours: whether memory grows, calls get slower, or the rate falls.
//!
//! With files and the default `--fsync`, writers and a sampler run as fast as they can, and a second sampler measures
//! the latency of small batches at intervals. The measurement starts after the ring has been filled once, so that the
//! shard is in its steady state. The results are written to `soak.csv`, with a picture next to it.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod picture;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proto::v1;
use proto::v1::replay_client::ReplayClient;
use rpc::address::Address;
use rpc::channel::{Channel, channel};
use tokio::runtime::Runtime;

use crate::measure::quantile;
use crate::process::resident_bytes;
use crate::section::{Row, Section};
use crate::service::{recordings, runtime, spec};
use crate::shard::{ACTORS, Done, ShardFixture, Transport};

/// Transitions in the shard.
const ITEMS: u64 = 1_000_000;

/// Transitions of some 200 bytes that fill the ring's gigabyte more than once.
const WARM_UP: u64 = 8_000_000;

/// Items per batch of the sampler that runs as fast as it can, and of the one that measures latency.
const LARGE: usize = 512;
const SMALL: usize = 32;

/// Between two small batches.
const PAUSE: Duration = Duration::from_millis(20);

const LINES: f64 = 120.0;

/// Measurements of one interval.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub minutes: f64,
    pub inserts_per_second: f64,
    pub samples_per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub resident_mb: f64,
}

/// Columns of the file and rows of the table.
type Column = (&'static str, fn(&Seen) -> f64);
const COLUMNS: [Column; 5] = [
    ("inserts/s", |seen| seen.inserts_per_second),
    ("samples/s", |seen| seen.samples_per_second),
    ("batch of 32, p50, ms", |seen| seen.p50_ms),
    ("batch of 32, p99, ms", |seen| seen.p99_ms),
    ("resident, MB", |seen| seen.resident_mb),
];

/// Loads a shard for so many minutes, and leaves `soak.csv` and `soak.svg` in a directory.
pub fn section(minutes: f64, out: &Path) -> Result<Section> {
    let recordings = recordings()?;
    let frames: Vec<_> = recordings.iter().map(|recording| recording.frames.clone()).collect();
    let directory = tempfile::tempdir()?;
    let runtime = runtime()?;
    let spec = spec(&recordings, ITEMS)?;
    let start = ShardFixture::start(Transport::Unix, directory.path(), true, &spec, &frames);
    let mut fixture = runtime.block_on(start)?;
    eprintln!("filling the shard");
    let share = WARM_UP / u64::from(ACTORS);
    runtime.block_on(fixture.insert(ACTORS as usize, move |done| done.items < share))?;
    let seen = soak(&runtime, &mut fixture, minutes)?;
    fixture.process.end()?;

    write(out, &seen)?;
    let third = seen.len() / 3;
    ensure!(third > 0, "too short to compare its beginning with its end");
    let rows = COLUMNS.map(|(name, column)| {
        let (early, late) = (median(&seen[..third], column), median(&seen[seen.len() - third..], column));
        let all = seen.iter().map(column);
        let (least, most) = (all.clone().fold(f64::INFINITY, f64::min), all.fold(0.0, f64::max));
        let cells = [early, late, late / early, least, most];
        Row { name: name.to_owned(), cells: cells.map(Some).into() }
    });
    Ok(Section {
        topic: "soak",
        title: format!(
            "{minutes} minutes of {ACTORS} writers and a sampler of {LARGE} as fast as they can; medians of the first \
             and the last third"
        ),
        columns: &["first third", "last third", "ratio", "least", "most"],
        rows: rows.into(),
    })
}

fn soak(runtime: &Runtime, fixture: &mut ShardFixture, minutes: f64) -> Result<Vec<Seen>> {
    let over = Arc::new(AtomicBool::new(false));
    let more = |over: &Arc<AtomicBool>| {
        let over = over.clone();
        move |_: &Done| !over.load(Ordering::Relaxed)
    };
    runtime.block_on(async {
        let (mut large, mut small) = (fixture.learner(LARGE, 4).await?, fixture.learner(SMALL, 0).await?);
        let times: Arc<Mutex<Vec<f64>>> = Arc::default();
        let (drawing, timing) = (over.clone(), over.clone());
        let large = tokio::spawn(async move {
            while !drawing.load(Ordering::Relaxed) {
                large.next().await?;
            }
            Ok::<_, anyhow::Error>(())
        });
        let noted = times.clone();
        let small = tokio::spawn(async move {
            while !timing.load(Ordering::Relaxed) {
                let start = Instant::now();
                small.next().await?;
                noted.lock().expect("no holder panics").push(start.elapsed().as_secs_f64());
                tokio::time::sleep(PAUSE).await;
            }
            Ok::<_, anyhow::Error>(())
        });
        let watching = watch(fixture.address().clone(), fixture.process.id(), minutes, times);
        let ending = over.clone();
        let watching = tokio::spawn(async move {
            let seen = watching.await;
            ending.store(true, Ordering::Relaxed);
            seen
        });
        let inserted = fixture.insert(ACTORS as usize, more(&over)).await;
        over.store(true, Ordering::Relaxed);
        inserted.context("inserting")?;
        large.await?.context("drawing")?;
        small.await?.context("taking the time")?;
        watching.await?
    })
}

/// Samples the shard periodically until the deadline.
async fn watch(address: Address, pid: u32, minutes: f64, times: Arc<Mutex<Vec<f64>>>) -> Result<Vec<Seen>> {
    let mut client = ReplayClient::new(channel(&address));
    let begin = Instant::now();
    let every = Duration::from_secs_f64(minutes * 60.0 / LINES);
    let mut seen = Vec::new();
    let mut before = (begin, counts(&mut client).await?);
    while seen.len() < LINES as usize {
        tokio::time::sleep_until((begin + every * (seen.len() as u32 + 1)).into()).await;
        let now = (Instant::now(), counts(&mut client).await?);
        let seconds = (now.0 - before.0).as_secs_f64();
        let mut times = std::mem::take(&mut *times.lock().expect("no holder panics"));
        times.sort_by(f64::total_cmp);
        ensure!(!times.is_empty(), "no batch came in all that time");
        let line = Seen {
            minutes: begin.elapsed().as_secs_f64() / 60.0,
            inserts_per_second: (now.1.0 - before.1.0) as f64 / seconds,
            samples_per_second: (now.1.1 - before.1.1) as f64 / seconds,
            p50_ms: 1e3 * quantile(&times, 0.5),
            p99_ms: 1e3 * quantile(&times, 0.99),
            resident_mb: resident_bytes(pid)? as f64 / 1e6,
        };
        eprintln!("{}", csv(&line));
        seen.push(line);
        before = now;
    }
    Ok(seen)
}

/// Inserts and samples so far.
async fn counts(client: &mut ReplayClient<Channel>) -> Result<(u64, u64)> {
    let info = client.info(v1::InfoRequest {}).await.context("asking the shard")?.into_inner();
    let table = info.shard.and_then(|shard| shard.tables.first().copied()).unwrap_or_default();
    Ok((table.inserts, table.samples))
}

fn csv(seen: &Seen) -> String {
    let figures = COLUMNS.map(|(_, column)| format!("{:.2}", column(seen)));
    format!("{:.2},{}", seen.minutes, figures.join(","))
}

fn write(out: &Path, seen: &[Seen]) -> Result<()> {
    let head = COLUMNS.map(|(name, _)| name.replace(", ", " ").replace(' ', "_").replace('/', "_per_"));
    let lines: Vec<String> = seen.iter().map(csv).collect();
    let file = out.join("soak.csv");
    let text = format!("minutes,{}\n{}\n", head.join(","), lines.join("\n"));
    fs::write(&file, text).with_context(|| format!("can't write {}", file.display()))?;
    picture::draw(&out.join("soak.svg"), seen)
}

fn median(seen: &[Seen], column: fn(&Seen) -> f64) -> f64 {
    let mut figures: Vec<f64> = seen.iter().map(column).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
