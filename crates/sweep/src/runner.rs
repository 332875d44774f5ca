//! Trains the runs of a sweep, a few at a time, each as a `quiver train` of its own.
//!
//! The runs' directories are the only state, so a sweep can be interrupted at any point and started again: a finished
//! run is skipped, an unfinished one resumes from its checkpoint. A failed run is reported and the others continue. If
//! a sweep is killed, the runs that it started write a checkpoint and exit; a sweep that starts before they have exited
//! finds them in use and waits.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use run::command::Sweep;
use run::directory::{RunDirError, check_free};
use rustix::process::{Pid, Signal, kill_process};

use crate::SweepOutcome;
use crate::plan::Run;
use crate::progress::{Status, SweepProgress, frames};
use crate::stopwatch::Stopwatch;

/// Time between two polls of the runs, and the longest delay until a signal is handled.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Time between two polls of a run that another process trains.
const POLL_ELSEWHERE_EVERY: Duration = Duration::from_secs(2);
/// How long runs may take to write their checkpoints and exit. `quiver train` itself gives its processes 23 s.
const STOP_WAIT_MAX: Duration = Duration::from_secs(40);
/// How much of a failed run's log is quoted.
const QUOTED_LINES: usize = 5;
const QUOTED_BYTES_MAX: u64 = 4 << 10;

/// The runs and the state of each.
pub struct Runner<'a> {
    quiver: &'a Path,
    sweep: &'a Sweep,
    runs: &'a [Run],
    states: Vec<State>,
}

#[derive(Debug)]
enum State {
    /// Not started, or stopped before its end.
    Waiting,
    /// A child process trains it.
    Running(Child),
    /// Another process trains it; last polled at this time.
    Elsewhere(Instant),
    Finished,
    /// Its process failed, for this reason.
    Failed(String),
}

impl<'a> Runner<'a> {
    /// Reads the runs' directories; starts nothing yet.
    pub fn new(quiver: &'a Path, sweep: &'a Sweep, runs: &'a [Run]) -> Self {
        let state = |run: &Run| if run.is_finished() { State::Finished } else { State::Waiting };
        Self { quiver, sweep, runs, states: runs.iter().map(state).collect() }
    }

    /// Trains all runs; see [`crate::LockedSweep::run`].
    pub fn run(
        mut self,
        stop: &AtomicBool,
        progress: &mut SweepProgress<'_>,
        time: &mut Stopwatch,
    ) -> SweepOutcome {
        let mut stopping: Option<Instant> = None;
        let mut killed = false;
        progress.begin(&self.status());
        loop {
            let waited = stopping.is_some_and(|since| since.elapsed() > STOP_WAIT_MAX);
            match (stop.swap(false, Ordering::Relaxed), stopping) {
                (true, None) => {
                    progress
                        .print_line("stopping: each run writes a checkpoint (Ctrl-C again: quit at once)");
                    self.each_child(terminate);
                    stopping = Some(Instant::now());
                }
                (again, _) if again || waited => {
                    self.each_child(|child| drop(child.kill()));
                    killed = true;
                }
                _ => {}
            }
            for index in 0..self.runs.len() {
                self.poll(index, stopping.is_some(), progress);
            }
            if stopping.is_none() {
                self.start_due(progress);
            }
            if !self.is_busy(stopping.is_some()) {
                break;
            }
            progress.show(|| self.status());
            time.tick();
            thread::sleep(POLL_EVERY);
        }
        progress.end();
        SweepOutcome { failures: self.failures(), stopped: stopping.is_some(), killed, seconds: 0.0 }
    }

    /// Whether a run is left to wait for.
    fn is_busy(&self, stopping: bool) -> bool {
        self.states.iter().any(|state| match state {
            State::Running(_) => true,
            State::Waiting | State::Elsewhere(_) => !stopping,
            State::Finished | State::Failed(_) => false,
        })
    }

    /// Starts runs until the limit of parallel runs is reached.
    fn start_due(&mut self, progress: &SweepProgress<'_>) {
        for index in 0..self.runs.len() {
            let busy = |state: &&State| matches!(state, State::Running(_) | State::Elsewhere(_));
            if self.states.iter().filter(busy).count() >= self.sweep.parallel.max(1) {
                return;
            }
            if !matches!(self.states[index], State::Waiting) {
                continue;
            }
            let run = &self.runs[index];
            self.states[index] = if is_elsewhere(run) {
                progress
                    .print_line(&format!("{} is being trained by another process; waiting for it", run.name));
                State::Elsewhere(Instant::now())
            } else {
                let verb = if run.can_resume() { "resuming" } else { "starting" };
                progress.print_line(&format!("{verb} {}", run.name));
                match start(self.quiver, self.sweep, run) {
                    Ok(child) => State::Running(child),
                    Err(error) => State::Failed(format!("{}: {error:#}", run.name)),
                }
            };
        }
    }

    /// Checks whether a run has ended, and how it ended.
    fn poll(&mut self, index: usize, stopping: bool, progress: &SweepProgress<'_>) {
        let run = &self.runs[index];
        let next = match &mut self.states[index] {
            State::Running(child) => match child.try_wait() {
                Ok(None) => return,
                Ok(Some(_)) if run.is_finished() => State::Finished,
                Ok(Some(_)) if stopping => State::Waiting,
                // The launcher of a killed sweep still held the run when this child started.
                Ok(Some(_)) if is_elsewhere(run) => State::Elsewhere(Instant::now()),
                Ok(Some(status)) => {
                    State::Failed(format!("{} ended with {status}{}", run.name, log_tail(run)))
                }
                Err(error) => State::Failed(format!("{} can't be waited for: {error}", run.name)),
            },
            State::Elsewhere(polled) if polled.elapsed() >= POLL_ELSEWHERE_EVERY => match is_elsewhere(run) {
                true => State::Elsewhere(Instant::now()),
                false if run.is_finished() => State::Finished,
                false => State::Waiting,
            },
            _ => return,
        };
        match &next {
            State::Finished => {
                // Deletes the replay, which is large. A finished run is evaluated and plotted without it.
                let _ = fs::remove_dir_all(run.path.join("replay"));
                progress.print_line(&format!("{} is done", run.name));
            }
            State::Failed(why) => progress.print_line(why),
            _ => {}
        }
        self.states[index] = next;
    }

    fn status(&self) -> Status {
        let mut status = Status { runs: self.runs.len(), ..Status::default() };
        for (run, state) in self.runs.iter().zip(&self.states) {
            let done = match state {
                State::Finished => {
                    status.finished += 1;
                    run.budget()
                }
                _ => frames(&run.path).min(run.budget()),
            };
            status.running += usize::from(matches!(state, State::Running(_) | State::Elsewhere(_)));
            status.failed += usize::from(matches!(state, State::Failed(_)));
            status.frames += done;
            // A failed run gets no more frames.
            status.budget += if matches!(state, State::Failed(_)) { done } else { run.budget() };
        }
        status
    }

    fn failures(&self) -> Vec<String> {
        let failure = |state: &State| match state {
            State::Failed(why) => Some(why.clone()),
            _ => None,
        };
        self.states.iter().filter_map(failure).collect()
    }

    fn each_child(&mut self, mut apply: impl FnMut(&mut Child)) {
        for state in &mut self.states {
            if let State::Running(child) = state {
                apply(child);
            }
        }
    }
}

/// However the sweep ends, its runs are asked to write a checkpoint.
impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.each_child(terminate);
    }
}

/// Asks a run to write a checkpoint and exit. The child is not reaped yet, so its pid can't belong to another process.
fn terminate(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

/// Starts a run in its own process group, so that Ctrl-C in a terminal reaches only the sweep, which forwards it once.
/// If the sweep dies, the run's stdin closes and the run exits.
fn start(quiver: &Path, sweep: &Sweep, run: &Run) -> Result<Child> {
    if !run.can_resume() && run.path.exists() {
        // The run was killed before its first checkpoint, so it starts over.
        fs::remove_dir_all(&run.path).with_context(|| format!("can't delete {}", run.path.display()))?;
    }
    let arguments = run.arguments(sweep);
    let open = || File::options().create(true).append(true).open(&run.log);
    let mut log =
        open().with_context(|| format!("can't write {}: free some disk space", run.log.display()))?;
    writeln!(log, "$ quiver {}", arguments.join(" "))?;
    let errors = log.try_clone()?;
    let mut command = Command::new(quiver);
    command.args(arguments).stdin(Stdio::piped()).stdout(log).stderr(errors).process_group(0);
    command.spawn().with_context(|| format!("can't start {}: run `make build`", quiver.display()))
}

/// Whether another process trains the run now.
fn is_elsewhere(run: &Run) -> bool {
    matches!(check_free(&run.path), Err(RunDirError::InUse(_)))
}

/// The end of a run's log.
fn log_tail(run: &Run) -> String {
    let text = tail(&run.log, QUOTED_BYTES_MAX).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
    format!("; the end of {} is\n  {}", run.log.display(), last.join("\n  "))
}

/// The last bytes of a file as text.
pub fn tail(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
