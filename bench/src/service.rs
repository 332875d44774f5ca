//! Inserting into one replay shard and sampling from it, through real sockets, against bare memory copy.
//!
//! Several processes and threads take part, so the clock on the wall counts, and CPU time is given per item for each
//! side. What is measured is the way of an actor's chunk until it is acknowledged and the way of a learner's batch until
//! its packed frames are there; emulator, packing, unpacking and network are left out.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use proto::convert::TableSpec;
use run::Settings;
use run::units::Items;
use tokio::runtime::{Builder, Runtime};

use crate::copy::Store;
use crate::measure::{ROUNDS, Rates, cpu_seconds};
use crate::recording::{Packed, record};
use crate::section::{Row, Section};
use crate::shard::{ACTORS, CHUNK_STEPS, Cast, Done, Transport};

/// Games whose frames fill the shard, by turns: some pack well, some do not.
const GAMES: [&str; 3] = ["pong", "breakout", "qbert"];

/// Steps of each that are recorded; the shard repeats them.
const FRAMES: usize = 2_000;

/// Transitions in the shard: more than the caches hold.
const CAPACITY: u64 = 100_000;

/// Memory copy needs less time to be steady: the share of a stretch that it gets.
const COPY_SHARE: f64 = 0.2;

/// What a row does.
#[derive(Clone, Copy)]
enum Task {
    /// So many actors insert.
    Insert(usize),
    /// A learner draws batches of so many.
    Sample(usize),
}

const TASKS: [Task; 4] =
    [Task::Insert(1), Task::Insert(ACTORS as usize), Task::Sample(32), Task::Sample(512)];

/// Measures both transports.
pub fn section(seconds: f64) -> Result<Section> {
    let mut settings = Settings::paper();
    settings.capacity = Items(CAPACITY);
    let (frames, spec) = table(&settings)?;
    let directory = tempfile::tempdir()?;
    // As a learner has.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut store = Store::new(frames.clone(), CAPACITY as usize);
    let mut copies = [Rates::default(); TASKS.len()];
    let mut casts = Vec::new();
    for transport in [Transport::Unix, Transport::Tcp] {
        let cast = runtime.block_on(Cast::start(transport, directory.path(), &spec, &frames))?;
        casts.push((transport, cast, [Measured::default(); TASKS.len()]));
    }
    for round in 0..ROUNDS {
        for (index, task) in TASKS.into_iter().enumerate() {
            copies[index].0[round] = bare(&mut store, task, settings.frame_stack + 1, seconds * COPY_SHARE);
            for (_, cast, measured) in &mut casts {
                measured[index].stretch(round, &runtime, cast, task, seconds)?;
            }
        }
    }
    for (transport, cast, measured) in &mut casts {
        let counters = runtime.block_on(cast.standing())?.counters.unwrap_or_default();
        let lost = counters.lost_chunks + counters.items_without_frames + counters.duplicate_chunks;
        let sampling = TASKS.iter().zip(measured).filter(|(task, _)| matches!(task, Task::Sample(_)));
        let samples: u64 = sampling.map(|(_, measured)| measured.total.items).sum();
        ensure!(
            lost == 0 && counters.samples == samples,
            "{transport:?}: {samples} items were sampled and the shard counts {counters:?}"
        );
    }
    let rows = casts.iter().flat_map(|(transport, _, measured)| {
        TASKS
            .iter()
            .zip(measured)
            .zip(&copies)
            .map(|((task, measured), copy)| measured.row(*transport, *task, copy))
    });
    let rows = rows.collect();
    casts.into_iter().try_for_each(|(_, cast, _)| cast.process.end())?;
    Ok(Section {
        topic: "service",
        title: format!(
            "one shard with {CAPACITY} items, rates per second of wall time, CPU time per item; a call is a chunk of \
             {CHUNK_STEPS} steps or a batch"
        ),
        columns: &[
            "calls/s",
            "items/s",
            "items/s median",
            "MB/s",
            "copy MB/s",
            "% of copy",
            "here µs/item",
            "shard µs/item",
        ],
        rows,
    })
}

/// Packed frames of all games, and the paper's table for them.
fn table(settings: &Settings) -> Result<(Arc<Packed>, TableSpec)> {
    let recordings = GAMES.map(|game| record(game, FRAMES));
    let (mut frames, mut spec) = (Packed::new(), None);
    for recording in recordings {
        let recording = recording?;
        frames.extend(recording.packed(settings.frame_codec));
        let options = learner::setup::table(settings, &recording.spec, 0);
        let actions = u16::try_from(recording.spec.actions.len())?;
        let fewest = spec.map_or(actions, |TableSpec { actions: others, .. }| actions.min(others));
        spec = Some(TableSpec { options, codec: settings.frame_codec, actions: fewest });
    }
    Ok((Arc::new(frames), spec.expect("there are games")))
}

/// Bytes per second of wall time that memory copy moves for the same task.
fn bare(store: &mut Store, task: Task, frames_per_item: usize, seconds: f64) -> f64 {
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < seconds {
        bytes += match task {
            Task::Insert(_) => store.write(CHUNK_STEPS as usize),
            Task::Sample(batch) => store.read(batch, frames_per_item),
        };
    }
    bytes as f64 / start.elapsed().as_secs_f64()
}

/// One row's stretches.
#[derive(Clone, Copy, Default)]
struct Measured {
    items: Rates,
    bytes: Rates,
    total: Done,
    here_seconds: f64,
    shard_seconds: f64,
}

impl Measured {
    fn stretch(
        &mut self,
        round: usize,
        runtime: &Runtime,
        cast: &mut Cast,
        task: Task,
        seconds: f64,
    ) -> Result<()> {
        let (here, shard, start) = (cpu_seconds(), cast.process.cpu_seconds()?, Instant::now());
        let more = |_: &Done| start.elapsed().as_secs_f64() < seconds;
        let done = match task {
            Task::Insert(actors) => runtime.block_on(cast.insert(actors, more))?,
            Task::Sample(batch) => runtime.block_on(cast.sample(batch, more))?,
        };
        let wall = start.elapsed().as_secs_f64();
        self.items.0[round] = done.items as f64 / wall;
        self.bytes.0[round] = done.bytes as f64 / wall;
        self.total.calls += done.calls;
        self.total.items += done.items;
        self.here_seconds += cpu_seconds() - here;
        self.shard_seconds += cast.process.cpu_seconds()? - shard;
        Ok(())
    }

    fn row(&self, transport: Transport, task: Task, copy: &Rates) -> Row {
        let transport = match transport {
            Transport::Unix => "unix",
            Transport::Tcp => "tcp",
        };
        let name = match task {
            Task::Insert(1) => format!("{transport}, insert, 1 writer"),
            Task::Insert(writers) => format!("{transport}, insert, {writers} writers"),
            Task::Sample(batch) => format!("{transport}, sample ({batch})"),
        };
        let items = self.total.items as f64;
        let cells = [
            self.items.best() * self.total.calls as f64 / items,
            self.items.best(),
            self.items.median(),
            self.bytes.best() / 1e6,
            copy.best() / 1e6,
            100.0 * self.bytes.ratio(copy),
            1e6 * self.here_seconds / items,
            1e6 * self.shard_seconds / items,
        ];
        Row { name, cells: cells.map(Some).into() }
    }
}
