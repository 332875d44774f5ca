//! The files of a run in training: its record, its checkpoints, and the averages behind progress reports.
//!
//! Cluster and lockstep write the same journal; they differ in what a checkpoint holds besides weights and
//! [`RunState`]. Each method that writes can be called again after an error, and then records nothing twice.
#![allow(clippy::disallowed_methods, reason = "the learner's process measures its work")]

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use replay::ReplayStatus;
use run::RunDir;
use run::averages::{Averages, RecentScores, Speed, UpdateMetrics};
use run::checkpoint::{self, Checkpoint, CheckpointWriter};
use run::event::{ProgressUpdate, RunOutcome};
use run::lines::Lines;
use run::record::{self, AGENT, Episode, Evaluation, Record, Training};

use tracing::warn;

use crate::checkpoint::{FINAL_FILES, RunState};

/// Name of the checkpoint of a finished run.
pub const FINAL: &str = "final";

/// Name of the checkpoint with the best evaluation so far.
const BEST: &str = "best";

/// The values of a record's file. Lines that can't be read are logged.
pub(crate) fn logged<T>(lines: Lines<T>) -> Vec<T> {
    lines.reported(|skipped| warn!(skipped, "damaged line in the run's record"))
}

const RECORD_FAILED: &str = "can't write the run's record: free some disk space, then resume the run";

/// A run's directory, record and counters.
pub struct Journal {
    directory: RunDir,
    record: Record,
    /// The counters that a checkpoint stores. The training loop updates frames and agent steps.
    pub state: RunState,
    averages: Averages,
    recent: RecentScores,
    frames_speed: Speed,
    updates_speed: Speed,
    evaluation_score: Option<f64>,
    /// An entry of the training record that could not be written yet.
    unwritten: Option<Training>,
    /// Start of the training time that is not in `state.seconds` yet.
    since: Instant,
}

impl Journal {
    /// The journal of a run that resumes from `state`.
    pub fn new(directory: RunDir, record: Record, state: RunState) -> Self {
        let now = Instant::now();
        Self {
            directory,
            record,
            averages: Averages::new(state.frames, now),
            recent: RecentScores::default(),
            frames_speed: Speed::new(state.frames, now),
            updates_speed: Speed::new(state.updates, now),
            evaluation_score: None,
            unwritten: None,
            since: now,
            state,
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Deletes the directory of a run that could not start.
    pub fn discard(&self) {
        self.directory.discard();
    }

    fn checkpoints(&self) -> PathBuf {
        self.directory.checkpoints()
    }

    /// Whether the run has finished: its final checkpoint exists.
    pub fn has_ended(&self) -> bool {
        self.checkpoints().join(FINAL).is_dir()
    }

    /// Deletes the final checkpoint, for a run that continues beyond its former budget.
    pub fn remove_final_checkpoint(&self) -> Result<()> {
        checkpoint::remove(&self.checkpoints(), FINAL).with_context(|| {
            format!(
                "can't delete the former final checkpoint; check the permissions of {}",
                self.checkpoints().display()
            )
        })
    }

    /// The evaluations recorded so far.
    pub fn evaluations(&self) -> Result<Vec<Evaluation>> {
        Ok(logged(record::evaluations(self.path())?))
    }

    /// Records finished training games.
    pub fn episodes(&mut self, episodes: &[Episode]) -> Result<()> {
        self.record.episodes(episodes).context(RECORD_FAILED)?;
        episodes.iter().for_each(|episode| self.recent.add(episode.score));
        Ok(())
    }

    /// Records a finished training game.
    pub fn episode(&mut self, score: f64, steps: u64, truncated: bool) -> Result<()> {
        self.episodes(&[Episode { frames: self.state.frames, score, steps, truncated }])
    }

    /// Mean score of the newest training games; `None` before the first.
    pub fn training_score(&self) -> Option<f64> {
        self.recent.mean()
    }

    /// Adds an update to the averages.
    pub fn update(&mut self, metrics: &UpdateMetrics) {
        self.averages.add(metrics);
    }

    /// Records the averages over the last updates once there are enough; `None` until then.
    pub fn training(&mut self, updates: u64, replay: &ReplayStatus) -> Result<Option<Training>> {
        if self.unwritten.is_none() {
            self.unwritten = self.averages.take(self.state.frames, updates, replay, Instant::now());
        }
        if let Some(training) = &self.unwritten {
            self.record.training(training).context(RECORD_FAILED)?;
        }
        Ok(self.unwritten.take())
    }

    /// Records an evaluation. If it is the agent's best so far, `save` writes the checkpoint `best`.
    pub fn evaluation(
        &mut self,
        evaluation: &Evaluation,
        save: impl FnOnce(&RunState, &mut CheckpointWriter) -> io::Result<()>,
    ) -> Result<()> {
        self.record_evaluation(evaluation)?;
        self.save_best(evaluation, save)
    }

    /// Records an evaluation.
    pub fn record_evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        self.record.evaluation(evaluation).context(RECORD_FAILED)?;
        if evaluation.player == AGENT {
            self.evaluation_score = Some(evaluation.mean);
        }
        Ok(())
    }

    /// If an evaluation is the agent's best so far, `save` writes the checkpoint `best`.
    pub fn save_best(
        &mut self,
        evaluation: &Evaluation,
        save: impl FnOnce(&RunState, &mut CheckpointWriter) -> io::Result<()>,
    ) -> Result<()> {
        let &Evaluation { frames, updates, mean, .. } = evaluation;
        // The untrained network, evaluated at frame 0, is not a candidate.
        let is_candidate = evaluation.player == AGENT && frames > 0;
        if is_candidate && self.state.best.is_none_or(|best| mean > best) {
            let state = RunState { frames, updates, best: Some(mean), ..self.state.clone() };
            checkpoint::write(&self.checkpoints(), BEST, |writer| save(&state, writer))?;
            self.state.best = Some(mean);
        }
        Ok(())
    }

    /// Progress and speed of training.
    pub fn progress(&mut self, updates: u64, actors: u32, replay: ReplayStatus) -> ProgressUpdate {
        let now = Instant::now();
        ProgressUpdate {
            frames: self.state.frames,
            updates,
            frames_per_second: self.frames_speed.at(self.state.frames, now),
            updates_per_second: self.updates_speed.at(updates, now),
            loss: self.averages.loss(),
            training_score: self.recent.mean(),
            evaluation_score: self.evaluation_score,
            actors,
            replay,
        }
    }

    /// Writes a checkpoint named after the frames, and deletes all but the newest `kept`.
    pub fn checkpoint(
        &mut self,
        updates: u64,
        kept: u32,
        save: impl FnOnce(&RunState, &mut CheckpointWriter) -> io::Result<()>,
    ) -> Result<()> {
        // The cut comes first: a resumed run truncates its record to what was written before this checkpoint.
        self.state.cut = self.record.cut().context(RECORD_FAILED)?;
        self.state.seconds += self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        self.state.updates = updates;
        let folder = self.checkpoints();
        checkpoint::write(&folder, &self.state.frames.to_string(), |writer| save(&self.state, writer))?;
        checkpoint::prune(&folder, kept as usize).with_context(|| {
            format!("can't delete old checkpoints; check the permissions of {}", folder.display())
        })
    }

    /// Records the final evaluations, and links the newest checkpoint as the final one.
    pub fn finish(&mut self, evaluations: Vec<Evaluation>) -> Result<RunOutcome> {
        for evaluation in &evaluations {
            self.record_evaluation(evaluation)?;
        }
        self.save_final()?;
        Ok(self.outcome(evaluations))
    }

    /// Links the newest checkpoint as the final one.
    pub fn save_final(&self) -> Result<()> {
        let folder = self.checkpoints();
        let newest = Checkpoint::newest(&folder)?;
        checkpoint::write(&folder, FINAL, |writer| {
            FINAL_FILES.iter().try_for_each(|file| writer.link(&newest, file))
        })?;
        Ok(())
    }

    /// The run's outcome, from the counters of its last checkpoint.
    pub fn outcome(&self, evaluations: Vec<Evaluation>) -> RunOutcome {
        let RunState { frames, updates, seconds, .. } = self.state;
        RunOutcome { frames, updates, seconds, evaluations }
    }
}
