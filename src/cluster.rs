//! `quiver train` without `--lockstep`: a cluster of processes on one machine, started and watched.
//!
//! The story is [`train`]: the learner is started first; it makes the run's directory and says that it is ready; shards,
//! which keep their data there, actors and the evaluator follow. Then [`Cluster::watch`] shows what the learner tells and starts again
//! whoever dies ([`mod@fate`] decides), until the learner has finished, someone asks to stop, or something can't be mended.
//! Then [`closing`] ends all children, the learner first, because it writes the checkpoint.
//!
//! One thread looks at everything a few times a second; others only read pipes. Nothing here knows gRPC or networks.

mod child;
mod closing;
mod fate;
mod log;
mod plan;
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
use run::event::{Event, Outcome};
use run::progress::Progress;
use settings::Resolved;

use crate::output::one_line;
use crate::torch;
use child::{Child, Death};
use fate::{FAILURES_MAX, Fate, Role, fate, ordinal};
use plan::Programs;
use roster::Roster;
use signals::Signals;
use sockets::Sockets;

/// How often children are looked at; also the longest that a signal waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often the list of processes is brought up to date although nobody came or went.
const ROSTER_EVERY: Duration = Duration::from_millis(500);
/// How long a player that ended by itself is waited with: the news that the run is over may come after it.
const NEWS_WAIT: Duration = Duration::from_secs(1);
/// The same when all frames are played.
const LAST_NEWS_WAIT: Duration = Duration::from_secs(5);
/// Events that wait to be shown; beyond that the learner waits.
const EVENTS_MAX: usize = 256;

/// Trains a new run in `run`, or goes on with the one that is there. Its page is at `page`, or at a free port.
///
/// `said` is kept as changed once the run is ours. With a lifeline, the end of standard input is a wish to stop.
pub fn train(
    run: &Path,
    resolved: &Resolved,
    said: &Changes,
    page: Option<SocketAddr>,
    lifeline: bool,
) -> anyhow::Result<ExitCode> {
    let programs = Programs::find()?;
    torch::probe()?;
    let signals = Signals::catch().context("can't catch Ctrl-C")?;
    if lifeline {
        signals.heed_input();
    }
    let sockets = Sockets::open(run, &plan::socket_names(&resolved.settings))?;
    if !said.is_empty() {
        adjusted::keep(run, said)?;
    }
    fs::write(sockets.config(), resolved.to_toml(true))
        .with_context(|| format!("can't write {}; free some space", sockets.config().display()))?;
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
        progress: Progress::new(resolved),
        page: None,
        roster: None,
        roster_due: Instant::now(),
        frames: 0,
        sockets,
    };
    let ending = cluster.watch();
    cluster.close(ending)
}

/// The processes and all that is known of them. Whatever way this is dropped, the children are gone, then the sockets.
struct Cluster<'a> {
    run: &'a Path,
    resolved: &'a Resolved,
    children: Vec<Child>,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
    signals: Signals,
    /// Whether someone has asked to stop.
    asked: bool,
    progress: Progress,
    /// Where the page was last said to be.
    page: Option<String>,
    /// There once the learner has made the run's directory.
    roster: Option<Roster>,
    roster_due: Instant,
    /// As the learner last told.
    frames: u64,
    sockets: Sockets,
}

/// Why a cluster ends.
#[derive(Debug)]
enum Ending {
    /// The learner has all the frames it wanted.
    Finished(Outcome),
    /// The learner has stopped, on request, with a checkpoint.
    Stopped,
    /// Someone pressed Ctrl-C.
    Asked,
    /// Something that a new start does not mend.
    Failed(String),
}

impl Cluster<'_> {
    /// Starts everyone and looks after them until there is a reason to end.
    fn watch(&mut self) -> Ending {
        self.progress.note("starting the learner");
        let now = Instant::now();
        for child in self.children.iter_mut().filter(|child| child.role() == Role::Learner) {
            child.due = Some(now);
        }
        loop {
            if self.signals.take() {
                self.asked = true;
                return Ending::Asked;
            }
            if let Some(ending) = self.start_due().or_else(|| self.listen()).or_else(|| self.bury()) {
                return ending;
            }
            if Instant::now() >= self.roster_due {
                self.call_roll();
            }
        }
    }

    /// Starts who is due.
    fn start_due(&mut self) -> Option<Ending> {
        let now = Instant::now();
        for index in 0..self.children.len() {
            let child = &mut self.children[index];
            if child.due.is_none_or(|due| due > now) {
                continue;
            }
            if child.rests {
                self.progress.say(&format!("{} ended early; {}", child.name(), again(child)));
            }
            self.roster_due = now;
            if let Err(end) = child.start(&self.sockets, &self.sender) {
                let death = Death { end, lived: Duration::ZERO };
                if let Some(ending) = self.died(index, &death) {
                    return Some(ending);
                }
            }
        }
        None
    }

    /// Whether all frames are played, so that players end by themselves.
    fn is_over(&self) -> bool {
        self.frames >= self.resolved.settings.frames.0
    }

    /// Shows what the learner tells; waits for it a little.
    fn listen(&mut self) -> Option<Ending> {
        let mut next = self.events.recv_timeout(LOOK_EVERY).ok();
        while let Some(event) = next {
            if let Some(ending) = self.heard(event) {
                return Some(ending);
            }
            next = self.events.try_recv().ok();
        }
        None
    }

    fn heard(&mut self, event: Event) -> Option<Ending> {
        match event {
            Event::Ready { frames, .. } => self.ready(frames),
            Event::Progress(progress) => {
                self.frames = progress.frames;
                self.progress.show(&progress);
            }
            Event::Evaluation(evaluation) => self.progress.evaluated(&evaluation),
            Event::Note { text } => self.progress.say(&one_line(&text)),
            Event::Stopped { frames } => {
                self.frames = frames;
                return Some(Ending::Stopped);
            }
            Event::Finished(outcome) => return Some(Ending::Finished(outcome)),
        }
        None
    }

    /// The learner is there, for the first time or again.
    fn ready(&mut self, frames: u64) {
        self.frames = frames;
        if self.roster.is_none() {
            self.begin(frames);
        }
        self.point_out_page();
    }

    /// There is a directory: the others can be started.
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
            self.progress.say(&format!("can't write to {logs}: {error}; training goes on without logs"));
        }
        let now = Instant::now();
        for child in self.children.iter_mut().filter(|child| child.role() != Role::Learner) {
            child.due = Some(now);
        }
    }

    /// Says where the page is, unless that is known.
    fn point_out_page(&mut self) {
        let learner = self.children.iter().find(|child| child.role() == Role::Learner);
        let page = learner.and_then(|learner| roster::metrics(&self.sockets.status(learner.name())));
        if let Some(page) = page.filter(|page| self.page.as_ref() != Some(page)) {
            self.progress.say(&format!("watch it at {page}/"));
            self.page = Some(page);
        }
    }

    /// Finds out who has ended.
    fn bury(&mut self) -> Option<Ending> {
        for index in 0..self.children.len() {
            let Some(death) = self.children[index].look() else { continue };
            // What was said before the end counts before it.
            while let Ok(event) = self.events.try_recv() {
                if let Some(ending) = self.heard(event) {
                    return Some(ending);
                }
            }
            if let Some(ending) = self.died(index, &death) {
                return Some(ending);
            }
        }
        None
    }

    /// Decides what follows from an unexpected end, and says so.
    fn died(&mut self, index: usize, death: &Death) -> Option<Ending> {
        let now = Instant::now();
        self.roster_due = now;
        // The end of the run is about to be told, unless it was the evaluator and its games are still wanted.
        let news_wait = if self.is_over() { LAST_NEWS_WAIT } else { NEWS_WAIT };
        let child = &mut self.children[index];
        let fate = fate(child.role(), &death.end);
        let wait = child.patience.after(&death.end, death.lived);
        let told = told(child, death);
        match (fate, wait) {
            (Fate::Fatal, _) => return Some(self.failed(index, death)),
            (_, None) => {
                let what = format!("{told}, {FAILURES_MAX} times in a row at its start");
                return Some(Ending::Failed(what + &self.see_log(index)));
            }
            (Fate::Again, Some(wait)) => {
                child.due = Some(now + wait);
                self.progress.say(&format!("{told}; {}", again(child)));
            }
            (Fate::AgainUnlessOver, Some(wait)) => {
                (child.due, child.rests) = (Some(now + wait.max(news_wait)), true);
            }
        }
        None
    }

    /// The error that a child gave as its reason, or as much as is known of it.
    fn failed(&self, index: usize, death: &Death) -> Ending {
        let child = &self.children[index];
        Ending::Failed(child.reason().unwrap_or_else(|| {
            let last = child.last_line().map(|line| format!(" ({line})")).unwrap_or_default();
            format!("{}{last}{}", told(child, death), self.see_log(index))
        }))
    }

    fn see_log(&self, index: usize) -> String {
        let path = self.run.join("logs").join(format!("{}.log", self.children[index].name()));
        if path.is_file() { format!("; see {}", path.display()) } else { String::new() }
    }

    /// Brings the list of processes up to date.
    fn call_roll(&mut self) {
        self.roster_due = Instant::now() + ROSTER_EVERY;
        if let Some(roster) = &mut self.roster {
            roster.update(&self.children, &self.sockets);
        }
    }
}

/// `actor-1 ended with exit code 1 (no such game)`.
fn told(child: &Child, death: &Death) -> String {
    let reason = child.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{} {}{reason}", child.name(), death.end)
}

fn again(child: &Child) -> String {
    format!("starting it again ({} time)", ordinal(child.starts))
}
