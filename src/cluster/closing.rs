//! Ends a cluster: the learner first, because it writes the checkpoint, then all other processes.
//!
//! From here on no child is restarted, and every wait has a bound.
#![allow(clippy::disallowed_methods, reason = "the launcher polls its child processes")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use run::checkpoint::numbers;
use run::directory::checkpoints;
use run::event::Event;
use run::output::print_line;
use run::summary;

use super::child::ChildExit;
use super::restart::{ChildRole, Exit};
use super::{Cluster, Ending, POLL_EVERY, describe};
use crate::output::{one_line, print_note};
use crate::plot;

/// How long the learner may take to write its checkpoint and exit.
const LEARNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long the other processes may take to exit before they are killed.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(3);

/// The exit code that a shell reports for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The user asked to stop a second time: no more waiting.
struct Quit;

impl Cluster<'_> {
    /// Ends all children, prints how the run ended, and returns the exit code.
    pub(super) fn close(mut self, ending: Ending) -> anyhow::Result<ExitCode> {
        let ended = self.end_learner(ending).and_then(|ending| self.end_others().map(|()| ending));
        if ended.is_err() {
            self.children.iter().for_each(super::Child::kill);
        }
        // Reaps the children that were killed; that takes only as long as the kernel needs.
        self.children.clear();
        self.roster = None;
        self.progress.end();
        match ended {
            Err(Quit) => {
                if self.holds_run() {
                    let run = self.run.display();
                    print_note(&format!(
                        "ended at once, without a new checkpoint; resume from the newest one: quiver train --resume {run}"
                    ));
                }
                Ok(ExitCode::from(INTERRUPTED))
            }
            Ok(Ending::Failed(what)) => Err(anyhow!(what)),
            Ok(Ending::Finished(outcome)) => {
                let curve = plot::draw(self.run).map_err(|error| one_line(&format!("{error:#}")));
                summary::print(self.run, self.resolved, &outcome, curve);
                Ok(ExitCode::SUCCESS)
            }
            Ok(Ending::Stopped | Ending::Asked) => {
                self.print_stopped();
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    /// Waits for the learner to exit, after asking it to stop if it does not stop by itself. Returns how the run ended.
    fn end_learner(&mut self, mut ending: Ending) -> Result<Ending, Quit> {
        let index =
            self.children.iter().position(|child| child.role() == ChildRole::Learner && child.is_alive());
        let Some(index) = index else { return Ok(ending) };
        if matches!(ending, Ending::Asked | Ending::Failed(_)) {
            self.children[index].terminate();
            self.asked = true;
            self.progress
                .print_line("stopping: writing a checkpoint (Ctrl-C again: quit at once, without one)");
        }
        let started = Instant::now();
        loop {
            self.check_quit()?;
            if let Ok(event) = self.events.recv_timeout(POLL_EVERY) {
                ending = self.last_event(event, ending);
            }
            if let Some(ended) = self.children[index].poll() {
                while let Ok(event) = self.events.try_recv() {
                    ending = self.last_event(event, ending);
                }
                return Ok(self.judge(ending, index, &ended));
            }
            self.progress.set_status(match ending {
                Ending::Asked | Ending::Failed(_) => "stopping: waiting for the learner's checkpoint",
                _ => "waiting for the learner to exit",
            });
            if started.elapsed() > LEARNER_WAIT_MAX {
                self.children[index].kill();
                let seconds = LEARNER_WAIT_MAX.as_secs();
                return Ok(match ending {
                    Ending::Asked => Ending::Failed(format!(
                        "the learner did not exit within {seconds} s and was killed; {}",
                        self.advice()
                    )),
                    other => other,
                });
            }
        }
    }

    /// Handles an event of the learner while it stops.
    fn last_event(&mut self, event: Event, ending: Ending) -> Ending {
        let reported = match event {
            // Do not display progress any more: it would hide what the launcher waits for.
            Event::Progress(progress) => {
                self.frames = progress.frames;
                None
            }
            other => self.handle(other),
        };
        match (ending, reported) {
            (Ending::Asked | Ending::Stopped, Some(reported)) => reported,
            (ending, _) => ending,
        }
    }

    /// What the learner's exit means after it was asked to stop.
    fn judge(&self, ending: Ending, index: usize, ended: &ChildExit) -> Ending {
        match (ending, &ended.exit) {
            (Ending::Asked, Exit::Code(0)) => Ending::Stopped,
            // The signal arrived before the learner had installed its handlers.
            (Ending::Asked, Exit::Signal(_)) if self.roster.is_none() => Ending::Stopped,
            (Ending::Asked, Exit::Code(_)) => self.failed(index, ended),
            (Ending::Asked, _) => {
                let what = describe(&self.children[index], ended);
                Ending::Failed(format!("{what} while it was stopping; {}", self.advice()))
            }
            (ending, _) => ending,
        }
    }

    /// Ends all other processes, by SIGKILL if they do not exit in time.
    fn end_others(&mut self) -> Result<(), Quit> {
        self.children.iter().for_each(super::Child::terminate);
        self.progress.set_status("waiting for the other processes to exit");
        let started = Instant::now();
        while self.children.iter().any(super::Child::is_alive) && started.elapsed() < OTHERS_WAIT_MAX {
            self.check_quit()?;
            let _ = self.events.recv_timeout(POLL_EVERY);
            self.children.iter_mut().for_each(|child| drop(child.poll()));
        }
        self.children.iter().for_each(super::Child::kill);
        Ok(())
    }

    /// Handles a signal: the first asks to stop, a second one quits.
    fn check_quit(&mut self) -> Result<(), Quit> {
        if self.signals.take() && std::mem::replace(&mut self.asked, true) { Err(Quit) } else { Ok(()) }
    }

    fn holds_run(&self) -> bool {
        self.run.join("config.toml").is_file()
    }

    fn advice(&self) -> String {
        format!("resume from the newest checkpoint: quiver train --resume {}", self.run.display())
    }

    fn print_stopped(&self) {
        if !self.holds_run() {
            print_line("stopped before the run was created: nothing to resume");
            return;
        }
        let newest = || numbers(&checkpoints(self.run)).last().copied().unwrap_or_default();
        let frames = if self.frames > 0 { self.frames } else { newest() };
        summary::print_stopped(self.run, frames);
    }
}
