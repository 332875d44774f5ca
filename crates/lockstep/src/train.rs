//! The life of a run: turns until the frame budget, evaluations and checkpoints between them, a summary at the end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use actor::seed::{self, Purpose};
use anyhow::{Context, Result};
use run::RunDir;
use run::checkpoint::{self, Checkpoint, CheckpointError};
use run::event::Outcome;
use run::progress::Progress;
use run::record::{AGENT, Cut, Episode, Evaluation, Record};
use settings::Resolved;

use crate::baselines;
use crate::cut::{self, Ledger};
use crate::evaluate::{Tournament, evaluation};
use crate::lockstep::Lockstep;
use crate::progress::Meters;
use crate::summary;

const RECORD_FAILED: &str = "can't write the run's record (free some space, then go on with --resume)";

/// The checkpoint of a run that has ended.
const FINAL: &str = "final";

/// Trains a new run in `path`, or goes on with the one that is there.
pub fn train(path: &Path, resolved: Resolved, resume: bool) -> Result<()> {
    tch::set_num_threads(resolved.settings.torch_threads as i32);
    let stop = stop_signal()?;
    let mut training =
        if resume { Training::resume(path, resolved)? } else { Training::start(path, resolved)? };
    training.run(&stop)
}

/// A run with its directory and record.
struct Training {
    directory: RunDir,
    record: Record,
    run: Lockstep,
    ledger: Ledger,
    meters: Meters,
    progress: Progress,
    since: Instant,
}

impl Training {
    fn start(path: &Path, resolved: Resolved) -> Result<Self> {
        // The run is built first: if memory, ROM or device is missing, no directory is left behind.
        let run = Lockstep::new(resolved)?;
        let directory = RunDir::create(path, &run.resolved)?;
        match Record::open(directory.path(), &Cut::default()) {
            Ok(record) => {
                let mut training = Self::assemble(directory, record, run, Ledger::default());
                training.evaluate().inspect_err(|_| training.directory.discard())?;
                Ok(training)
            }
            Err(error) => {
                directory.discard();
                Err(error.into())
            }
        }
    }

    fn resume(path: &Path, resolved: Resolved) -> Result<Self> {
        let (directory, _) = RunDir::open(path)?;
        checkpoint::tidy(&directory.checkpoints()).context("can't tidy the checkpoints; free some space")?;
        let mut run = Lockstep::new(resolved)?;
        let checkpoint = match Checkpoint::newest(&directory.checkpoints()) {
            Err(CheckpointError::None(_)) => {
                // Ended before its first checkpoint: in lockstep, starting over is going on.
                let record = Record::open(directory.path(), &Cut::default())?;
                let mut training = Self::assemble(directory, record, run, Ledger::default());
                training.progress.say("there is no checkpoint yet: starting from the first frame");
                training.evaluate()?;
                return Ok(training);
            }
            found => found?,
        };
        let ledger = cut::restore(&mut run, &checkpoint)?;
        directory.write_config(&run.resolved)?;
        let folder = directory.checkpoints();
        let goes_further = run.frames < run.resolved.settings.frames.0;
        // A run that had ended has nothing after its last checkpoint but its final evaluation, which stays.
        let had_ended = folder.join(FINAL).is_dir();
        let cut = if goes_further && had_ended { Cut::whole() } else { ledger.cut.clone() };
        if goes_further {
            checkpoint::remove(&folder, FINAL).context("can't delete the former end")?;
        }
        let record = Record::open(directory.path(), &cut)?;
        let training = Self::assemble(directory, record, run, ledger);
        training.progress.say(&format!("going on from {}", checkpoint.path().display()));
        Ok(training)
    }

    fn assemble(directory: RunDir, record: Record, run: Lockstep, ledger: Ledger) -> Self {
        let mut progress = Progress::new(&run.resolved);
        progress.begin(&run.resolved, directory.path(), run.frames);
        let meters = Meters::new(&run);
        Self { directory, record, run, ledger, meters, progress, since: Instant::now() }
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
        for end in turn.episodes {
            let episode = Episode {
                frames: self.run.frames,
                score: end.score,
                steps: end.steps,
                truncated: end.truncated,
            };
            self.record.episode(&episode).context(RECORD_FAILED)?;
            self.meters.episode(end.score);
        }
        for (update, weight) in turn.updates {
            if let Some(training) = self.meters.update(&self.run, &update, weight) {
                self.record.training(&training).context(RECORD_FAILED)?;
            }
        }
        if self.progress.is_due() {
            self.progress.show(&self.meters.standing(&self.run));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<()> {
        let settings = &self.run.resolved.settings;
        let evaluation = self.play_agent(settings.evaluate_episodes, "evaluating")?;
        self.record.evaluation(&evaluation).context(RECORD_FAILED)?;
        self.meters.evaluated(evaluation.mean);
        self.progress.evaluated(&evaluation);
        if self.run.frames > 0 && self.ledger.best.is_none_or(|best| evaluation.mean > best) {
            self.ledger.best = Some(evaluation.mean);
            checkpoint::write(&self.directory.checkpoints(), "best", |writer| {
                cut::save(&self.run, &self.ledger, false, writer)
            })?;
        }
        Ok(())
    }

    fn play_agent(&self, episodes: u32, what: &str) -> Result<Evaluation> {
        let settings = &self.run.resolved.settings;
        let policy = settings.evaluation_policy;
        let tournament = self.tournament();
        let learner = &self.run.learner;
        let behaviour = actor::rules::evaluation_behaviour(learner.agent(), policy);
        let who = actor::evaluation::Who::Agent(learner.agent(), learner.online(), behaviour);
        let scores = tournament
            .play(who, episodes, |done| self.progress.note(&format!("{what}: game {done} of {episodes}")))?;
        Ok(evaluation(AGENT, policy, scores, self.run.frames, self.run.learner.updates()))
    }

    /// Games of an evaluation now; another count of frames means other games.
    fn tournament(&self) -> Tournament {
        let seed =
            seed::number(self.run.resolved.settings.seed, Purpose::EvaluationEnvironment, &[self.run.frames]);
        Tournament::new(&self.run.resolved, seed)
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.ledger.cut = self.record.cut().context(RECORD_FAILED)?;
        self.ledger.seconds += self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        let folder = self.directory.checkpoints();
        checkpoint::write(&folder, &self.run.frames.to_string(), |writer| {
            cut::save(&self.run, &self.ledger, true, writer)
        })?;
        checkpoint::prune(&folder, self.run.resolved.settings.checkpoints_kept as usize)
            .context("can't delete old checkpoints")
    }

    fn stopped(&mut self) -> Result<()> {
        self.progress.end();
        run::summary::print_stopped(self.directory.path(), self.run.frames);
        Ok(())
    }

    /// The end. The last checkpoint is written, so whoever stops this can have it again by resuming.
    fn finish(&mut self, stop: &AtomicBool) -> Result<()> {
        let folder = self.directory.checkpoints();
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
        for evaluation in &evaluations {
            self.record.evaluation(evaluation).context(RECORD_FAILED)?;
        }
        let newest = Checkpoint::newest(&folder)?;
        checkpoint::write(&folder, FINAL, |writer| {
            cut::FILES_OF_AN_AGENT.iter().try_for_each(|file| writer.link(&newest, file))
        })?;
        self.progress.end();
        let (frames, updates, seconds) = (self.run.frames, self.run.learner.updates(), self.ledger.seconds);
        let outcome = Outcome { frames, updates, seconds, evaluations };
        summary::print(self.directory.path(), &self.run.resolved, &outcome);
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
