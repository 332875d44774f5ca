//! The life of a run: turns until the frame budget, evaluations and checkpoints between them, a summary at the end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actor::seed::{self, Purpose};
use anyhow::{Context, Result};
use learner::checkpoint::{self, State};
use learner::journal::{FINAL, Journal};
use learner::replay::Replay;
use run::RunDir;
use run::checkpoint::{Checkpoint, CheckpointError};
use run::progress::Progress;
use run::record::{AGENT, Cut, Evaluation, Record};
use settings::Resolved;

use crate::baselines;
use crate::evaluate::{Tournament, evaluation};
use crate::lockstep::Lockstep;
use crate::summary;

/// Trains a new run in `path`, or goes on with the one that is there.
pub fn train(path: &Path, resolved: Resolved, resume: bool) -> Result<()> {
    tch::set_num_threads(resolved.settings.torch_threads as i32);
    let stop = stop_signal()?;
    let mut training =
        if resume { Training::resume(path, resolved)? } else { Training::start(path, resolved)? };
    training.run(&stop)
}

/// A run with its journal.
struct Training {
    journal: Journal,
    run: Lockstep,
    progress: Progress,
}

impl Training {
    fn start(path: &Path, resolved: Resolved) -> Result<Self> {
        // The run is built first: if memory, ROM or device is missing, no directory is left behind.
        let run = Lockstep::new(resolved)?;
        let directory = RunDir::create(path, &run.resolved)?;
        let record = Record::open(directory.path(), &Cut::default()).inspect_err(|_| directory.discard())?;
        let mut training = Self::new(Journal::new(directory, record, State::default()), run);
        training.evaluate().inspect_err(|_| training.journal.discard())?;
        Ok(training)
    }

    fn resume(path: &Path, resolved: Resolved) -> Result<Self> {
        let (directory, _) = RunDir::open(path)?;
        let folder = directory.checkpoints();
        run::checkpoint::tidy(&folder).context("can't tidy the checkpoints; free some space")?;
        let mut run = Lockstep::new(resolved)?;
        let checkpoint = match Checkpoint::newest(&folder) {
            Err(CheckpointError::None(_)) => {
                // Ended before its first checkpoint: in lockstep, starting over is resuming.
                let record = Record::open(directory.path(), &Cut::default())?;
                let mut training = Self::new(Journal::new(directory, record, State::default()), run);
                training.progress.say("there is no checkpoint yet: starting from the first frame");
                training.evaluate()?;
                return Ok(training);
            }
            found => found?,
        };
        let state = run.restore(&checkpoint)?;
        directory.write_config(&run.resolved)?;
        let goes_further = run.frames < run.resolved.settings.frames.0;
        // A run that had ended has nothing after its last checkpoint but its final evaluation, which stays.
        let had_ended = folder.join(FINAL).is_dir();
        let cut = if goes_further && had_ended { Cut::whole() } else { state.cut.clone() };
        if goes_further {
            run::checkpoint::remove(&folder, FINAL).context("can't delete the former end")?;
        }
        let record = Record::open(directory.path(), &cut)?;
        let training = Self::new(Journal::new(directory, record, state), run);
        training.progress.say(&format!("going on from {}", checkpoint.path().display()));
        Ok(training)
    }

    fn new(journal: Journal, run: Lockstep) -> Self {
        let mut progress = Progress::new(&run.resolved);
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
                self.progress.say("stopping: writing a checkpoint (once more: quit at once, without one)");
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
        let (updates, made) = (self.run.updates(), turn.updates.len() as u64);
        for (number, figures) in (updates - made + 1..).zip(&turn.updates) {
            self.journal.update(figures);
            self.journal.training(number, &self.run.trainer.replay.status())?;
        }
        if self.progress.is_due() {
            let replay = self.run.trainer.replay.status();
            self.progress.show(&self.journal.progress(updates, 0, replay));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<()> {
        let settings = &self.run.resolved.settings;
        let evaluation = self.play_agent(settings.evaluate_episodes, "evaluating")?;
        let learner = &self.run.trainer.learner;
        self.journal.evaluation(&evaluation, |state, writer| checkpoint::save(learner, state, writer))?;
        self.progress.evaluated(&evaluation);
        Ok(())
    }

    fn play_agent(&self, episodes: u32, what: &str) -> Result<Evaluation> {
        let settings = &self.run.resolved.settings;
        let policy = settings.evaluation_policy;
        let tournament = self.tournament();
        let learner = &self.run.trainer.learner;
        let behaviour = actor::rules::evaluation_behaviour(learner.agent(), policy);
        let who = actor::evaluation::Who::Agent(learner.agent(), learner.online(), behaviour);
        let scores = tournament
            .play(who, episodes, |done| self.progress.note(&format!("{what}: game {done} of {episodes}")))?;
        Ok(evaluation(AGENT, policy, scores, self.run.frames, self.run.updates()))
    }

    /// Games of an evaluation now; another count of frames means other games.
    fn tournament(&self) -> Tournament {
        let seed =
            seed::number(self.run.resolved.settings.seed, Purpose::EvaluationEnvironment, &[self.run.frames]);
        Tournament::new(&self.run.resolved, seed)
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

    /// The end. The last checkpoint is written, so whoever stops this can have it again by resuming.
    fn finish(&mut self, stop: &AtomicBool) -> Result<()> {
        let settings = self.run.resolved.settings.clone();
        let mut evaluations = vec![self.play_agent(settings.evaluate_final_episodes, "final evaluation")?];
        if stop.load(Ordering::Relaxed) {
            return self.stopped();
        }
        if settings.baselines {
            let note = |what: &str| self.progress.note(what);
            evaluations.extend(baselines::play(
                &self.run,
                &self.tournament(),
                settings.evaluate_final_episodes,
                note,
            )?);
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

/// True once SIGINT or SIGTERM came; a second one ends the process at once.
fn stop_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
