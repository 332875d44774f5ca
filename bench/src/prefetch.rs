//! Batches per second through the learner's own prefetcher: draw from a shard, unpack, copy to tensors.
//!
//! One shard is a process behind a Unix socket; the prefetcher runs in this process, as it does in a learner, with
//! unlimited samples per insert. Batches are dropped as soon as they arrive: nothing learns and no priorities go back.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use coordinator::discovery::Shards;
use coordinator::shard_directory::ShardDirectory;
use coordinator::{Clock, RateController, ShardPool, adjust};
use learner::Learner;
use learner::metrics::Metrics;
use learner::prefetcher::{PrefetcherParts, RunCounts, StatusSenders};
use learner::priorities::Priorities;
use learner::remote::RemoteReplay;
use learner::replay::{BatchAssembler, Replay};
use learner::unpack::Unpacker;
use prometheus::Registry;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::ReplayStatus;
use rpc::channel::Credentials;
use rpc::shard::{ShardClient, ShardConfig};
use settings::choices::SamplesPerInsert;
use settings::networks;
use settings::units::Items;
use settings::{Resolved, Settings};
use tch::Device;
use telemetry::Health;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::measure::{ROUNDS, Rates, cpu_seconds};
use crate::recording::Recording;
use crate::section::{Row, Section};
use crate::service::{GAMES, recordings, runtime, spec};
use crate::shard::{RUN, ShardFixture, Transport};

/// Transitions in the shard: more than the caches hold.
const CAPACITY: u64 = 100_000;

const BATCH_SIZES: [usize; 2] = [32, 128];

/// Stages of the prefetcher, as its metrics call them.
const STAGES: [&str; 3] = ["sample", "decode", "assemble"];

/// The share of a stretch for which batches arrive before anything counts.
const WARM_UP_SHARE: f64 = 0.2;

/// How long no batch may arrive.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn section(seconds: f64) -> Result<Section> {
    let recordings = recordings()?;
    let spec = spec(&recordings, CAPACITY)?;
    let frames: Vec<_> = recordings.iter().map(|recording| recording.frames.clone()).collect();
    let (directory, runtime) = (tempfile::tempdir()?, runtime()?);
    let fixture = async {
        let mut fixture =
            ShardFixture::start(Transport::Unix, directory.path(), false, &spec, &frames).await?;
        fixture.fill().await?;
        Ok::<_, anyhow::Error>(fixture)
    };
    let fixture = runtime.block_on(fixture)?;
    let mut rows = Vec::new();
    for size in BATCH_SIZES {
        let mut prefetching = Prefetching::start(&runtime, &fixture, directory.path(), &recordings[0], size)?;
        rows.push(prefetching.measure(&fixture, seconds)?);
        prefetching.replay.stop_sampling();
    }
    fixture.process.end()?;
    Ok(Section {
        topic: "prefetch",
        title: format!(
            "one shard with {CAPACITY} items over a Unix socket, batches/s of wall time without learning; ms of each \
             stage per batch; CPU % is 100 for a core"
        ),
        columns: &["batches/s", "median", "draw ms", "unpack ms", "copy ms", "here CPU %", "shard CPU %"],
        rows,
    })
}

/// A learner's prefetcher and the handle that takes its batches.
struct Prefetching {
    replay: RemoteReplay,
    metrics: Arc<Metrics>,
    batch_size: usize,
}

impl Prefetching {
    /// Connects as a learner does when it starts.
    fn start(
        runtime: &Runtime,
        fixture: &ShardFixture,
        directory: &Path,
        recording: &Recording,
        batch_size: usize,
    ) -> Result<Self> {
        let _entered = runtime.enter();
        let (settings, credentials) = (settings(batch_size), Credentials::none());
        let shards = Shards::ByAddress(vec![fixture.address().clone()]);
        let config = ShardConfig {
            run: RUN.into(),
            learner_incarnation: 1,
            spec: fixture.spec().clone(),
            ticket_key: None,
            reliabilities: settings.strategy.needs_reliability,
        };
        let connection = ShardClient::new(fixture.address().clone(), credentials, config, 0);
        let metrics = Arc::new(Metrics::register(&Registry::new()));
        let priorities = Priorities::spawn(vec![connection.updater()], metrics.clone());
        let shard_directory = ShardDirectory::open(directory, &shards)?;
        let pool = ShardPool::new(
            vec![connection],
            shard_directory,
            watch::Sender::new(Vec::new()),
            RateController::new(adjust::limiter(&settings)?, 1, 0, &[]),
            BTreeSet::new(),
            None,
            Clock::system(),
        );
        let resolved = Resolved { game: GAMES[0].into(), preset: String::new(), settings: settings.clone() };
        let publish = StatusSenders {
            status: watch::Sender::new(ReplayStatus::default()),
            counted: watch::Sender::new(RunCounts::default()),
        };
        let parts = PrefetcherParts {
            pool,
            adjusted: watch::Sender::new(resolved).subscribe(),
            environment: recording.spec.clone(),
            rng: ChaCha8Rng::seed_from_u64(5),
            metrics: metrics.clone(),
            health: Health::new(),
            publish,
            settings,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let learner = Learner::new(&parts.settings, &parts.environment, Device::Cpu, &mut rng)?;
        let assembler = |_| BatchAssembler::for_learner(&parts.settings, &parts.environment, &learner);
        let assemblers = (0..parts.settings.prefetch_batches).map(assembler).collect();
        let unpacker = Unpacker::new(assemblers, None, priorities.clone(), metrics.clone());
        let replay = RemoteReplay::start(parts, unpacker, priorities, 0, runtime.handle().clone());
        Ok(Self { replay, metrics, batch_size })
    }

    fn measure(&mut self, fixture: &ShardFixture, seconds: f64) -> Result<Row> {
        // Connects, and the shard's counts arrive.
        self.take(seconds * WARM_UP_SHARE)?;
        let stages_before = self.stages();
        let (mut rates, mut all) = (Rates::default(), Taken::default());
        for round in 0..ROUNDS {
            let shard_before = fixture.process.cpu_seconds()?;
            let taken = self.take(seconds)?;
            rates.0[round] = taken.batches as f64 / taken.wall;
            all.batches += taken.batches;
            all.wall += taken.wall;
            all.here += taken.here;
            all.shard += fixture.process.cpu_seconds()? - shard_before;
        }
        let stages = self.stages();
        let stage = |index: usize| 1e3 * (stages[index] - stages_before[index]) / all.batches as f64;
        let cells = [
            rates.best(),
            rates.median(),
            stage(0),
            stage(1),
            stage(2),
            100.0 * all.here / all.wall,
            100.0 * all.shard / all.wall,
        ];
        Ok(Row { name: format!("batches of {}", self.batch_size), cells: cells.map(Some).into() })
    }

    /// Takes batches for so many seconds, and at least one.
    fn take(&mut self, seconds: f64) -> Result<Taken> {
        let (start, cpu, mut batches) = (Instant::now(), cpu_seconds(), 0);
        while batches == 0 || start.elapsed().as_secs_f64() < seconds {
            match self.replay.sample()? {
                Some(sampled) => {
                    ensure!(sampled.items.len() == self.batch_size, "a batch is not complete");
                    std::hint::black_box(&sampled.batch);
                    batches += 1;
                }
                None => ensure!(start.elapsed() < PATIENCE, "no batch arrives: {:?}", self.replay.status()),
            }
        }
        let (wall, here) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        Ok(Taken { batches, wall, here, shard: 0.0 })
    }

    /// Seconds that each stage has taken so far.
    fn stages(&self) -> [f64; STAGES.len()] {
        STAGES.map(|stage| self.metrics.stage_seconds.with_label_values(&[stage]).get())
    }
}

/// Batches taken, and the seconds of wall time and of CPU time that they cost here and in the shard.
#[derive(Default)]
struct Taken {
    batches: u64,
    wall: f64,
    here: f64,
    shard: f64,
}

/// The paper's settings, with the shard's capacity and as many samples as there can be.
fn settings(batch_size: usize) -> Settings {
    let mut settings = Settings::paper();
    (settings.network, settings.hidden_units) = (networks::SMALL, 256);
    settings.batch_size = batch_size;
    settings.capacity = Items(CAPACITY);
    settings.min_size = Items(CAPACITY / 2);
    settings.samples_per_insert = SamplesPerInsert(None);
    settings
}
