//! One supervised child process: started, its output read, and reaped.
//!
//! The child's stdin is a pipe that this process holds open and never writes to. When the launcher ends for any reason, the
//! pipe closes and the child exits. The child has its own process group, so that Ctrl-C in a terminal reaches only the
//! launcher.
#![allow(clippy::disallowed_methods, reason = "the launcher polls its child processes")]

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

use super::log::{Log, read_lines};
use super::plan::Plan;
use super::restart::{ChildRole, Exit, RestartPolicy};
use super::sockets::Sockets;
use crate::output::one_line;
use crate::torch;

/// A longer log line is split.
const LOG_LINE_BYTES_MAX: u64 = 64 << 10;
/// Bound of an event; an evaluation of a million games takes 8 MB.
const EVENT_BYTES_MAX: u64 = 64 << 20;
/// How long the remaining output of a dead child may take to arrive. A grandchild could hold its pipes open forever.
const LAST_OUTPUT_WAIT_MAX: Duration = Duration::from_secs(1);

/// A child over all its restarts.
#[derive(Debug)]
pub struct Child {
    plan: Plan,
    log: Arc<Mutex<Log>>,
    running: Option<Instance>,
    /// When it starts next, if it is not running.
    pub due: Option<Instant>,
    /// Whether it is not running because it exited with code 0.
    pub exited_early: bool,
    /// Number of starts so far.
    pub starts: u32,
    pub restart_policy: RestartPolicy,
}

/// One running process of a child.
#[derive(Debug)]
struct Instance {
    process: process::Child,
    _stdin: Option<ChildStdin>,
    started: Instant,
    readers: Vec<JoinHandle<()>>,
    ended: Option<(Exit, Instant)>,
}

/// How a process ended, and after how long.
#[derive(Debug)]
pub struct ChildExit {
    pub exit: Exit,
    pub uptime: Duration,
}

impl Child {
    /// A child that is not started yet.
    pub fn new(plan: Plan) -> Self {
        let (log, restart_policy) = (Arc::default(), RestartPolicy::new());
        Self { plan, log, running: None, due: None, exited_early: false, starts: 0, restart_policy }
    }

    pub fn name(&self) -> &str {
        &self.plan.name
    }

    pub fn role(&self) -> ChildRole {
        self.plan.role
    }

    pub fn is_alive(&self) -> bool {
        self.running.is_some()
    }

    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.id())
    }

    /// Starts the process. A learner's events go to `events`.
    pub fn start(&mut self, sockets: &Sockets, events: &SyncSender<Event>) -> Result<(), Exit> {
        (self.due, self.exited_early) = (None, false);
        self.starts += 1;
        self.log().clear_last_lines();
        match self.spawn(sockets, events) {
            Ok(running) => {
                self.running = Some(running);
                Ok(())
            }
            Err(error) => Err(Exit::NotStarted(error.to_string())),
        }
    }

    fn spawn(&self, sockets: &Sockets, events: &SyncSender<Event>) -> io::Result<Instance> {
        let Plan { name, role, program, arguments, variables } = &self.plan;
        // The status file of the previous process is stale.
        let _ = std::fs::remove_file(sockets.status(name));
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().cloned()).process_group(0);
        // These are the user's credentials. Children use socket files, which need none.
        command.env_remove("QUIVER_SECRETS");
        torch::make_openmp_passive(&mut command);
        let stdout = if *role == ChildRole::Learner { Stdio::piped() } else { sockets.share_of_lock()? };
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
                    // Sending fails only when the cluster is closing.
                    Ok(event) => drop(events.send(event)),
                    Err(_) => locked(&log).line(line),
                });
            }));
        }
        let stdin = process.stdin.take();
        Ok(Instance { process, _stdin: stdin, started: Instant::now(), readers, ended: None })
    }

    /// Polls the process: how it ended, once it has exited and all its output has been read.
    pub fn poll(&mut self) -> Option<ChildExit> {
        let running = self.running.as_mut()?;
        if running.ended.is_none() {
            let status = running.process.try_wait().ok()??;
            running.ended = Some((status.into(), Instant::now()));
        }
        let (exit, at) = running.ended.as_ref()?;
        let all_read = running.readers.iter().all(JoinHandle::is_finished);
        if !all_read && at.elapsed() < LAST_OUTPUT_WAIT_MAX {
            return None;
        }
        let ended = ChildExit { exit: exit.clone(), uptime: at.saturating_duration_since(running.started) };
        self.running = None;
        Some(ended)
    }

    /// The error that it printed before it exited, in one line.
    pub fn reason(&self) -> Option<String> {
        self.log().reason().map(|reason| one_line(&reason))
    }

    /// The last line that it printed.
    pub fn last_line(&self) -> Option<String> {
        self.log().last_line()
    }

    /// Writes its log to a file in `folder` from now on.
    pub fn log_to(&self, folder: &Path) -> io::Result<()> {
        self.log().open(&folder.join(format!("{}.log", self.plan.name)))
    }

    pub fn terminate(&self) {
        if let Some(pid) = self.running.as_ref().and_then(Instance::unreaped) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Kills it and every process of its group.
    pub fn kill(&self) {
        if let Some(pid) = self.running.as_ref().and_then(Instance::unreaped) {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        locked(&self.log)
    }
}

impl Instance {
    /// Its process id until it is reaped; after that the id may belong to another process.
    fn unreaped(&self) -> Option<Pid> {
        self.ended.is_none().then(|| Pid::from_child(&self.process))
    }
}

/// However the launcher ends, it leaves no child behind.
impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        if let Some(running) = &mut self.running {
            let _ = running.process.wait();
        }
    }
}

/// Locks the log. A reader that panicked has left only whole lines, so a poisoned lock is harmless.
fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
