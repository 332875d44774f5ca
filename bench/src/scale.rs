//! Several hundred actors against one set of shards: where does it saturate first?
//!
//! Real shards as processes, reached over loopback TCP, and light actors in this process: each has a connection to every
//! shard through `rpc::writer::ChunkWriter`, as real ones do, and sends recorded chunks at the pace of a real actor. Two
//! ladders: the same total load from ever more actors, which shows what a connection costs; and ever more actors that
//! each play as fast as a core can, until the shards do not keep up. Every step of it has a fixed length.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod actor;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use proto::StoreSpec;
use tokio::runtime::Runtime;

use crate::measure::{cpu_seconds, quantile};
use crate::section::{Row, Section};
use crate::service::{recordings, runtime, spec};
use crate::shard::{Learner, ShardFixture, Transport};
use actor::{CHUNK_STEPS, LightActor, Tape};

const SHARDS: usize = 2;

/// Transitions in each: more than the caches hold.
const CAPACITY: u64 = 100_000;

/// Transitions per second of 40M frames in an hour, at four frames to a step.
const HOUR: f64 = 40e6 / 4.0 / 3600.0;

/// What a learner draws for each of them at the paper's ratio, in batches of 32.
const SAMPLES_PER_INSERT: f64 = 8.0;
const BATCH: usize = 32;

/// Transitions per second of an actor that has a core to itself: 6,400 frames, as with eight lanes of the Nature network.
const CORE: f64 = 1_600.0;

/// Actors of the first ladder.
const CROWDS: [usize; 5] = [8, 64, 128, 256, 512];

/// Actors of the second, which ends where less than [`KEPT_UP`] of what was offered is stored.
const CORES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
const KEPT_UP: f64 = 0.9;

/// A step of a ladder takes so many times `--seconds`.
const STRETCHES: f64 = 5.0;

struct Load {
    actors: usize,
    /// Transitions per second of all actors together.
    offered: f64,
    /// Whether a learner samples concurrently at the paper's ratio.
    learns: bool,
}

/// Measurements under one load.
struct LoadResult {
    stored: f64,
    /// Shares of a core: of the shard that takes most, and of this process.
    shard: f64,
    here: f64,
    /// Seconds from sending a chunk to its acknowledgement, sorted.
    waits: Vec<f64>,
    bytes_per_connection: f64,
}

pub fn section(seconds: f64) -> Result<Section> {
    rpc::serve::raise_file_limit();
    let recordings = recordings()?;
    let spec = spec(&recordings, CAPACITY)?;
    let frames: Vec<_> = recordings.iter().map(|recording| recording.frames.clone()).collect();
    let tape = Arc::new(Tape::record(&frames[0], &spec));
    let mut rows = Vec::new();
    for actors in CROWDS {
        let load = Load { actors, offered: HOUR, learns: true };
        rows.push(step(seconds, &load, &spec, &frames, &tape)?.row(&load));
    }
    for actors in CORES {
        let load = Load { actors, offered: CORE * actors as f64, learns: false };
        let borne = step(seconds, &load, &spec, &frames, &tape)?;
        rows.push(borne.row(&load));
        if borne.stored < KEPT_UP * load.offered {
            break;
        }
    }
    Ok(Section {
        topic: "scale",
        title: format!(
            "light actors, each connected to all of {SHARDS} shards with {CAPACITY} items, chunks of {CHUNK_STEPS} steps over \
             loopback TCP; shares of one core, wall time"
        ),
        columns: &[
            "offered/s",
            "stored/s",
            "a shard %",
            "here %",
            "ack p50 ms",
            "ack p99 ms",
            "KB/connection",
        ],
        rows,
    })
}

/// New shards and new actors for each step, so that none inherits another's memory.
fn step(
    seconds: f64,
    load: &Load,
    spec: &StoreSpec,
    frames: &[Arc<Vec<Vec<u8>>>],
    tape: &Arc<Tape>,
) -> Result<LoadResult> {
    let directory = tempfile::tempdir()?;
    let runtime = runtime()?;
    let mut shards = Vec::new();
    for number in 0..SHARDS {
        let place = directory.path().join(number.to_string());
        let shard = async {
            let mut fixture = ShardFixture::start(Transport::Tcp, &place, false, spec, frames).await?;
            fixture.fill().await?;
            Ok::<_, anyhow::Error>(fixture)
        };
        shards.push(runtime.block_on(shard)?);
    }
    let borne = measure_load(&runtime, &shards, load, tape, STRETCHES * seconds)?;
    // Actors would keep looking for shards that are gone.
    drop(runtime);
    shards.into_iter().try_for_each(|shard| shard.process.end())?;
    Ok(borne)
}

fn measure_load(
    runtime: &Runtime,
    shards: &[ShardFixture],
    load: &Load,
    tape: &Arc<Tape>,
    seconds: f64,
) -> Result<LoadResult> {
    let resident = |shards: &[ShardFixture]| {
        shards.iter().map(|shard| shard.process.resident_bytes()).sum::<Result<u64>>()
    };
    let cpu = |shards: &[ShardFixture]| {
        shards.iter().map(|shard| shard.process.cpu_seconds()).collect::<Result<Vec<_>>>()
    };
    let addresses: Vec<_> = shards.iter().map(|shard| shard.address().clone()).collect();
    runtime.block_on(async {
        let before = resident(shards)?;
        let mut actors = Vec::with_capacity(load.actors);
        for number in 0..load.actors {
            actors.push(LightActor::connect(number as u32, &addresses, tape).await?);
        }
        let connections = load.actors * SHARDS;
        let mut learners = Vec::new();
        if load.learns {
            for shard in shards {
                learners.push(shard.learner(BATCH, 1).await?);
            }
        }
        let (shard_cpu, here, start) = (cpu(shards)?, cpu_seconds(), Instant::now());
        let until = start + Duration::from_secs_f64(seconds);
        let drawn = load.offered * SAMPLES_PER_INSERT / BATCH as f64 / SHARDS as f64;
        let drawing: Vec<_> =
            learners.into_iter().map(|learner| tokio::spawn(draw(learner, drawn, until))).collect();
        let pace = load.offered / load.actors as f64;
        let playing: Vec<_> = actors.into_iter().map(|actor| tokio::spawn(actor.play(pace, until))).collect();
        let (mut stored, mut waits, mut stayed) = (0, Vec::new(), Vec::new());
        for playing in playing {
            let (actor, played) = playing.await??;
            stored += played.items;
            waits.extend(played.waits);
            stayed.push(actor);
        }
        for drawing in drawing {
            drawing.await??;
        }
        let wall = start.elapsed().as_secs_f64();
        let shares =
            cpu(shards)?.iter().zip(&shard_cpu).map(|(now, then)| (now - then) / wall).fold(0.0, f64::max);
        let here = (cpu_seconds() - here) / wall;
        // While all of them are still connected.
        let bytes = resident(shards)?.saturating_sub(before);
        drop(stayed);
        ensure!(!waits.is_empty(), "no chunk was acknowledged in {seconds} s: give more --seconds");
        waits.sort_by(f64::total_cmp);
        let bytes_per_connection = bytes as f64 / connections as f64;
        Ok(LoadResult { stored: stored as f64 / wall, shard: shares, here, waits, bytes_per_connection })
    })
}

/// Draws so many batches a second, as far as the shard gives them.
async fn draw(mut learner: Learner, per_second: f64, until: Instant) -> Result<()> {
    let start = Instant::now();
    for number in 1u32.. {
        learner.next().await?;
        let due = start + Duration::from_secs_f64(f64::from(number) / per_second);
        if due >= until || Instant::now() >= until {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
    }
    Ok(())
}

impl LoadResult {
    fn row(&self, load: &Load) -> Row {
        let what = if load.learns { "40M frames an hour, learned from" } else { "a core each" };
        let wait = |share: f64| 1e3 * quantile(&self.waits, share);
        let cells = [
            load.offered,
            self.stored,
            100.0 * self.shard,
            100.0 * self.here,
            wait(0.5),
            wait(0.99),
            self.bytes_per_connection / 1e3,
        ];
        Row { name: format!("{} actors, {what}", load.actors), cells: cells.map(Some).into() }
    }
}
