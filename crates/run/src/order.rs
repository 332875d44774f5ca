//! What the launcher hands to the half of the command that needs libtorch.
//!
//! `quiver` itself links no libtorch, so that `quiver doctor` and a clear error are possible without it. It parses,
//! checks and then becomes `quiver-lockstep <order>`, the order being this type as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::choices::{Device, EvaluationPolicy};
use crate::resolve::Resolved;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Say that libtorch loads, then end: version, devices.
    Probe,
    /// Train from the start in a directory that does not exist yet, or go on where it was left.
    Train {
        /// The run's directory.
        run: PathBuf,
        /// Its settings.
        resolved: Box<Resolved>,
        /// Whether to go on from the newest checkpoint.
        resume: bool,
    },
    /// Play whole games with a run's weights and print the scores.
    Evaluate {
        /// Whose weights.
        agent: Agent,
        /// How many games.
        episodes: u32,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Play one game and keep what a person would see.
    Play {
        /// Whose weights.
        agent: Agent,
        /// `.mp4`, `.gif`, or a directory for PNG frames.
        video: PathBuf,
        /// Stop after this many decisions, if the game has not ended.
        steps_max: u64,
    },
}

/// A trained player: a run, one of its checkpoints, and how it acts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// The run's directory.
    pub run: PathBuf,
    /// A checkpoint's name: `final`, `best` or a number; the best there is if none is named.
    pub checkpoint: Option<String>,
    /// Overrides the run's own setting.
    pub policy: Option<EvaluationPolicy>,
    /// Overrides the run's own setting.
    pub device: Option<Device>,
    /// Seed of the games played.
    pub seed: u64,
}
