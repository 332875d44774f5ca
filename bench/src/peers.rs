//! Ours beside dm-reverb, cpprb and torchrl: the same frames, one run, one machine.
//!
//! The peers are Python programs in `bench/peers`, which installs them into an environment of its own and looks for
//! their best configuration. Ours is one configuration for all rows. A ratio is best by best; above 1 is ours.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::measure::ROUNDS;
use crate::recording::Recording;
use crate::section::{Row, Section};
use crate::service::{GAMES, Measured, Task, recordings, runtime, spec};
use crate::shard::{ACTORS, Cast, Done, Transport};

/// Transitions in the shard while it is sampled from: as many as the peer's script puts into its table.
const ITEMS: u64 = 20_000;

/// Resident memory is compared between these numbers of transitions, as in the peer's script.
const FEW: u64 = 5_000;
const MANY: u64 = 30_000;

/// Batches whose time is taken while writers insert.
const LATENCY_BATCHES: usize = 1_000;

/// Measures both.
pub fn section(seconds: f64) -> Result<Section> {
    let environment =
        env::var_os("QUIVER_PEERS").map_or_else(|| PathBuf::from("target/peers"), PathBuf::from);
    set_up(&environment)?;
    let recordings = recordings()?;
    let directory = tempfile::tempdir()?;
    write_frames(directory.path(), &recordings)?;

    let runtime = runtime()?;
    let mut rows = service(&runtime, directory.path(), &environment, &recordings, seconds)?;
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
            let ours = Figure { best: rates.best(), median: rates.median() };
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
    /// The ratio that is wanted.
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

/// Our side of all that concerns the service.
fn service(
    runtime: &Runtime,
    directory: &Path,
    environment: &Path,
    recordings: &[Recording],
    seconds: f64,
) -> Result<Vec<Compared>> {
    let spec_of = |capacity| spec(recordings, capacity);
    let frames: Vec<_> = recordings.iter().map(|recording| recording.frames.clone()).collect();
    let mut rows = Vec::new();
    let start = |name: &str, capacity: u64, frames: &[_]| {
        let (spec, directory) = (spec_of(capacity)?, directory.join(name));
        runtime.block_on(Cast::start(Transport::Unix, &directory, false, &spec, frames))
    };
    let mut cast = start("insert", 1_000_000, &frames)?;
    for writers in [1, ACTORS as usize] {
        let mut measured = Measured::default();
        for round in 0..ROUNDS {
            measured.stretch(round, runtime, &mut cast, Task::Insert(writers), seconds)?;
        }
        let of = format!("{writers} writer{}", if writers > 1 { "s" } else { "" });
        let place = format!("/insert/{writers}/games/mixed");
        rows.push(Compared {
            name: format!("insert, {of}, transitions/s"),
            ours: Figure { best: measured.items.best(), median: measured.items.median() },
            place: format!("{place}/items_per_s"),
            peer: None,
            least: 10.0,
            small_is_good: false,
        });
        rows.push(Compared {
            name: format!("insert, {of}, transitions per server CPU second"),
            ours: Figure {
                best: measured.per_shard_second.best(),
                median: measured.per_shard_second.median(),
            },
            place: format!("{place}/items_per_server_cpu_s"),
            peer: None,
            least: 5.0,
            small_is_good: false,
        });
    }
    cast.process.end()?;

    let mut cast = start("sample", ITEMS, &frames)?;
    runtime.block_on(cast.fill())?;
    for batch in [32, 512] {
        let mut measured = Measured::default();
        for round in 0..ROUNDS {
            measured.stretch(round, runtime, &mut cast, Task::Sample(batch), seconds)?;
        }
        rows.push(Compared {
            name: format!("sample {batch}, priorities back, transitions/s"),
            ours: Figure { best: measured.items.best(), median: measured.items.median() },
            place: format!("/sample/{batch}/transitions_per_s"),
            peer: None,
            least: 10.0,
            small_is_good: false,
        });
    }
    let address = cast.address().to_string();
    let python = environment.join("quiver/bin/python");
    let ours = run(&python, "quiver_bench.py", &["--address", &address], seconds)?;
    for batch in [32, 512] {
        let place = format!("/sample/{batch}/transitions_per_s");
        rows.push(Compared {
            name: format!("sample {batch} from Python, priorities back, transitions/s"),
            ours: Figure::of(ours.pointer(&place).context("quiver_bench.py left a figure out")?)?,
            place,
            peer: None,
            least: 3.0,
            small_is_good: false,
        });
    }
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let mut latencies = runtime.block_on(cast.latencies(32, LATENCY_BATCHES, ACTORS as usize))?;
        latencies.sort_by(f64::total_cmp);
        rounds.push(latencies);
    }
    for (what, share, place) in [("p50", 0.5, "p50_ms"), ("p99", 0.99, "p99_ms")] {
        let at = |round: &Vec<f64>| 1e3 * round[((round.len() - 1) as f64 * share) as usize];
        let mut ours: Vec<f64> = rounds.iter().map(at).collect();
        ours.sort_by(f64::total_cmp);
        rows.push(Compared {
            name: format!("latency of a batch of 32 beside 4 writers, {what}, ms"),
            ours: Figure { best: ours[0], median: ours[ours.len() / 2] },
            place: format!("/sample_latency/{place}"),
            peer: None,
            least: 5.0,
            small_is_good: true,
        });
    }
    cast.process.end()?;

    for (game, frames) in GAMES.iter().zip(&frames) {
        let mut cast = start(game, 1_000_000, std::slice::from_ref(frames))?;
        let share = |items: u64| move |done: &Done| done.items < items / u64::from(ACTORS);
        runtime.block_on(cast.insert(ACTORS as usize, share(FEW)))?;
        let before = (runtime.block_on(cast.status())?.first_table().items, cast.process.resident_bytes()?);
        runtime.block_on(cast.insert(ACTORS as usize, share(MANY - FEW)))?;
        let after = (runtime.block_on(cast.status())?.first_table().items, cast.process.resident_bytes()?);
        let bytes = (after.1 as f64 - before.1 as f64) / (after.0 - before.0) as f64;
        ensure!(bytes > 0.0, "memory did not grow with {game}");
        rows.push(Compared {
            name: format!("resident bytes per transition, {game}"),
            ours: Figure { best: bytes, median: bytes },
            place: format!("/resident/smallest/bytes_per_item/{game}"),
            peer: None,
            least: 2.0,
            small_is_good: true,
        });
        cast.process.end()?;
    }
    Ok(rows)
}

fn write_frames(directory: &Path, recordings: &[Recording]) -> Result<()> {
    for (game, recording) in GAMES.iter().zip(recordings) {
        fs::write(directory.join(format!("{game}.raw")), recording.frames.concat())?;
    }
    Ok(())
}

/// Where the peers' scripts are.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Installs the peers, once.
fn set_up(environment: &Path) -> Result<()> {
    eprintln!("peers are in {}; a first time takes some minutes", environment.display());
    let status = Command::new(scripts().join("setup.sh")).arg(environment).stdout(Stdio::null()).status();
    let status = status.context("can't run bench/peers/setup.sh")?;
    ensure!(status.success(), "bench/peers/setup.sh failed, see above");
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
