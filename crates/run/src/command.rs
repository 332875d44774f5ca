//! The commands that `quiver` passes to the programs that link libtorch.
//!
//! `quiver` itself does not link libtorch, so that `quiver doctor` and clear errors work without it. It parses and checks its
//! arguments and then replaces itself by `quiver-lockstep <command>` or, for the paper's figures, `quiver-paper <command>`.
//! The argument is a [`Command`] as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
pub use value::Strategy;

use settings::choices::{Device, EvaluationPolicy};
use settings::resolve::Resolved;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Check that libtorch loads and computes, and print the number of GPUs.
    Probe,
    /// Train a new run, or resume one.
    Train {
        run: PathBuf,
        resolved: Box<Resolved>,
        /// Whether to resume from the newest checkpoint.
        resume: bool,
        /// Whether to stop with a checkpoint when stdin closes, that is, when the parent process has exited.
        exit_with_parent: bool,
    },
    /// Play whole games with a run's weights and print the scores.
    Evaluate {
        agent: TrainedAgent,
        episodes: u32,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Play one game and save it as a video.
    Play {
        agent: TrainedAgent,
        /// `.mp4`, `.gif`, or a directory for PNG frames.
        video: PathBuf,
        /// Stop after this many agent steps, if the game has not ended.
        steps_max: u64,
    },
    /// Reproduce figures of the paper.
    Paper(PaperCommand),
}

/// Which figures of the paper, and at what scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperCommand {
    pub figure: PaperFigure,
    /// Whether to use the paper's scale, or the quick one that two cores finish in minutes.
    pub full: bool,
    /// Random seed; the first seed of a sweep.
    pub seed: u64,
    pub out: PathBuf,
    /// The runs of figure 6, which vary the strategy; `None` for other figures.
    pub sweep: Option<Sweep>,
}

/// A figure of the paper, or all figures.
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
    /// Fifty sampled transitions ordered by the bound.
    Fig5,
    /// Atari.
    Fig6,
    /// All figures in sequence.
    All,
}

/// Runs that differ in game, seed and varied settings; all other settings are fixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Canonical names.
    pub games: Vec<String>,
    /// Settings with several values. Each combination of their values is a variant.
    pub vary: Vec<Vary>,
    /// Number of seeds per game and variant.
    pub seeds: u64,
    /// Number of runs that train at a time.
    pub parallel: usize,
    /// The preset of all runs; `None` for the config file's or each game's own.
    pub preset: Option<String>,
    /// A TOML file with settings that override the preset.
    pub config: Option<PathBuf>,
    /// Settings that override the preset, the file and the variables, as (key, text).
    pub flags: Vec<(String, String)>,
    /// Variables `QUIVER_<KEY>`, which override the preset and the file, as (key, text).
    pub environment: Vec<(String, String)>,
    /// Of figure 6: whether games, frames or settings differ from the paper's, or from the quick version's.
    pub changed: bool,
}

impl Sweep {
    /// The strategies that it compares; none if the strategy is fixed.
    pub fn strategies(&self) -> Vec<Strategy> {
        let axis = self.vary.iter().find(|axis| axis.key == STRATEGY);
        axis.iter().flat_map(|axis| &axis.values).filter_map(|name| name.parse().ok()).collect()
    }
}

/// A setting with several values in a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vary {
    pub key: String,
    pub values: Vec<String>,
}

impl Vary {
    /// Compares strategies.
    pub fn strategies(strategies: &[Strategy]) -> Self {
        Self { key: STRATEGY.to_owned(), values: strategies.iter().map(Strategy::to_string).collect() }
    }
}

const STRATEGY: &str = "strategy";

/// A trained agent to load: a run, one of its checkpoints, and how the agent acts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainedAgent {
    pub run: PathBuf,
    /// A checkpoint's name: `final`, `best` or a number. `None` takes the first that exists of `final`, `best`, the newest.
    pub checkpoint: Option<String>,
    /// Overrides the run's own setting.
    pub policy: Option<EvaluationPolicy>,
    /// Overrides the run's own setting.
    pub device: Option<Device>,
    /// Seed of the games.
    pub seed: u64,
}
