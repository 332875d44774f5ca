//! Trains the runs of a sweep, a few at a time, each as a `quiver train` of its own.
//!
//! The runs' directories are the only state, so a sweep can be interrupted at any point and started again: a finished
//! run is skipped, an unfinished one resumes from its checkpoint. A failed run is reported and the others continue. If
//! a sweep is killed, the runs that it started write a checkpoint and exit; a sweep that starts before they have exited
//! finds them in use and waits.
#![allow(clippy::disallowed_methods, reason = "the runner polls its child processes")]

use std::fs;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::SweepOutcome;
use crate::events::RunEvent;
use crate::launch::{is_elsewhere, log_tail, start, terminate};
use crate::pace::Paces;
use crate::plan::Run;
use crate::progress::{Reached, Status, SweepProgress, frames};
use crate::stopwatch::Stopwatch;

/// Time between two polls of the runs, and the longest delay until a signal is handled.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Time between two polls of a run that another process trains.
const POLL_ELSEWHERE_EVERY: Duration = Duration::from_secs(2);
/// How long runs may take to write their checkpoints and exit. `quiver train` itself gives its processes 23 s.
const STOP_WAIT_MAX: Duration = Duration::from_secs(40);

/// The runs and the state of each.
pub struct Runner<'a> {
    quiver: &'a Path,
    parallel: usize,
    runs: &'a [Run],
    states: Vec<State>,
    started: Instant,
    /// What has trained since this start, without runs that train now.
    paces: Paces<'a>,
}

#[derive(Debug)]
enum State {
    /// Not started, or stopped before its end.
    Waiting,
    /// A child process trains it.
    Running(Training),
    /// Another process trains it; last polled at this time.
    Elsewhere(Instant),
    Finished,
    /// Its process failed, for this reason.
    Failed(String),
}

/// A child process and the progress of its run.
#[derive(Debug)]
struct Training {
    child: Child,
    since: Instant,
    reached: Reached,
}

impl Training {
    fn new(child: Child, run: &Run) -> Self {
        let reached = Reached::new(run.resumes_at().unwrap_or_default(), frames(&run.path));
        Self { child, since: Instant::now(), reached }
    }

    /// The frame that it has reached, at most its budget.
    fn frames(&mut self, run: &Run) -> u64 {
        self.reached.frames(frames(&run.path)).min(run.budget())
    }
}

impl<'a> Runner<'a> {
    /// Reads the runs' directories; starts nothing yet.
    pub fn new(quiver: &'a Path, parallel: usize, runs: &'a [Run]) -> Self {
        let state = |run: &Run| {
            if !run.is_finished() {
                return State::Waiting;
            }
            // A sweep that was killed when the run had just finished has left the replay.
            if !is_elsewhere(run) {
                delete_replay(run);
            }
            State::Finished
        };
        let states = runs.iter().map(state).collect();
        Self {
            quiver,
            parallel: parallel.max(1),
            runs,
            states,
            started: Instant::now(),
            paces: Paces::default(),
        }
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
        let busy = |state: &&State| matches!(state, State::Running(_) | State::Elsewhere(_));
        let mut free = self.parallel.saturating_sub(self.states.iter().filter(busy).count());
        for (run, state) in self.runs.iter().zip(&mut self.states) {
            if free == 0 {
                return;
            }
            if !matches!(state, State::Waiting) {
                continue;
            }
            let at = run.resumes_at();
            let report = |event| progress.report(event, run, at.unwrap_or_default());
            *state = if is_elsewhere(run) {
                report(RunEvent::Elsewhere);
                State::Elsewhere(Instant::now())
            } else {
                match start(self.quiver, run) {
                    Ok(child) => {
                        report(if at.is_some() { RunEvent::Resumed } else { RunEvent::Started });
                        State::Running(Training::new(child, run))
                    }
                    Err(error) => {
                        let why = format!("{}: {error:#}", run.name);
                        report(RunEvent::Failed(&why));
                        State::Failed(why)
                    }
                }
            };
            free -= usize::from(busy(&&*state));
        }
    }

    /// Checks whether a run has ended, and how it ended.
    fn poll(&mut self, index: usize, stopping: bool, progress: &SweepProgress<'_>) {
        let run = &self.runs[index];
        let next = match &mut self.states[index] {
            State::Running(training) => match training.child.try_wait() {
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
        if let State::Running(training) = &mut self.states[index] {
            let at = if matches!(next, State::Finished) { run.budget() } else { training.frames(run) };
            let seconds = training.since.elapsed().as_secs_f64();
            self.paces.add(&run.game, at.saturating_sub(training.reached.from), seconds);
            let reached = |event| progress.report(event, run, run.resumes_at().unwrap_or_default());
            match &next {
                State::Waiting => reached(RunEvent::Stopped),
                State::Elsewhere(_) => reached(RunEvent::Elsewhere),
                _ => {}
            }
        }
        match &next {
            State::Finished => {
                delete_replay(run);
                progress.report(RunEvent::Finished, run, run.budget());
            }
            State::Failed(why) => {
                progress.report(RunEvent::Failed(why), run, run.resumes_at().unwrap_or_default());
            }
            _ => {}
        }
        self.states[index] = next;
    }

    fn status(&mut self) -> Status {
        let mut status = Status { runs: self.runs.len(), ..Status::default() };
        let (mut paces, mut left) = (self.paces.clone(), Vec::new());
        for (run, state) in self.runs.iter().zip(&mut self.states) {
            let budget = run.budget();
            let done = match state {
                State::Finished => budget,
                State::Running(training) => {
                    let done = training.frames(run);
                    paces.add(
                        &run.game,
                        done.saturating_sub(training.reached.from),
                        training.since.elapsed().as_secs_f64(),
                    );
                    done
                }
                State::Elsewhere(_) => frames(&run.path),
                State::Waiting | State::Failed(_) => run.resumes_at().unwrap_or_default(),
            };
            let done = done.min(budget);
            status.finished += usize::from(matches!(state, State::Finished));
            status.running += usize::from(matches!(state, State::Running(_) | State::Elsewhere(_)));
            status.failed += usize::from(matches!(state, State::Failed(_)));
            status.frames += done;
            // A failed run gets no more frames.
            status.budget += if matches!(state, State::Failed(_)) { done } else { budget };
            if !matches!(state, State::Finished | State::Failed(_)) {
                left.push((run.game.as_str(), budget - done));
            }
        }
        let trained = paces.frames();
        status.frames_per_second =
            (trained > 0).then(|| trained as f64 / self.started.elapsed().as_secs_f64());
        status.seconds_left = paces.seconds_left(&left, self.parallel);
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
            if let State::Running(training) = state {
                apply(&mut training.child);
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

/// Deletes the replay, which is large. A finished run is evaluated and plotted without it.
fn delete_replay(run: &Run) {
    let _ = fs::remove_dir_all(run.path.join("replay"));
}
