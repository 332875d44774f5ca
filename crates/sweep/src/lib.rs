//! A sweep: one `quiver train` for every game × variant × seed, a few at a time, resumable at any point.
//!
//! [`LockedSweep`] plans the runs ([`plan`]) and locks the sweep's folder (`folder`). [`LockedSweep::run`] trains the
//! unfinished runs (`runner`, `launch`), shows [`progress`] and emits [`events`] for programs. The runs' directories are the only
//! state. `quiver sweep` and figure 6 of `quiver paper` are its callers. Does not link libtorch. Of the runs' records it
//! reads the final [`scores`] only; comparing them is the caller's.
#![forbid(unsafe_code)]

pub mod events;
mod folder;
mod launch;
mod pace;
pub mod plan;
pub mod progress;
mod runner;
pub mod scores;
mod stopwatch;
#[cfg(feature = "testing")]
pub mod testing;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use run::command::Sweep;

pub use plan::{Run, label};
pub use progress::SweepProgress;
use runner::Runner;
use stopwatch::Stopwatch;

/// What a shell reports of a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// A planned sweep whose folder is locked and checked to hold no other sweep's runs.
#[derive(Debug)]
pub struct LockedSweep<'a> {
    sweep: &'a Sweep,
    runs: Vec<Run>,
    quiver: PathBuf,
    out: PathBuf,
    _lock: File,
}

impl<'a> LockedSweep<'a> {
    /// Plans the runs below `out`, with consecutive seeds from `first_seed`. `quiver` is the program that trains them.
    pub fn new(out: &Path, first_seed: u64, sweep: &'a Sweep, quiver: PathBuf) -> Result<Self> {
        let runs = plan::runs(out, first_seed, sweep)?;
        let lock = folder::claim(out, &runs)?;
        Ok(Self { sweep, runs, quiver, out: out.to_owned(), _lock: lock })
    }

    pub fn sweep(&self) -> &'a Sweep {
        self.sweep
    }

    /// The sweep's folder.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// All runs, finished or not, ordered by seed.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Trains every run that is not finished. `stop` becomes true when the user asks to stop; if it becomes true again,
    /// runs are killed.
    pub fn run(&self, stop: &AtomicBool, progress: &mut SweepProgress<'_>) -> SweepOutcome {
        let mut stopwatch = Stopwatch::start(&self.out);
        let runner = Runner::new(&self.quiver, self.sweep.parallel, &self.runs);
        let mut outcome = runner.run(stop, progress, &mut stopwatch);
        stopwatch.save();
        outcome.seconds = stopwatch.seconds();
        outcome
    }

    /// Fails unless all runs have finished.
    pub fn check(&self, outcome: &SweepOutcome) -> Result<()> {
        let finished = self.runs.iter().filter(|run| run.is_finished()).count();
        let (all, out) = (self.runs.len(), self.out.display());
        if outcome.stopped && finished < all {
            let failed = match outcome.failures.len() {
                0 => String::new(),
                count => format!(" and {count} failed"),
            };
            let text = format!(
                "stopped with {finished} of {all} runs done{failed}; run the same command with --out {out} to resume"
            );
            return Err(Stopped { text, killed: outcome.killed }.into());
        }
        if !outcome.failures.is_empty() {
            bail!(
                "{} of {all} runs failed; run the same command to retry them: {}",
                outcome.failures.len(),
                outcome.failures.join("; ")
            );
        }
        Ok(())
    }
}

/// How a sweep ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepOutcome {
    /// Why runs failed, one sentence each.
    pub failures: Vec<String>,
    /// Whether the user asked to stop.
    pub stopped: bool,
    /// Whether runs were killed, because the user asked twice or a run took too long to stop.
    pub killed: bool,
    /// Duration of the sweep over all its starts.
    pub seconds: f64,
}

/// The user stopped the sweep before all runs had finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How many runs are done, and how to resume.
    pub text: String,
    /// Whether runs were killed, so that they resume from an older checkpoint.
    pub killed: bool,
}

impl Stopped {
    /// The exit code: stopping in order, on request, is no failure, as with `quiver train`.
    pub fn exit_code(&self) -> u8 {
        if self.killed { INTERRUPTED } else { 0 }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Stopped {}

/// A flag that becomes true on SIGINT and SIGTERM.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("can't catch Ctrl-C")?;
    }
    Ok(stop)
}
