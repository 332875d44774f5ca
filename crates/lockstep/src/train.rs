//! A lockstep run: turns until the frame budget, evaluations and checkpoints in between, a summary at the end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use actor::seed::{self, Purpose};
use anyhow::{Context, Result};
use learner::checkpoint::{self, RunState};
use learner::journal::{FINAL, Journal};
use learner::replay::Replay;
use run::RunDir;
use run::checkpoint::{Checkpoint, CheckpointError};
use run::progress::ProgressDisplay;
use run::record::{AGENT, Cut, Evaluation, Record};
use settings::Resolved;

use crate::baselines;
use crate::evaluate::EvaluationSetup;
use crate::lockstep::Lockstep;
use crate::summary;

/// Trains a new run in `path`, or resumes the one there. With `exit_with_parent`, the end of stdin stops the run like Ctrl-C.
pub fn train(path: &Path, resolved: Resolved, resume: bool, exit_with_parent: bool) -> Result<()> {
    agents::keep_freed_memory();
    tch::set_num_threads(resolved.settings.torch_threads as i32);
    let stop = learner::stop_signal()?;
    if exit_with_parent {
        let stop = stop.clone();
        run::parent::on_exit(move || stop.store(true, Ordering::Relaxed));
    }
    let mut training =
        if resume { Training::resume(path, resolved)? } else { Training::start(path, resolved)? };
    training.run(&stop)
}

/// A run with its journal.
struct Training {
    journal: Journal,
    run: Lockstep,
    progress: ProgressDisplay,
}

impl Training {
    fn start(path: &Path, resolved: Resolved) -> Result<Self> {
        // The run is built first: if memory, ROM or device is missing, no run directory is left behind.
        let run = Lockstep::new(resolved)?;
        let directory = RunDir::create(path, &run.resolved)?;
        let record = Record::open(directory.path(), &Cut::default()).inspect_err(|_| directory.discard())?;
        let mut training = Self::new(Journal::new(directory, record, RunState::default()), run);
        training.evaluate().inspect_err(|_| training.journal.discard())?;
        Ok(training)
    }

    fn resume(path: &Path, resolved: Resolved) -> Result<Self> {
        let (directory, _) = RunDir::open(path)?;
        let folder = directory.checkpoints();
        run::checkpoint::tidy(&folder).context("can't clean up the checkpoints; free some disk space")?;
        let mut run = Lockstep::new(resolved)?;
        let checkpoint = match Checkpoint::newest(&folder) {
            Err(CheckpointError::None(_)) => {
                // The run stopped before its first checkpoint. In lockstep, starting over gives the same run.
                let record = Record::open(directory.path(), &Cut::default())?;
                let mut training = Self::new(Journal::new(directory, record, RunState::default()), run);
                training.progress.print_line("no checkpoint yet: starting from the first frame");
                training.evaluate()?;
                return Ok(training);
            }
            found => found?,
        };
        let state = run.restore(&checkpoint)?;
        directory.write_config(&run.resolved)?;
        let continues = run.frames < run.resolved.settings.frames.0;
        // After its last checkpoint, a finished run has only recorded its final evaluation, which is kept.
        let was_finished = folder.join(FINAL).is_dir();
        let cut = if continues && was_finished { Cut::whole() } else { state.cut.clone() };
        if continues {
            run::checkpoint::remove(&folder, FINAL).context("can't delete the former final checkpoint")?;
        }
        let record = Record::open(directory.path(), &cut)?;
        let training = Self::new(Journal::new(directory, record, state), run);
        training.progress.print_line(&format!("resuming from {}", checkpoint.path().display()));
        Ok(training)
    }

    fn new(journal: Journal, run: Lockstep) -> Self {
        let mut progress = ProgressDisplay::new(&run.resolved);
        progress.begin(&run.resolved, journal.path(), run.frames);
        Self { journal, run, progress }
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let settings = self.run.resolved.settings.clone();
        let budget = settings.frames.0;
        while self.run.frames < budget {
            let before = self.run.frames;
            self.turn()?;
            let passed = |every: u64| self.run.frames / every > before / every;
            let (evaluate, checkpoint) =
                (passed(settings.evaluate_every_frames.0), passed(settings.checkpoint_every_frames.0));
            if evaluate && self.run.frames < budget {
                self.evaluate()?;
            }
            let stopped = stop.load(Ordering::Relaxed);
            if stopped {
                self.progress
                    .print_line("stopping: writing a checkpoint (Ctrl-C again: quit at once, without one)");
            }
            if checkpoint || stopped || self.run.frames >= budget {
                self.checkpoint()?;
            }
            if stopped && self.run.frames < budget {
                return self.stopped();
            }
        }
        self.finish(stop)
    }

    fn turn(&mut self) -> Result<()> {
        let turn = match self.run.turn() {
            Ok(turn) => turn,
            Err(error) => {
                self.progress.end();
                return Err(error);
            }
        };
        (self.journal.state.frames, self.journal.state.agent_steps) = (self.run.frames, self.run.agent_steps);
        for end in turn.episodes {
            self.journal.episode(end.score, end.steps, end.truncated)?;
        }
        let updates = self.run.updates();
        for metrics in &turn.updates {
            self.journal.update(metrics);
            self.journal.training(updates, &self.run.trainer.replay.status())?;
        }
        if self.progress.is_due() {
            let replay = self.run.trainer.replay.status();
            self.progress.show(&self.journal.progress(updates, 0, replay));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<()> {
        let settings = &self.run.resolved.settings;
        let evaluation =
            self.play_agent(&self.evaluation_setup(), settings.evaluate_episodes, "evaluating")?;
        let learner = &self.run.trainer.learner;
        self.journal.evaluation(&evaluation, |state, writer| checkpoint::save(learner, state, writer))?;
        self.progress.evaluated(&evaluation);
        Ok(())
    }

    fn play_agent(&self, setup: &EvaluationSetup, episodes: u32, what: &str) -> Result<Evaluation> {
        let settings = &self.run.resolved.settings;
        let policy = settings.evaluation_policy;
        let learner = &self.run.trainer.learner;
        let behaviour = actor::rules::evaluation_behaviour(learner.agent(), policy);
        let player = actor::evaluation::PlayerKind::Agent(learner.agent(), learner.online(), behaviour);
        let scores = setup.play(player, episodes, |done| {
            self.progress.set_status(&format!("{what}: game {done} of {episodes}"));
        })?;
        let (frames, updates) = (self.run.frames, self.run.updates());
        Ok(Evaluation { frames, updates, ..Evaluation::new(AGENT, policy, scores) })
    }

    /// The games of an evaluation at the current frame. Their seed depends on the frame.
    fn evaluation_setup(&self) -> EvaluationSetup {
        let seed =
            seed::number(self.run.resolved.settings.seed, Purpose::EvaluationEnvironment, &[self.run.frames]);
        EvaluationSetup::new(&self.run.resolved, seed)
    }

    fn checkpoint(&mut self) -> Result<()> {
        let (updates, kept) = (self.run.updates(), self.run.resolved.settings.checkpoints_kept);
        self.journal.checkpoint(updates, kept, |state, writer| self.run.save(state, writer))
    }

    fn stopped(&mut self) -> Result<()> {
        self.progress.end();
        run::summary::print_stopped(self.journal.path(), self.run.frames);
        Ok(())
    }

    /// Evaluates the finished run. The last checkpoint is already written, so a run that is stopped now can be resumed.
    fn finish(&mut self, stop: &AtomicBool) -> Result<()> {
        let settings = self.run.resolved.settings.clone();
        let (setup, episodes) = (self.evaluation_setup().on_all_cores(), settings.evaluate_final_episodes);
        let mut evaluations = vec![self.play_agent(&setup, episodes, "final evaluation")?];
        if stop.load(Ordering::Relaxed) {
            return self.stopped();
        }
        if settings.baselines {
            let note = |what: &str| self.progress.set_status(what);
            evaluations.extend(baselines::play(&self.run, &setup, episodes, note)?);
        }
        if stop.load(Ordering::Relaxed) {
            return self.stopped();
        }
        let outcome = self.journal.finish(evaluations)?;
        self.progress.end();
        summary::print(self.journal.path(), &self.run.resolved, &outcome);
        Ok(())
    }
}
