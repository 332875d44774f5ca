//! What a learner tells the launcher that started it, one JSON object per line.
//!
//! The launcher has the terminal; the learner has the figures.

use std::path::PathBuf;

use replay::ReplayStatus;
use serde::{Deserialize, Serialize};

use crate::record::Evaluation;

/// Something that a person who watches wants to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run's directory is there and locked, and the learner listens.
    Ready {
        /// The directory.
        run_dir: PathBuf,
        /// Frames so far: 0 for a new run.
        frames: u64,
    },
    /// How it goes, about five times a second.
    Progress(Progress),
    /// An evaluation came in.
    Evaluation(Evaluation),
    /// A line worth reading: gone on from a checkpoint, waiting for a shard, ….
    Note {
        /// One line.
        text: String,
    },
    /// Stopped on request, with a checkpoint to go on from.
    Stopped {
        /// Frames so far.
        frames: u64,
    },
    /// The frame budget is reached and everything is written.
    Finished(Outcome),
}

/// How far training is and how fast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Frames so far.
    pub frames: u64,
    /// Updates so far.
    pub updates: u64,
    /// Over the last seconds.
    pub frames_per_second: f64,
    /// Over the last seconds.
    pub updates_per_second: f64,
    /// Mean loss of the last stretch, once there is one.
    pub loss: Option<f64>,
    /// Mean score of the newest training games.
    pub training_score: Option<f64>,
    /// Mean score of the newest evaluation.
    pub evaluation_score: Option<f64>,
    /// Actors that are joined now.
    pub actors: u32,
    /// What the replay holds, and what the learner is blocked on.
    pub replay: ReplayStatus,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Frames trained.
    pub frames: u64,
    /// Updates made.
    pub updates: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// The agent's final evaluation, then the baselines'.
    pub evaluations: Vec<Evaluation>,
}
