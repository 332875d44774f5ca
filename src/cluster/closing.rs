//! The end of a cluster: the learner first, because it writes the checkpoint, then everyone else.
//!
//! Nobody is started again from here on, and every wait has a bound.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use run::checkpoint::numbers;
use run::directory::checkpoints;
use run::event::Event;
use run::output::say;
use run::summary;

use super::child::Death;
use super::fate::{End, Role};
use super::{Cluster, Ending, LOOK_EVERY, told};
use crate::output::{one_line, remark};
use crate::plot;

/// How long the learner may take to write its checkpoint and end.
const LEARNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long the others may take to end before they are killed.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(3);

/// What a shell reports of a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Asked a second time: no more waiting.
struct Quit;

impl Cluster<'_> {
    /// Ends all children, says how the run ended, and gives the exit code.
    pub(super) fn close(mut self, ending: Ending) -> anyhow::Result<ExitCode> {
        let ended = self.end_learner(ending).and_then(|ending| self.end_others().map(|()| ending));
        if ended.is_err() {
            self.children.iter().for_each(super::Child::kill);
        }
        // A child that is still there is waited for here, but only for as long as the kernel takes.
        self.children.clear();
        self.roster = None;
        self.progress.end();
        match ended {
            Err(Quit) => {
                if self.holds_run() {
                    let run = self.run.display();
                    remark(&format!(
                        "ended at once; go on from the newest checkpoint: quiver train --resume {run}"
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
                self.say_stopped();
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    /// Waits for the learner, after asking it to stop if it does not do so by itself. Says how the run really ended.
    fn end_learner(&mut self, mut ending: Ending) -> Result<Ending, Quit> {
        let index = self.children.iter().position(|child| child.role() == Role::Learner && child.is_alive());
        let Some(index) = index else { return Ok(ending) };
        if matches!(ending, Ending::Asked | Ending::Failed(_)) {
            self.children[index].terminate();
            self.asked = true;
            self.progress.say("stopping: writing a checkpoint (once more: quit at once, without one)");
        }
        let started = Instant::now();
        loop {
            self.look_for_quit()?;
            if let Ok(event) = self.events.recv_timeout(LOOK_EVERY) {
                ending = self.last_words(event, ending);
            }
            if let Some(death) = self.children[index].look() {
                while let Ok(event) = self.events.try_recv() {
                    ending = self.last_words(event, ending);
                }
                return Ok(self.judge(ending, index, &death));
            }
            self.progress.note(match ending {
                Ending::Asked | Ending::Failed(_) => "stopping: waiting for the learner's checkpoint",
                _ => "waiting for the learner to end",
            });
            if started.elapsed() > LEARNER_WAIT_MAX {
                self.children[index].kill();
                let seconds = LEARNER_WAIT_MAX.as_secs();
                return Ok(match ending {
                    Ending::Asked => Ending::Failed(format!(
                        "the learner did not end within {seconds} s and was killed; {}",
                        self.advice()
                    )),
                    other => other,
                });
            }
        }
    }

    /// What the learner tells while it ends.
    fn last_words(&mut self, event: Event, ending: Ending) -> Ending {
        let told = match event {
            // Where it stands is of no interest any more, and would hide what is waited for.
            Event::Progress(progress) => {
                self.frames = progress.frames;
                None
            }
            other => self.heard(other),
        };
        match (ending, told) {
            (Ending::Asked | Ending::Stopped, Some(told)) => told,
            (ending, _) => ending,
        }
    }

    /// What it means that the learner ended so after it was asked to.
    fn judge(&self, ending: Ending, index: usize, death: &Death) -> Ending {
        match (ending, &death.end) {
            (Ending::Asked, End::Code(0)) => Ending::Stopped,
            // Asked before it had begun to listen to signals.
            (Ending::Asked, End::Signal(_)) if self.roster.is_none() => Ending::Stopped,
            (Ending::Asked, End::Code(_)) => self.failed(index, death),
            (Ending::Asked, _) => {
                let what = told(&self.children[index], death);
                Ending::Failed(format!("{what} while it was stopping; {}", self.advice()))
            }
            (ending, _) => ending,
        }
    }

    /// Ends everyone else, at last by force.
    fn end_others(&mut self) -> Result<(), Quit> {
        self.children.iter().for_each(super::Child::terminate);
        self.progress.note("waiting for the other processes to end");
        let started = Instant::now();
        while self.children.iter().any(super::Child::is_alive) && started.elapsed() < OTHERS_WAIT_MAX {
            self.look_for_quit()?;
            let _ = self.events.recv_timeout(LOOK_EVERY);
            self.children.iter_mut().for_each(|child| drop(child.look()));
        }
        self.children.iter().for_each(super::Child::kill);
        Ok(())
    }

    /// The first request to stop is being obeyed; a second one is impatience.
    fn look_for_quit(&mut self) -> Result<(), Quit> {
        if self.signals.take() && std::mem::replace(&mut self.asked, true) { Err(Quit) } else { Ok(()) }
    }

    fn holds_run(&self) -> bool {
        self.run.join("config.toml").is_file()
    }

    fn advice(&self) -> String {
        format!("go on from the newest checkpoint with quiver train --resume {}", self.run.display())
    }

    fn say_stopped(&self) {
        if !self.holds_run() {
            say("stopped before there was a run to go on with");
            return;
        }
        let newest = || numbers(&checkpoints(self.run)).last().copied().unwrap_or_default();
        let frames = if self.frames > 0 { self.frames } else { newest() };
        summary::print_stopped(self.run, frames);
    }
}
