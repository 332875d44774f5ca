//! Quiver compared with dm-reverb, cpprb and torchrl: the same frames, one run, one machine.
//!
//! The peers are Python programs in `bench/peers`, which installs them into an environment of its own and looks for
//! their best configuration. Ours is one configuration for all rows. A ratio is best by best; above 1 is ours.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::measure::{ROUNDS, Rates, quantile};
use crate::python::{environments, scripts, set_up};
use crate::recording::Recording;
use crate::section::{Row, Section};
use crate::service::{GAMES, Measured, Task, recordings, runtime, spec};
use crate::shard::{ACTORS, Done, ShardFixture, Transport};

/// Transitions in the shard while it is sampled from: as many as the peer's script puts into its table.
const ITEMS: u64 = 20_000;

/// Resident memory is compared between these numbers of transitions, as in the peer's script.
const FEW: u64 = 5_000;
const MANY: u64 = 30_000;

/// Batches whose time is taken while writers insert.
const LATENCY_BATCHES: usize = 1_000;

pub fn section(seconds: f64) -> Result<Section> {
    let environment = environments();
    eprintln!("peers are in {}; a first time takes some minutes", environment.display());
    set_up(&[])?;
    let recordings = recordings()?;
    let directory = tempfile::tempdir()?;
    write_frames(directory.path(), &recordings)?;

    let runtime = runtime()?;
    let ours = Ours {
        runtime: &runtime,
        directory: directory.path(),
        environment: &environment,
        recordings: &recordings,
        frames: recordings.iter().map(|recording| recording.frames.clone()).collect(),
        seconds,
        rows: Vec::new(),
    };
    let mut rows = ours.measure()?;
    let trees = crate::replay::trees(seconds);
    let reverb = run(
        &environment.join("reverb/bin/python"),
        "reverb_bench.py",
        &["--frames", &directory.path().display().to_string(), "--games", &GAMES.join(",")],
        seconds,
    )?;
    let peers = run(&environment.join("trees/bin/python"), "trees_bench.py", &[], seconds)?;
    for row in &mut rows {
        row.peer = reverb.pointer(&row.place).map(Figure::of).transpose()?;
    }
    let mut rows: Vec<Row> = rows.into_iter().map(Compared::row).collect();
    for (call, rates) in trees {
        for (peer, least) in [
            ("cpprb.PrioritizedReplayBuffer", 3.0),
            ("torchrl.TensorDictPrioritizedReplayBuffer", 3.0),
            ("torchrl.PrioritizedSampler", 3.0),
            ("torchrl.SumSegmentTreeFp32", 3.0),
        ] {
            let peer_figure = peers["calls_per_cpu_s"][peer].get(&call).map(Figure::of).transpose()?;
            let ours = Figure::best_of(&rates);
            let compared = Compared {
                name: format!("sum tree, 1M, {call}, calls/s, against {peer}"),
                ours,
                place: String::new(),
                peer: peer_figure,
                least,
                small_is_good: false,
            };
            rows.push(compared.row());
        }
    }
    Ok(Section {
        topic: "peers",
        title: "a shard against dm-reverb, the sum tree against cpprb and torchrl; ratios are best by best, above 1 is \
                in our favour"
            .to_owned(),
        columns: &["ours", "ours median", "peer", "peer median", "ratio", "must be"],
        rows,
    })
}

/// Best and median of the rounds.
#[derive(Clone, Copy)]
struct Figure {
    best: f64,
    median: f64,
}

impl Figure {
    fn best_of(rates: &Rates) -> Self {
        Self { best: rates.best(), median: rates.median() }
    }

    /// As a peer's script gives it, or one number alone.
    fn of(value: &Value) -> Result<Self> {
        let number = |value: &Value| value.as_f64().context("a peer's figure is no number");
        match value.as_f64() {
            Some(figure) => Ok(Self { best: figure, median: figure }),
            None => Ok(Self { best: number(&value["best"])?, median: number(&value["median"])? }),
        }
    }
}

/// One line of the comparison.
struct Compared {
    name: String,
    ours: Figure,
    /// Where the peer's figure is in its JSON.
    place: String,
    peer: Option<Figure>,
    /// Target ratio.
    least: f64,
    small_is_good: bool,
}

impl Compared {
    fn row(self) -> Row {
        let Self { name, ours, peer, least, small_is_good, .. } = self;
        let ratio =
            peer.map(|peer| if small_is_good { peer.best / ours.best } else { ours.best / peer.best });
        let cells = vec![
            Some(ours.best),
            Some(ours.median),
            peer.map(|peer| peer.best),
            peer.map(|peer| peer.median),
            ratio,
            Some(least),
        ];
        Row { name, cells }
    }
}

/// Measures our side of the rows about the service.
struct Ours<'a> {
    runtime: &'a Runtime,
    directory: &'a Path,
    environment: &'a Path,
    recordings: &'a [Recording],
    frames: Vec<Arc<Vec<Vec<u8>>>>,
    seconds: f64,
    rows: Vec<Compared>,
}

impl Ours<'_> {
    fn measure(mut self) -> Result<Vec<Compared>> {
        self.inserts()?;
        self.samples()?;
        self.resident_bytes()?;
        Ok(self.rows)
    }

    fn start(&self, name: &str, capacity: u64, frames: &[Arc<Vec<Vec<u8>>>]) -> Result<ShardFixture> {
        let (spec, directory) = (spec(self.recordings, capacity)?, self.directory.join(name));
        self.runtime.block_on(ShardFixture::start(Transport::Unix, &directory, false, &spec, frames))
    }

    fn rounds(&self, fixture: &mut ShardFixture, task: Task) -> Result<Measured> {
        let mut measured = Measured::default();
        for round in 0..ROUNDS {
            measured.stretch(round, self.runtime, fixture, task, self.seconds)?;
        }
        Ok(measured)
    }

    /// Adds a row whose peer's figure is at `place`.
    fn row(&mut self, name: String, ours: Figure, place: String, least: f64) -> &mut Compared {
        self.rows.push(Compared { name, ours, place, peer: None, least, small_is_good: false });
        self.rows.last_mut().expect("just added")
    }

    fn inserts(&mut self) -> Result<()> {
        let mut fixture = self.start("insert", 1_000_000, &self.frames)?;
        for writers in [1, ACTORS as usize] {
            let measured = self.rounds(&mut fixture, Task::Insert(writers))?;
            let of = format!("{writers} writer{}", if writers > 1 { "s" } else { "" });
            let place = |what| format!("/insert/{writers}/games/mixed/{what}");
            let (items, per_second) = (Figure::best_of(&measured.items), place("items_per_s"));
            self.row(format!("insert, {of}, transitions/s"), items, per_second, 10.0);
            let name = format!("insert, {of}, transitions per server CPU second");
            let cpu = Figure::best_of(&measured.per_shard_second);
            self.row(name, cpu, place("items_per_server_cpu_s"), 5.0);
        }
        fixture.process.end()
    }

    fn samples(&mut self) -> Result<()> {
        let mut fixture = self.start("sample", ITEMS, &self.frames)?;
        self.runtime.block_on(fixture.fill())?;
        let place = |batch| format!("/sample/{batch}/transitions_per_s");
        for batch in [32, 512] {
            let items = Figure::best_of(&self.rounds(&mut fixture, Task::Sample(batch))?.items);
            self.row(format!("sample {batch}, priorities back, transitions/s"), items, place(batch), 10.0);
        }
        let address = fixture.address().to_string();
        let python = self.environment.join("quiver/bin/python");
        let ours = run(&python, "quiver_bench.py", &["--address", &address], self.seconds)?;
        for batch in [32, 512] {
            let ours = ours.pointer(&place(batch)).context("quiver_bench.py left a figure out")?;
            let name = format!("sample {batch} from Python, priorities back, transitions/s");
            self.row(name, Figure::of(ours)?, place(batch), 3.0);
        }
        self.latencies(&mut fixture)?;
        fixture.process.end()
    }

    fn latencies(&mut self, fixture: &mut ShardFixture) -> Result<()> {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let latencies = fixture.latencies(32, LATENCY_BATCHES, ACTORS as usize);
            let mut latencies = self.runtime.block_on(latencies)?;
            latencies.sort_by(f64::total_cmp);
            rounds.push(latencies);
        }
        for (what, share, place) in [("p50", 0.5, "p50_ms"), ("p99", 0.99, "p99_ms")] {
            let mut ours: Vec<f64> = rounds.iter().map(|round| 1e3 * quantile(round, share)).collect();
            ours.sort_by(f64::total_cmp);
            let ours = Figure { best: ours[0], median: ours[ours.len() / 2] };
            let name = format!("latency of a batch of 32 beside 4 writers, {what}, ms");
            self.row(name, ours, format!("/sample_latency/{place}"), 5.0).small_is_good = true;
        }
        Ok(())
    }

    /// Memory is compared by its growth between two numbers of transitions.
    fn resident_bytes(&mut self) -> Result<()> {
        let share = |items: u64| move |done: &Done| done.items < items / u64::from(ACTORS);
        for (index, game) in GAMES.iter().enumerate() {
            let mut fixture = self.start(game, 1_000_000, &self.frames[index..=index])?;
            let mut held = [(0, 0); 2];
            for (held, more) in held.iter_mut().zip([FEW, MANY - FEW]) {
                self.runtime.block_on(fixture.insert(ACTORS as usize, share(more)))?;
                let items = self.runtime.block_on(fixture.status())?.first_table().items;
                *held = (items, fixture.process.resident_bytes()?);
            }
            let [before, after] = held;
            let bytes = (after.1 as f64 - before.1 as f64) / (after.0 - before.0) as f64;
            ensure!(bytes > 0.0, "memory did not grow with {game}");
            let place = format!("/resident/smallest/bytes_per_item/{game}");
            let ours = Figure { best: bytes, median: bytes };
            self.row(format!("resident bytes per transition, {game}"), ours, place, 2.0).small_is_good = true;
            fixture.process.end()?;
        }
        Ok(())
    }
}

fn write_frames(directory: &Path, recordings: &[Recording]) -> Result<()> {
    for (game, recording) in GAMES.iter().zip(recordings) {
        fs::write(directory.join(format!("{game}.raw")), recording.frames.concat())?;
    }
    Ok(())
}

/// Runs a peer's script and reads its figures.
fn run(python: &Path, script: &str, arguments: &[&str], seconds: f64) -> Result<Value> {
    eprintln!("running {script}");
    let (seconds, rounds) = (seconds.to_string(), ROUNDS.to_string());
    let output = Command::new(python)
        .arg(scripts().join(script))
        .args(arguments)
        .args(["--seconds", &seconds, "--rounds", &rounds])
        .envs(BTreeMap::from([("OMP_NUM_THREADS", "1"), ("TF_CPP_MIN_LOG_LEVEL", "3")]))
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't run {}", python.display()))?;
    if !output.status.success() {
        bail!("{script} failed ({}), see above", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{script} did not print JSON"))
}
