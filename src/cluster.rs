//! `quiver train` without `--lockstep`: starts and supervises a cluster of processes on one machine.
//!
//! [`train`] starts the learner first. The learner creates the run directory and reports that it is ready. Then the shards,
//! which keep their data in that directory, the actors and the evaluator start. [`Cluster::watch`] displays the learner's
//! events and restarts processes that die ([`restart`] decides), until the learner has finished, the user asks to stop, or a
//! process fails for good. Then [`closing`] ends all children, the learner first, because it writes the checkpoint.
//!
//! One thread polls everything several times a second; other threads only read pipes. Nothing here knows gRPC or networks.
#![allow(clippy::disallowed_methods, reason = "the launcher polls its child processes")]

mod child;
mod closing;
mod log;
mod plan;
mod restart;
mod roster;
mod signals;
mod sockets;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use run::adjusted::{self, Changes};
use run::event::{Event, RunOutcome};
use run::progress::ProgressDisplay;
use settings::Resolved;

use crate::output::one_line;
use crate::torch;
use child::{Child, ChildExit};
use plan::Programs;
use restart::{ChildRole, FAILURES_MAX, RestartDecision, ordinal, restart_decision};
use roster::Roster;
use signals::Signals;
use sockets::Sockets;

/// Interval at which children are polled; also the longest delay of a signal.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Interval at which `processes.json` is updated when no process has started or ended.
const ROSTER_EVERY: Duration = Duration::from_millis(500);
/// Delay before a player that exited with code 0 is restarted. It may have exited because the run is over, and the learner's
/// event may arrive later.
const EVENT_WAIT: Duration = Duration::from_secs(1);
/// The same delay once all frames are played.
const LAST_EVENT_WAIT: Duration = Duration::from_secs(5);
/// Capacity of the event channel; when it is full, the learner blocks.
const EVENTS_MAX: usize = 256;

/// Trains a new run in `run`, or resumes the run there. The live page is at `page`, or at a free port.
///
/// `overrides` are saved as adjusted settings once this process holds the run. With `exit_with_parent`, the end of stdin stops the
/// run like Ctrl-C.
pub fn train(
    run: &Path,
    resolved: &Resolved,
    overrides: &Changes,
    page: Option<SocketAddr>,
    exit_with_parent: bool,
) -> anyhow::Result<ExitCode> {
    let programs = Programs::find()?;
    torch::probe()?;
    let signals = Signals::catch().context("can't catch Ctrl-C")?;
    if exit_with_parent {
        signals.stop_on_stdin_end();
    }
    let sockets = Sockets::open(run, &plan::socket_names(&resolved.settings))?;
    if !overrides.is_empty() {
        adjusted::save(run, overrides)?;
    }
    fs::write(sockets.config(), resolved.to_toml(true))
        .with_context(|| format!("can't write {}; free space on its disk", sockets.config().display()))?;
    let plans = plan::cluster(&programs, &sockets, run, &resolved.settings, page);
    let (sender, events) = sync_channel(EVENTS_MAX);
    let mut cluster = Cluster {
        run,
        resolved,
        children: plans.into_iter().map(Child::new).collect(),
        sender,
        events,
        signals,
        asked: false,
        progress: ProgressDisplay::new(resolved),
        page: None,
        roster: None,
        roster_due: Instant::now(),
        frames: 0,
        sockets,
    };
    let ending = cluster.watch();
    cluster.close(ending)
}

/// The child processes and their state. Dropping it ends the children first, then deletes the sockets.
struct Cluster<'a> {
    run: &'a Path,
    resolved: &'a Resolved,
    children: Vec<Child>,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
    signals: Signals,
    /// Whether the user has asked to stop.
    asked: bool,
    progress: ProgressDisplay,
    /// The page's address as announced last.
    page: Option<String>,
    /// Set once the learner has created the run directory.
    roster: Option<Roster>,
    roster_due: Instant,
    /// As the learner last reported.
    frames: u64,
    sockets: Sockets,
}

/// Why a cluster ends.
#[derive(Debug)]
enum Ending {
    /// The learner has reached the frame budget.
    Finished(RunOutcome),
    /// The learner has stopped on request, with a checkpoint.
    Stopped,
    /// The user pressed Ctrl-C.
    Asked,
    /// An error that a restart does not fix.
    Failed(String),
}

impl Cluster<'_> {
    /// Starts all processes and supervises them until there is a reason to end.
    fn watch(&mut self) -> Ending {
        self.progress.set_status("starting the learner");
        let now = Instant::now();
        for child in self.children.iter_mut().filter(|child| child.role() == ChildRole::Learner) {
            child.due = Some(now);
        }
        loop {
            if self.signals.take() {
                self.asked = true;
                return Ending::Asked;
            }
            if let Some(ending) = self.start_due().or_else(|| self.poll_events()).or_else(|| self.reap()) {
                return ending;
            }
            if Instant::now() >= self.roster_due {
                self.update_roster();
            }
        }
    }

    /// Starts the children that are due.
    fn start_due(&mut self) -> Option<Ending> {
        let now = Instant::now();
        for index in 0..self.children.len() {
            let child = &mut self.children[index];
            if child.due.is_none_or(|due| due > now) {
                continue;
            }
            if child.exited_early {
                self.progress.print_line(&format!("{} exited early; {}", child.name(), restarting(child)));
            }
            self.roster_due = now;
            if let Err(exit) = child.start(&self.sockets, &self.sender) {
                let ended = ChildExit { exit, uptime: Duration::ZERO };
                if let Some(ending) = self.exited(index, &ended) {
                    return Some(ending);
                }
            }
        }
        None
    }

    /// Whether all frames are played. Players then exit by themselves.
    fn is_over(&self) -> bool {
        self.frames >= self.resolved.settings.frames.0
    }

    /// Handles the learner's events; blocks for at most [`POLL_EVERY`].
    fn poll_events(&mut self) -> Option<Ending> {
        let mut next = self.events.recv_timeout(POLL_EVERY).ok();
        while let Some(event) = next {
            if let Some(ending) = self.handle(event) {
                return Some(ending);
            }
            next = self.events.try_recv().ok();
        }
        None
    }

    fn handle(&mut self, event: Event) -> Option<Ending> {
        match event {
            Event::Ready { frames, .. } => self.ready(frames),
            Event::Progress(progress) => {
                self.frames = progress.frames;
                self.progress.show(&progress);
            }
            Event::Evaluation(evaluation) => self.progress.evaluated(&evaluation),
            Event::Note { text } => self.progress.print_line(&one_line(&text)),
            Event::Stopped { frames } => {
                self.frames = frames;
                return Some(Ending::Stopped);
            }
            Event::Finished(outcome) => return Some(Ending::Finished(outcome)),
        }
        None
    }

    /// The learner is ready, for the first time or after a restart.
    fn ready(&mut self, frames: u64) {
        self.frames = frames;
        if self.roster.is_none() {
            self.begin(frames);
        }
        self.announce_page();
    }

    /// The run directory exists: schedules the start of all other children.
    fn begin(&mut self, frames: u64) {
        self.progress.begin(self.resolved, self.run, frames);
        self.roster = Some(Roster::new(self.run));
        let logs = self.run.join("logs");
        let open = || {
            fs::create_dir_all(&logs)?;
            self.children.iter().try_for_each(|child| child.log_to(&logs))
        };
        if let Err(error) = open() {
            let logs = logs.display();
            self.progress
                .print_line(&format!("can't write to {logs}: {error}; training continues without logs"));
        }
        let now = Instant::now();
        for child in self.children.iter_mut().filter(|child| child.role() != ChildRole::Learner) {
            child.due = Some(now);
        }
    }

    /// Prints the live page's address when it is new.
    fn announce_page(&mut self) {
        let learner = self.children.iter().find(|child| child.role() == ChildRole::Learner);
        let page = learner.and_then(|learner| roster::metrics(&self.sockets.status(learner.name())));
        if let Some(page) = page.filter(|page| self.page.as_ref() != Some(page)) {
            self.progress.print_line(&format!("live page: {page}/"));
            self.page = Some(page);
        }
    }

    /// Reaps children that have exited.
    fn reap(&mut self) -> Option<Ending> {
        for index in 0..self.children.len() {
            let Some(ended) = self.children[index].poll() else { continue };
            // Events that the learner sent before the exit take precedence over the exit.
            while let Ok(event) = self.events.try_recv() {
                if let Some(ending) = self.handle(event) {
                    return Some(ending);
                }
            }
            if let Some(ending) = self.exited(index, &ended) {
                return Some(ending);
            }
        }
        None
    }

    /// Decides what follows from a child's unexpected exit, and reports it.
    fn exited(&mut self, index: usize, ended: &ChildExit) -> Option<Ending> {
        let now = Instant::now();
        self.roster_due = now;
        // A player may exit because the run is over. Give the learner's final event time to arrive before restarting it.
        let event_wait = if self.is_over() { LAST_EVENT_WAIT } else { EVENT_WAIT };
        let child = &mut self.children[index];
        let decision = restart_decision(child.role(), &ended.exit);
        let wait = child.restart_policy.after(&ended.exit, ended.uptime);
        let description = describe(child, ended);
        match (decision, wait) {
            (RestartDecision::Fatal, _) => return Some(self.failed(index, ended)),
            (_, None) => {
                let what = format!("{description}, {FAILURES_MAX} times in a row shortly after its start");
                return Some(Ending::Failed(what + &self.see_log(index)));
            }
            (RestartDecision::Again, Some(wait)) => {
                child.due = Some(now + wait);
                self.progress.print_line(&format!("{description}; {}", restarting(child)));
            }
            (RestartDecision::AgainUnlessOver, Some(wait)) => {
                (child.due, child.exited_early) = (Some(now + wait.max(event_wait)), true);
            }
        }
        None
    }

    /// The error that a child printed before it exited, or else how it exited.
    fn failed(&self, index: usize, ended: &ChildExit) -> Ending {
        let child = &self.children[index];
        Ending::Failed(child.reason().unwrap_or_else(|| {
            let last = child.last_line().map(|line| format!(" ({line})")).unwrap_or_default();
            format!("{}{last}{}", describe(child, ended), self.see_log(index))
        }))
    }

    fn see_log(&self, index: usize) -> String {
        let path = self.run.join("logs").join(format!("{}.log", self.children[index].name()));
        if path.is_file() { format!("; see {}", path.display()) } else { String::new() }
    }

    /// Updates `processes.json`.
    fn update_roster(&mut self) {
        self.roster_due = Instant::now() + ROSTER_EVERY;
        if let Some(roster) = &mut self.roster {
            roster.update(&self.children, &self.sockets);
        }
    }
}

/// `actor-1 exited with code 1 (no such game)`.
fn describe(child: &Child, ended: &ChildExit) -> String {
    let reason = child.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{} {}{reason}", child.name(), ended.exit)
}

fn restarting(child: &Child) -> String {
    format!("restarting it ({} time)", ordinal(child.starts))
}
