//! What the launcher hands to the half of the command that needs libtorch.
//!
//! `quiver` itself links no libtorch, so that `quiver doctor` and a clear error are possible without it. It parses,
//! checks and then becomes `quiver-lockstep <order>` or, for the paper's figures, `quiver-paper <order>`, the order
//! being this type as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
pub use value::Strategy;

use settings::choices::{Device, EvaluationPolicy};
use settings::resolve::Resolved;

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
    /// Make figures of the paper.
    Paper(PaperOrder),
}

/// Which figures of the paper, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperOrder {
    /// Which.
    pub figure: PaperFigure,
    /// Whether to do as much as the paper did, or what two cores can in minutes.
    pub full: bool,
    /// Seed of everything random; the first of a sweep's.
    pub seed: u64,
    /// The folder that results go to.
    pub out: PathBuf,
    /// What figure 6 trains; none if it is not asked for.
    pub sweep: Option<Sweep>,
}

/// A figure of the paper, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PaperFigure {
    /// Linear grid-world.
    Fig1,
    /// Q-learning in the maze.
    Fig2,
    /// Soft Q-learning in the maze.
    Fig3,
    /// CartPole.
    Fig4,
    /// Fifty experiences.
    Fig5,
    /// Atari.
    Fig6,
    /// One after the other.
    All,
}

/// Runs of every game with every strategy and every seed, all else being equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Canonical names.
    pub games: Vec<String>,
    /// How experience is replayed.
    pub strategies: Vec<Strategy>,
    /// How many seeds.
    pub seeds: u64,
    /// How many runs train at the same time.
    pub parallel: usize,
    /// The preset of all of them.
    pub preset: String,
    /// Settings laid over it as (key, text): frames, and whatever else was asked for.
    pub flags: Vec<(String, String)>,
    /// Variables `QUIVER_<KEY>` that lie between the two, as (key, text).
    pub environment: Vec<(String, String)>,
    /// Whether games, frames or settings are other than the paper's, or the quick version's.
    pub changed: bool,
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
