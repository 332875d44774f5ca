//! Events that a learner sends to the launcher that started it, one JSON object per line of its stdout.
//!
//! The launcher owns the terminal; the learner has the figures.

use std::path::PathBuf;

use replay::ReplayStatus;
use serde::{Deserialize, Serialize};

use crate::record::Evaluation;

/// An event to display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run directory exists and is locked, and the learner listens.
    Ready {
        run_dir: PathBuf,
        /// Frames so far: 0 for a new run.
        frames: u64,
    },
    /// Progress, about five times a second.
    Progress(ProgressUpdate),
    /// The result of an evaluation.
    Evaluation(Evaluation),
    /// A message for the user, such as: resuming from a checkpoint.
    Note { text: String },
    /// Stopped on request, with a checkpoint to resume from.
    Stopped { frames: u64 },
    /// The frame budget is reached and everything is written.
    Finished(RunOutcome),
}

/// How far training has come, and how fast it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressUpdate {
    pub frames: u64,
    pub updates: u64,
    /// Rate over the last seconds.
    pub frames_per_second: f64,
    /// Rate over the last seconds.
    pub updates_per_second: f64,
    /// Mean loss of the last entry of the training record, if there is one.
    pub loss: Option<f64>,
    /// Mean score of recent training games.
    pub training_score: Option<f64>,
    /// Mean score of the newest evaluation.
    pub evaluation_score: Option<f64>,
    /// Actors that have joined.
    pub actors: u32,
    /// What the replay holds, and what the learner is blocked on.
    pub replay: ReplayStatus,
}

/// The results of a finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    pub frames: u64,
    pub updates: u64,
    pub seconds: f64,
    /// The agent's final evaluation, then the baselines'.
    pub evaluations: Vec<Evaluation>,
}
