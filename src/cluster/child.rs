//! One watched child: started, listened to, and reaped.
//!
//! Its standard input is a pipe that this process holds open and never writes to. However the launcher ends, the pipe
//! ends with it, and the child sees that. It is in a process group of its own, so that Ctrl-C in a terminal reaches
//! the launcher alone.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use run::event::Event;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::fate::{End, Patience, Role};
use super::log::{Log, read_lines};
use super::plan::Plan;
use super::sockets::Sockets;
use crate::output::one_line;
use crate::torch;

/// A longer line of a log comes in pieces.
const LOG_LINE_BYTES_MAX: u64 = 64 << 10;
/// An evaluation of a million games is 8 MB.
const EVENT_BYTES_MAX: u64 = 64 << 20;
/// How long the last words of a dead child may take to arrive: a grandchild could hold its pipes for ever.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// A child over all its lives.
#[derive(Debug)]
pub struct Child {
    plan: Plan,
    log: Arc<Mutex<Log>>,
    life: Option<Life>,
    /// When it is to be started next, if it is down.
    pub due: Option<Instant>,
    /// Whether it is down because it ended by itself.
    pub rests: bool,
    /// How often it was started.
    pub starts: u32,
    pub patience: Patience,
}

/// One life of a child.
#[derive(Debug)]
struct Life {
    process: process::Child,
    _lifeline: Option<ChildStdin>,
    since: Instant,
    readers: Vec<JoinHandle<()>>,
    ended: Option<(End, Instant)>,
}

/// How a life ended.
#[derive(Debug)]
pub struct Death {
    pub end: End,
    pub lived: Duration,
}

impl Child {
    /// A child that is not started yet.
    pub fn new(plan: Plan) -> Self {
        let (log, patience) = (Arc::default(), Patience::new());
        Self { plan, log, life: None, due: None, rests: false, starts: 0, patience }
    }

    pub fn name(&self) -> &str {
        &self.plan.name
    }

    pub fn role(&self) -> Role {
        self.plan.role
    }

    pub fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    pub fn pid(&self) -> Option<u32> {
        self.life.as_ref().map(|life| life.process.id())
    }

    /// Starts it. What a learner tells goes to `events`.
    pub fn start(&mut self, sockets: &Sockets, events: &SyncSender<Event>) -> Result<(), End> {
        (self.due, self.rests) = (None, false);
        self.starts += 1;
        self.log().forget();
        match self.spawn(sockets, events) {
            Ok(life) => {
                self.life = Some(life);
                Ok(())
            }
            Err(error) => Err(End::NotStarted(error.to_string())),
        }
    }

    fn spawn(&self, sockets: &Sockets, events: &SyncSender<Event>) -> io::Result<Life> {
        let Plan { name, role, program, arguments, variables } = &self.plan;
        // What a former life said of itself is no longer true.
        let _ = std::fs::remove_file(sockets.status(name));
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().cloned()).process_group(0);
        // Those of the person who calls; children talk through socket files.
        command.env_remove("QUIVER_SECRETS");
        torch::calm(&mut command);
        let stdout = if *role == Role::Learner { Stdio::piped() } else { sockets.share_of_lock()? };
        let mut process = command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped()).spawn()?;

        let mut readers = Vec::new();
        if let Some(stderr) = process.stderr.take() {
            let log = self.log.clone();
            readers.push(thread::spawn(move || {
                read_lines(stderr, LOG_LINE_BYTES_MAX, |line| locked(&log).line(line));
            }));
        }
        if let Some(stdout) = process.stdout.take() {
            let (log, events) = (self.log.clone(), events.clone());
            readers.push(thread::spawn(move || {
                read_lines(stdout, EVENT_BYTES_MAX, |line| match serde_json::from_str(line) {
                    // Nobody listens any more only when all is over.
                    Ok(event) => drop(events.send(event)),
                    Err(_) => locked(&log).line(line),
                });
            }));
        }
        let lifeline = process.stdin.take();
        Ok(Life { process, _lifeline: lifeline, since: Instant::now(), readers, ended: None })
    }

    /// Looks whether it has ended, and all it said has arrived.
    pub fn look(&mut self) -> Option<Death> {
        let life = self.life.as_mut()?;
        if life.ended.is_none() {
            let status = life.process.try_wait().ok()??;
            life.ended = Some((status.into(), Instant::now()));
        }
        let (end, at) = life.ended.as_ref()?;
        let heard = life.readers.iter().all(JoinHandle::is_finished);
        if !heard && at.elapsed() < LAST_WORDS_MAX {
            return None;
        }
        let death = Death { end: end.clone(), lived: at.saturating_duration_since(life.since) };
        self.life = None;
        Some(death)
    }

    /// What it gave as its reason for ending, in one line.
    pub fn reason(&self) -> Option<String> {
        self.log().reason().map(|reason| one_line(&reason))
    }

    /// The last thing it said, for want of a reason.
    pub fn last_line(&self) -> Option<String> {
        self.log().last_line()
    }

    /// From now on its lines go to a file in `folder`.
    pub fn log_to(&self, folder: &Path) -> io::Result<()> {
        self.log().open(&folder.join(format!("{}.log", self.plan.name)))
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        if let Some(pid) = self.life.as_ref().and_then(Life::unreaped) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Ends it, and whatever it started.
    pub fn kill(&self) {
        if let Some(pid) = self.life.as_ref().and_then(Life::unreaped) {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        locked(&self.log)
    }
}

impl Life {
    /// Its id for as long as it can't be another's.
    fn unreaped(&self) -> Option<Pid> {
        self.ended.is_none().then(|| Pid::from_child(&self.process))
    }
}

/// No way out of the launcher leaves a child behind.
impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        if let Some(life) = &mut self.life {
            let _ = life.process.wait();
        }
    }
}

/// A reader that panicked has left whole lines.
fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
