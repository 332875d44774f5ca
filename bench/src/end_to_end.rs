//! A whole cluster at eight samples per insert against a plain DQN in PyTorch and against bare libtorch.
//!
//! The cluster is one shard, one learner and one actor, each a process, with preset `quick` and one-step targets; the
//! script is one process that plays, stores, samples and learns in turn, as often per frame, on two threads and on one.
//! In each round the clusters start one after the other, fill their replay and are measured; then the script is, which is
//! idle meanwhile, and then bare libtorch with the same network on one thread of this process.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use settings::Settings;
use settings::networks::Network;

use crate::bare::BareLearner;
use crate::cluster::{Cluster, resolve};
use crate::learner::plain_batches;
use crate::measure::{ROUNDS, Rates};
use crate::python::{self, Server, number};
use crate::pytorch::NETWORKS;
use crate::section::{Row, Section};
use crate::turns::repeat;

const GAME: &str = "breakout";

/// Actions of that game.
const ACTIONS: i64 = 4;

/// Seconds of wall time of a cluster or script in a round, for one second of a stretch.
const SECONDS: f64 = 8.0;

/// The share of it that a cluster runs before anything counts: the ratio of samples to inserts settles.
const SETTLE_SHARE: f64 = 0.25;

/// Ways of ours to run: a name, and the settings that differ.
const CLUSTERS: &[(&str, &[(&str, &str)])] = &[("f32", &[]), ("bf16", &[("precision", "bf16")])];

/// What all clusters have in common: as many samples per insert and forward passes as the script.
const DIFFERENCES: [(&str, &str); 3] = [("samples_per_insert", "8"), ("batch_size", "32"), ("n_step", "1")];

/// Threads of the script. The clusters are compared with the first.
const THREADS: [u32; 2] = [2, 1];

pub fn section(seconds: f64) -> Result<Section> {
    let (directory, python) = (tempfile::tempdir()?, python::with_torch());
    let mut rows = Vec::new();
    for network in NETWORKS {
        rows.extend(measure(network, directory.path(), python.as_deref(), seconds)?);
    }
    Ok(Section {
        topic: "end to end",
        title: format!(
            "{GAME}, 8 samples per insert, per second of wall time, {:.0} s in each of {ROUNDS} rounds; ratios to the \
             script's frames/s on two threads and to bare libtorch's updates/s on one; CPU % is 100 for a core",
            SECONDS * seconds
        ),
        columns: &[
            "frames/s",
            "median",
            "updates/s",
            "updates median",
            "samples/insert",
            "/script",
            "/bare",
            "CPU %",
        ],
        rows,
    })
}

/// What a row has done, a number per round.
#[derive(Default)]
struct Side {
    frames: Rates,
    updates: Rates,
    samples_per_insert: Option<Rates>,
    cores: Rates,
}

impl Side {
    fn row(&self, name: String, script: Option<&Side>, bare: &Side) -> Row {
        let frames = |figure: f64| (figure > 0.0).then_some(figure);
        let cells = vec![
            frames(self.frames.best()),
            frames(self.frames.median()),
            Some(self.updates.best()),
            Some(self.updates.median()),
            self.samples_per_insert.map(|ratio| ratio.median()),
            script.and_then(|script| frames(self.frames.ratio(&script.frames))),
            Some(self.updates.ratio(&bare.updates)),
            Some(100.0 * self.cores.median()),
        ];
        Row { name, cells }
    }
}

/// The rows of one network.
fn measure(
    (network, hidden): (Network, usize),
    directory: &Path,
    python: Option<&Path>,
    seconds: f64,
) -> Result<Vec<Row>> {
    let hidden = hidden.to_string();
    let of_network = [("network", network.name), ("hidden_units", hidden.as_str())];
    let common: Vec<_> = DIFFERENCES.into_iter().chain(of_network).collect();
    let mut ours: Vec<Side> = CLUSTERS.iter().map(|_| Side::default()).collect();
    let (mut scripts, mut bare) = (THREADS.map(|_| Side::default()), Side::default());
    let flags = ["--game", GAME, "--network", network.name];
    let mut server = python.map(|python| Server::start(python, "torch_dqn.py", &flags, &[])).transpose()?;
    if let Some(server) = &mut server {
        // Its random play at the start must not run beside a cluster, and its first updates take longer.
        run_script(server, THREADS[0], SECONDS * seconds * SETTLE_SHARE)?;
    }
    for round in 0..ROUNDS {
        for (side, (name, differences)) in ours.iter_mut().zip(CLUSTERS) {
            let directory = directory.join(format!("{network}-{name}-{round}"));
            fs::create_dir(&directory)?;
            let differences: Vec<_> = common.iter().chain(*differences).copied().collect();
            run_cluster(&directory, &differences, seconds, round, side)
                .with_context(|| format!("the cluster with {network}, {name}"))?;
        }
        if let Some(server) = &mut server {
            for (script, threads) in scripts.iter_mut().zip(THREADS) {
                let [frames, updates, cores] = run_script(server, threads, SECONDS * seconds)?;
                (script.frames.0[round], script.updates.0[round]) = (frames, updates);
                script.cores.0[round] = cores;
            }
        }
        let settings = resolve(GAME, &common)?.settings;
        (bare.updates.0[round], bare.cores.0[round]) = run_bare(&settings, seconds)?;
    }
    let compared = server.is_some().then_some(&scripts[0]);
    let mut rows = Vec::new();
    for (side, (name, _)) in ours.iter().zip(CLUSTERS) {
        rows.push(side.row(format!("{network}, cluster, {name}"), compared, &bare));
    }
    if compared.is_some() {
        for (script, threads) in scripts.iter().zip(THREADS) {
            let plural = if threads == 1 { "" } else { "s" };
            let name = format!("{network}, plain PyTorch DQN, {threads} thread{plural}");
            rows.push(script.row(name, compared, &bare));
        }
    }
    rows.push(bare.row(format!("{network}, bare libtorch, update alone"), None, &bare));
    Ok(rows)
}

/// Starts a cluster and measures it as one round.
fn run_cluster(
    directory: &Path,
    differences: &[(&str, &str)],
    seconds: f64,
    round: usize,
    side: &mut Side,
) -> Result<()> {
    let cluster = Cluster::start(directory, &resolve(GAME, differences)?)?;
    let window = Duration::from_secs_f64(SECONDS * seconds);
    sleep(window.mul_f64(SETTLE_SHARE));
    let half = cluster.measure(window)?;
    cluster.end()?;
    (side.frames.0[round], side.updates.0[round]) = (half.frames, half.updates);
    side.cores.0[round] = half.cpu_in_all;
    if let Some(ratio) = half.samples_per_insert {
        side.samples_per_insert.get_or_insert_default().0[round] = ratio;
    }
    Ok(())
}

/// Frames and updates per second, and cores in use.
fn run_script(server: &mut Server, threads: u32, seconds: f64) -> Result<[f64; 3]> {
    let answer = server.ask(&json!({ "seconds": seconds, "threads": threads }))?;
    let wall = number(&answer, "wall")?;
    let [frames, updates, cpu] = ["frames", "updates", "cpu"].map(|key| number(&answer, key));
    Ok([frames? / wall, updates? / wall, cpu? / wall])
}

/// Updates per second, and cores in use.
fn run_bare(settings: &Settings, seconds: f64) -> Result<(f64, f64)> {
    let mut bare = BareLearner::new(settings, ACTIONS)?;
    let batches = plain_batches(settings, ACTIONS);
    let mut next = batches.iter().cycle();
    let mut update = || {
        next.next().into_iter().for_each(|batch| bare.update(batch));
        Ok(())
    };
    repeat(seconds * SETTLE_SHARE, &mut update)?;
    let spent = repeat(seconds, &mut update)?;
    Ok((spent.calls as f64 / spent.wall, spent.cpu / spent.wall))
}
