//! A whole little cluster against the same training in one process.
//!
//! One shard, one learner and one actor, each a real process, as `quiver train` starts them but for the evaluator; then
//! `quiver train --lockstep` with the same settings. Both count from the first updates on. They can't take turns, so a
//! machine that is busy with other things in one of the two halves spoils the ratio.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use run::record::Training;
use settings::Resolved;
use settings::resolve::Layers;

use crate::process::{Metrics, Process};
use crate::section::{Row, Section};

const GAME: &str = "pong";

const PRESET: &str = "quick";

/// Seconds of wall time for each half, for one second of a stretch.
const SECONDS: f64 = 20.0;

/// How long the first updates may take on a busy machine: the replay is filled before.
const FIRST_PATIENCE: Duration = Duration::from_secs(180);

/// Overrides that keep evaluations, checkpoints and the end of training out of the measured window.
const DIFFERENCES: [(&str, &str); 5] = [
    ("frames", "40M"),
    ("evaluate_every_frames", "40M"),
    ("checkpoint_every_frames", "40M"),
    ("evaluate_episodes", "1"),
    ("baselines", "false"),
];

pub fn section(seconds: f64) -> Result<Section> {
    let (directory, window) = (tempfile::tempdir()?, Duration::from_secs_f64(SECONDS * seconds));
    let (cluster, lockstep) = (cluster(directory.path(), window)?, lockstep(directory.path(), window)?);
    let ratio = cluster.frames / lockstep.frames;
    let lanes = settings(false)?.settings.lanes;
    Ok(Section {
        topic: "cluster",
        title: format!(
            "{GAME}, preset {PRESET}, {:.0} s of wall time each; ratio of frames/s; % of wall time",
            window.as_secs_f64()
        ),
        columns: &[
            "frames/s",
            "updates/s",
            "samples/insert",
            "ratio",
            "not libtorch %",
            "batch wait %",
            "learner CPU %",
            "actor CPU %",
            "shard CPU %",
            "all CPU %",
        ],
        rows: vec![
            cluster.row(format!("cluster, 1 actor of {lanes} lanes"), Some(ratio)),
            lockstep.row("lockstep".into(), None),
        ],
    })
}

/// What one side did, per second of wall time and as shares of it.
pub struct Half {
    pub frames: f64,
    pub updates: f64,
    pub samples_per_insert: Option<f64>,
    not_libtorch: Option<f64>,
    batch_wait: Option<f64>,
    cpu: [Option<f64>; 3],
    pub cpu_in_all: f64,
}

impl Half {
    fn row(&self, name: String, ratio: Option<f64>) -> Row {
        let percent = |share: Option<f64>| share.map(|share| 100.0 * share);
        let [learner, actor, shard] = self.cpu.map(percent);
        let cells = vec![
            Some(self.frames),
            Some(self.updates),
            self.samples_per_insert,
            ratio,
            percent(self.not_libtorch),
            percent(self.batch_wait),
            learner,
            actor,
            shard,
            percent(Some(self.cpu_in_all)),
        ];
        Row { name, cells }
    }
}

/// The preset with these differences.
fn settings(lockstep: bool) -> Result<Resolved> {
    resolve(GAME, &[("lockstep", if lockstep { "true" } else { "false" })])
}

/// The preset for a game, with these differences and those of all clusters.
pub fn resolve(game: &str, differences: &[(&str, &str)]) -> Result<Resolved> {
    let flag = |&(key, text): &(&str, &str)| (key.to_owned(), text.to_owned());
    let flags = DIFFERENCES.iter().chain(differences).map(flag).collect();
    Ok(Layers { preset: Some(PRESET), flags, ..Layers::default() }.resolve(Some(game))?)
}

/// Writes the settings for the processes.
fn write_settings(directory: &Path, resolved: &Resolved) -> Result<String> {
    let path = directory.join(format!("lockstep-{}.toml", resolved.settings.lockstep));
    fs::write(&path, resolved.to_toml(false))?;
    Ok(path.display().to_string())
}

fn cluster(directory: &Path, window: Duration) -> Result<Half> {
    let cluster = Cluster::start(directory, &settings(false)?)?;
    let half = cluster.measure(window)?;
    cluster.end()?;
    Ok(half)
}

/// One shard, one learner and one actor.
pub struct Cluster {
    shard: Process,
    learner: Process,
    actor: Process,
}

impl Cluster {
    /// Starts them in `directory`, and waits for the first update.
    pub fn start(directory: &Path, resolved: &Resolved) -> Result<Self> {
        let config = write_settings(directory, resolved)?;
        let address = |name: &str| format!("unix:{}", directory.join(name).display());
        let start = |program, arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            Process::serve(program, directory, &arguments)
        };
        let run_dir = directory.join("run").display().to_string();
        let (shard_address, learner_address) = (address("shard"), address("learner"));
        let shard = start("quiver-replay-server", &["--listen", &shard_address])?;
        let flags = [
            "--config",
            &config,
            "--run-dir",
            &run_dir,
            "--listen",
            &learner_address,
            "--shard",
            &shard_address,
        ];
        let mut learner = start("quiver-learner", &flags)?;
        let actor = start("quiver-actor", &["--learner", &learner_address])?;
        learner.wait("make an update", FIRST_PATIENCE, |learner| {
            Ok(learner.metrics()?.get("quiver_learner_updates_total")? > 0.0)
        })?;
        Ok(Self { shard, learner, actor })
    }

    /// What it does within the next `window`.
    pub fn measure(&self, window: Duration) -> Result<Half> {
        let look = || -> Result<(Metrics, [f64; 3])> {
            let Self { shard, learner, actor } = self;
            let cpu = [learner.cpu_seconds()?, actor.cpu_seconds()?, shard.cpu_seconds()?];
            Ok((learner.metrics()?, cpu))
        };
        let (before, cpu_before) = look()?;
        sleep(window);
        let (after, cpu_after) = look()?;
        let wall = (after.at - before.at).as_secs_f64();
        let grown = |name: &str| after.since(&before, name);
        let cpu: [f64; 3] = std::array::from_fn(|process| (cpu_after[process] - cpu_before[process]) / wall);
        Ok(Half {
            frames: grown("quiver_learner_frames")? / wall,
            updates: grown("quiver_learner_updates_total")? / wall,
            samples_per_insert: Some(
                grown("quiver_learner_samples_total")? / grown("quiver_learner_inserts_total")?,
            ),
            not_libtorch: Some(1.0 - grown("quiver_learner_update_seconds_sum")? / wall),
            batch_wait: Some(grown("quiver_learner_batch_wait_seconds_total")? / wall),
            cpu: cpu.map(Some),
            cpu_in_all: cpu.iter().sum(),
        })
    }

    /// Ends all three.
    pub fn end(self) -> Result<()> {
        self.learner.end()?;
        self.actor.end()?;
        self.shard.end()
    }
}

/// One process. It exports nothing, but keeps a record: a line for every few hundred updates.
fn lockstep(directory: &Path, window: Duration) -> Result<Half> {
    let config = write_settings(directory, &settings(true)?)?;
    let run_dir = directory.join("lockstep");
    let mut process = Process::start(
        "quiver",
        directory,
        &["train", "--config", &config, "--lockstep", "--run-dir", &run_dir.display().to_string()],
    )?;
    let record = run_dir.join("training.jsonl");
    let before = next_line(&mut process, &record)?;
    sleep(window);
    let after = next_line(&mut process, &record)?;
    process.end()?;
    let wall = (after.at - before.at).as_secs_f64();
    Ok(Half {
        frames: (after.training.frames - before.training.frames) as f64 / wall,
        updates: (after.training.updates - before.training.updates) as f64 / wall,
        samples_per_insert: None,
        not_libtorch: None,
        batch_wait: None,
        cpu: [None; 3],
        cpu_in_all: (after.cpu_seconds - before.cpu_seconds) / wall,
    })
}

/// A line of the record at the moment at which it was written.
struct Line {
    at: Instant,
    cpu_seconds: f64,
    training: Training,
}

/// Waits for a line beyond those that are there now.
fn next_line(process: &mut Process, record: &Path) -> Result<Line> {
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(record).unwrap_or_default();
        // One that is being written has no end yet.
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
    };
    let there = lines().len();
    process.wait("continue learning", FIRST_PATIENCE, |_| Ok(lines().len() > there))?;
    let (at, cpu_seconds, lines) = (Instant::now(), process.cpu_seconds()?, lines());
    let newest = lines.last().context("the record became shorter")?;
    Ok(Line { at, cpu_seconds, training: serde_json::from_str(newest)? })
}
