//! Makes the runs of a sweep, a few at a time, each a `quiver train` of its own.
//!
//! What has been done is known from the runs' directories alone, so a sweep can be interrupted in any way and started
//! again: a finished run is passed over, one that was begun goes on from its checkpoint. One that fails is reported and
//! the others go on. If a sweep is killed, the runs that it had started write a checkpoint and end; a sweep that comes
//! before they are done finds them in use and waits.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use run::directory::{DirectoryError, check_free};
use run::order::Sweep;
use rustix::process::{Pid, Signal, kill_process};

use super::plan::Run;
use super::progress::{Progress, Standing, frames};
use super::stopwatch::Stopwatch;

/// How often runs are looked at; also the longest that a signal waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a run that another process trains is looked at.
const LOOK_ELSEWHERE_EVERY: Duration = Duration::from_secs(2);
/// How long runs may take to write their checkpoints and end; `quiver train` itself gives its processes 23 s.
const STOP_WAIT_MAX: Duration = Duration::from_secs(40);
/// How much of a failed run's log is quoted.
const QUOTED_LINES: usize = 5;
const QUOTED_BYTES_MAX: u64 = 4 << 10;

/// What became of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why runs failed, one sentence each.
    pub failures: Vec<String>,
    /// Whether someone asked to stop before its end.
    pub stopped: bool,
    /// Whether runs were killed then, since someone asked once more or they took too long.
    pub at_once: bool,
}

/// The runs and where each stands.
pub struct Supervisor<'a> {
    quiver: &'a Path,
    sweep: &'a Sweep,
    runs: &'a [Run],
    states: Vec<State>,
}

#[derive(Debug)]
enum State {
    /// Not begun, or not ended yet.
    Waiting,
    /// A process of ours trains it.
    Running(Child),
    /// A process of somebody else does; looked at last then.
    Elsewhere(Instant),
    /// Nothing is left to do.
    Finished,
    /// It ended as it should not, and why.
    Failed(String),
}

impl<'a> Supervisor<'a> {
    /// Looks at what is there; starts nothing yet.
    pub fn new(quiver: &'a Path, sweep: &'a Sweep, runs: &'a [Run]) -> Self {
        let state = |run: &Run| if run.is_finished() { State::Finished } else { State::Waiting };
        Self { quiver, sweep, runs, states: runs.iter().map(state).collect() }
    }

    /// Makes all runs. `asked` becomes true when someone wants it to stop; a second time, at once.
    pub fn run(mut self, asked: &AtomicBool, progress: &mut Progress<'_>, time: &mut Stopwatch) -> Outcome {
        let mut stopping: Option<Instant> = None;
        let mut at_once = false;
        progress.begin(&self.standing());
        loop {
            let waited = stopping.is_some_and(|since| since.elapsed() > STOP_WAIT_MAX);
            match (asked.swap(false, Ordering::Relaxed), stopping) {
                (true, None) => {
                    progress.say("fig6: stopping, each run writes a checkpoint (once more: quit at once)");
                    self.each_child(terminate);
                    stopping = Some(Instant::now());
                }
                (again, _) if again || waited => {
                    self.each_child(|child| drop(child.kill()));
                    at_once = true;
                }
                _ => {}
            }
            for index in 0..self.runs.len() {
                self.look(index, stopping.is_some(), progress);
            }
            if stopping.is_none() {
                self.start_due(progress);
            }
            if !self.is_busy(stopping.is_some()) {
                break;
            }
            progress.show(|| self.standing());
            time.tick();
            thread::sleep(LOOK_EVERY);
        }
        progress.end();
        Outcome { failures: self.failures(), stopped: stopping.is_some(), at_once }
    }

    /// Whether there is something left to wait for.
    fn is_busy(&self, stopping: bool) -> bool {
        self.states.iter().any(|state| match state {
            State::Running(_) => true,
            State::Waiting | State::Elsewhere(_) => !stopping,
            State::Finished | State::Failed(_) => false,
        })
    }

    /// Starts runs while there is room for them.
    fn start_due(&mut self, progress: &Progress<'_>) {
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
                    .say(&format!("fig6: {} is being trained by another process; waiting for it", run.name));
                State::Elsewhere(Instant::now())
            } else {
                let goes_on = if run.can_go_on() { "going on with" } else { "starting" };
                progress.say(&format!("fig6: {goes_on} {}", run.name));
                match start(self.quiver, self.sweep, run) {
                    Ok(child) => State::Running(child),
                    Err(error) => State::Failed(format!("{}: {error:#}", run.name)),
                }
            };
        }
    }

    /// Finds out whether a run has ended, and how.
    fn look(&mut self, index: usize, stopping: bool, progress: &Progress<'_>) {
        let run = &self.runs[index];
        let next = match &mut self.states[index] {
            State::Running(child) => match child.try_wait() {
                Ok(None) => return,
                Ok(Some(_)) if run.is_finished() => State::Finished,
                Ok(Some(_)) if stopping => State::Waiting,
                // Its launcher had been killed and was still there when ours came.
                Ok(Some(_)) if is_elsewhere(run) => State::Elsewhere(Instant::now()),
                Ok(Some(status)) => {
                    State::Failed(format!("{} ended with {status}{}", run.name, last_words(run)))
                }
                Err(error) => State::Failed(format!("{} can't be waited for: {error}", run.name)),
            },
            State::Elsewhere(looked) if looked.elapsed() >= LOOK_ELSEWHERE_EVERY => match is_elsewhere(run) {
                true => State::Elsewhere(Instant::now()),
                false if run.is_finished() => State::Finished,
                false => State::Waiting,
            },
            _ => return,
        };
        match &next {
            State::Finished => {
                // Nothing that can be done with a finished run of a sweep needs it, and it is large.
                let _ = fs::remove_dir_all(run.path.join("replay"));
                progress.say(&format!("fig6: {} is done", run.name));
            }
            State::Failed(why) => progress.say(&format!("fig6: {why}")),
            _ => {}
        }
        self.states[index] = next;
    }

    fn standing(&self) -> Standing {
        let mut standing = Standing { runs: self.runs.len(), ..Standing::default() };
        for (run, state) in self.runs.iter().zip(&self.states) {
            let done = match state {
                State::Finished => {
                    standing.finished += 1;
                    run.budget()
                }
                _ => frames(&run.path).min(run.budget()),
            };
            standing.running += usize::from(matches!(state, State::Running(_) | State::Elsewhere(_)));
            standing.failed += usize::from(matches!(state, State::Failed(_)));
            standing.frames += done;
            // What has failed is not waited for.
            standing.budget += if matches!(state, State::Failed(_)) { done } else { run.budget() };
        }
        standing
    }

    fn failures(&self) -> Vec<String> {
        let failure = |state: &State| match state {
            State::Failed(why) => Some(why.clone()),
            _ => None,
        };
        self.states.iter().filter_map(failure).collect()
    }

    fn each_child(&mut self, mut tell: impl FnMut(&mut Child)) {
        for state in &mut self.states {
            if let State::Running(child) = state {
                tell(child);
            }
        }
    }
}

/// Whatever way a sweep ends, its runs end with a checkpoint.
impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.each_child(terminate);
    }
}

/// Asks a run to write a checkpoint and end. It is not reaped yet, so the number is still its own.
fn terminate(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

/// Starts a run in a process group of its own, so that Ctrl-C in a terminal reaches the sweep alone, which passes it on once.
/// If the sweep dies, so does the other end of the run's standard input, and the run ends by itself.
fn start(quiver: &Path, sweep: &Sweep, run: &Run) -> Result<Child> {
    if !run.can_go_on() && run.path.exists() {
        // It was killed before its first checkpoint.
        fs::remove_dir_all(&run.path).with_context(|| format!("can't clear {}", run.path.display()))?;
    }
    let words = run.words(sweep);
    let open = || File::options().create(true).append(true).open(&run.log);
    let mut log = open().with_context(|| format!("can't write {}; free some space", run.log.display()))?;
    writeln!(log, "$ quiver {}", words.join(" "))?;
    let errors = log.try_clone()?;
    let mut command = Command::new(quiver);
    command.args(words).stdin(Stdio::piped()).stdout(log).stderr(errors).process_group(0);
    command.spawn().with_context(|| format!("can't start {}; run `make build`", quiver.display()))
}

/// Whether another process trains it now.
fn is_elsewhere(run: &Run) -> bool {
    matches!(check_free(&run.path), Err(DirectoryError::InUse(_)))
}

/// The end of a run's log.
fn last_words(run: &Run) -> String {
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
