//! Inserting into one replay shard and sampling from it, through real sockets.
//!
//! Several processes and threads take part, so the clock on the wall counts, and CPU time is given per item for each
//! side. What is measured is the way of an actor's chunk from raw frames until it is acknowledged, and the way of a
//! learner's batch until its frames lie unpacked in one array and new priorities are on their way back; emulator and
//! network are left out.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::time::Instant;

use anyhow::{Result, ensure};
use proto::StoreSpec;
use settings::Settings;
use settings::units::Items;
use tokio::runtime::{Builder, Runtime};

use crate::measure::{ROUNDS, Rates, cpu_seconds};
use crate::recording::{Recording, record};
use crate::section::{Row, Section};
use crate::shard::{ACTORS, CHUNK_STEPS, Done, ShardFixture, Transport};

/// Games whose frames fill the shard, one for each actor: some pack well, some do not.
pub const GAMES: [&str; 4] = ["pong", "breakout", "qbert", "seaquest"];

/// Steps of each that are recorded; the actors repeat them.
pub const FRAMES: usize = 2_000;

/// Transitions in the shard: more than the caches hold.
const CAPACITY: u64 = 100_000;

/// What a row does.
#[derive(Clone, Copy)]
pub enum Task {
    /// So many actors insert.
    Insert(usize),
    /// A learner draws batches of so many.
    Sample(usize),
}

const TASKS: [Task; 4] =
    [Task::Insert(1), Task::Insert(ACTORS as usize), Task::Sample(32), Task::Sample(512)];

/// Where a shard is and whether it keeps its data in files.
const PLACES: [(&str, Transport, bool); 3] = [
    ("unix", Transport::Unix, false),
    ("unix, files", Transport::Unix, true),
    ("tcp", Transport::Tcp, false),
];

pub fn section(seconds: f64) -> Result<Section> {
    let recordings = recordings()?;
    let spec = spec(&recordings, CAPACITY)?;
    let frames: Vec<_> = recordings.iter().map(|recording| recording.frames.clone()).collect();
    let directory = tempfile::tempdir()?;
    let runtime = runtime()?;
    let mut casts = Vec::new();
    for (index, (name, transport, durable)) in PLACES.into_iter().enumerate() {
        let directory = directory.path().join(index.to_string());
        let fixture = async {
            let mut fixture = ShardFixture::start(transport, &directory, durable, &spec, &frames).await?;
            fixture.fill().await?;
            Ok::<_, anyhow::Error>(fixture)
        };
        casts.push((name, runtime.block_on(fixture)?, [Measured::default(); TASKS.len()]));
    }
    for round in 0..ROUNDS {
        for (index, task) in TASKS.into_iter().enumerate() {
            for (_, fixture, measured) in &mut casts {
                measured[index].stretch(round, &runtime, fixture, task, seconds)?;
            }
        }
    }
    let rows = casts.iter().flat_map(|(name, _, measured)| {
        TASKS.iter().zip(measured).map(|(task, measured)| measured.row(name, *task))
    });
    let rows = rows.collect();
    casts.into_iter().try_for_each(|(_, fixture, _)| fixture.process.end())?;
    Ok(Section {
        topic: "service",
        title: format!(
            "one shard with {CAPACITY} items, rates per second of wall time, CPU time per item; a call is a chunk of \
             {CHUNK_STEPS} steps or a batch; packing and unpacking included"
        ),
        columns: &["calls/s", "items/s", "items/s median", "here µs/item", "shard µs/item"],
        rows,
    })
}

/// As a learner has.
pub fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Real frames of all games.
pub fn recordings() -> Result<Vec<Recording>> {
    GAMES.iter().map(|game| record(game, FRAMES)).collect()
}

/// The paper's store for them, of another capacity.
pub fn spec(recordings: &[Recording], capacity: u64) -> Result<StoreSpec> {
    let mut settings = Settings::paper();
    settings.capacity = Items(capacity);
    let fewest = recordings.iter().map(|recording| recording.spec.actions.len()).min();
    let actions = u16::try_from(fewest.unwrap_or_default())?;
    let options = coordinator::store_options(&settings, &recordings[0].spec);
    ensure!(actions > 0, "a game has actions");
    Ok(StoreSpec { options, codec: settings.frame_codec, actions })
}

#[derive(Clone, Copy, Default)]
pub struct Measured {
    /// Items per second.
    pub items: Rates,
    /// Items per CPU second of the shard.
    pub per_shard_second: Rates,
    total: Done,
    here_seconds: f64,
    shard_seconds: f64,
}

impl Measured {
    /// Does the task for so many seconds, as one round.
    pub fn stretch(
        &mut self,
        round: usize,
        runtime: &Runtime,
        fixture: &mut ShardFixture,
        task: Task,
        seconds: f64,
    ) -> Result<()> {
        let (here, shard, start) = (cpu_seconds(), fixture.process.cpu_seconds()?, Instant::now());
        let more = move |_: &Done| start.elapsed().as_secs_f64() < seconds;
        let done = match task {
            Task::Insert(actors) => runtime.block_on(fixture.insert(actors, more))?,
            Task::Sample(batch) => runtime.block_on(fixture.sample(batch, more))?,
        };
        let wall = start.elapsed().as_secs_f64();
        self.items.0[round] = done.items as f64 / wall;
        self.total.calls += done.calls;
        self.total.items += done.items;
        self.here_seconds += cpu_seconds() - here;
        let shard_seconds = fixture.process.cpu_seconds()? - shard;
        self.per_shard_second.0[round] = done.items as f64 / shard_seconds.max(0.01);
        self.shard_seconds += shard_seconds;
        Ok(())
    }

    fn row(&self, place: &str, task: Task) -> Row {
        let name = match task {
            Task::Insert(1) => format!("{place}, insert, 1 writer"),
            Task::Insert(writers) => format!("{place}, insert, {writers} writers"),
            Task::Sample(batch) => format!("{place}, sample ({batch})"),
        };
        let items = self.total.items as f64;
        let cells = [
            self.items.best() * self.total.calls as f64 / items,
            self.items.best(),
            self.items.median(),
            1e6 * self.here_seconds / items,
            1e6 * self.shard_seconds / items,
        ];
        Row { name, cells: cells.map(Some).into() }
    }
}
