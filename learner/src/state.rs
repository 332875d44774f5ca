//! What a cluster run's checkpoint keeps beside weights and optimiser. The replay is the shards' business.

use std::io;

use anyhow::Result;
use proto::Weights;
use replay::control::Mark;
use run::checkpoint::{Checkpoint, Writer};
use serde::{Deserialize, Serialize};

use crate::trainer::{self, Learner};

/// The file's name in a checkpoint.
pub const STATE: &str = "state.bin";

/// All files of a checkpoint that make a player.
pub const FILES_OF_AN_AGENT: [&str; 4] = [trainer::WEIGHTS, trainer::TARGET, trainer::OPTIMISER, STATE];

/// Counters of a run. The first three are in every kind of checkpoint, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Emulator frames.
    pub frames: u64,
    /// Decisions.
    pub agent_steps: u64,
    /// Gradient steps.
    pub updates: u64,
    /// How far each shard had counted.
    pub marks: Vec<Mark>,
    /// Seconds of training.
    pub seconds: f64,
    /// Best mean of an evaluation so far.
    pub best: Option<f64>,
}

/// Writes a checkpoint to go on from.
pub fn save(learner: &Learner, state: &State, writer: &mut Writer) -> io::Result<()> {
    for (name, bytes) in learner.save() {
        writer.file(name, |out| out.write_all(&bytes))?;
    }
    save_state(state, writer)
}

/// Writes a checkpoint to play with: weights that were published, and their age.
pub fn save_weights(weights: &Weights, state: &State, writer: &mut Writer) -> io::Result<()> {
    writer.file(trainer::WEIGHTS, |out| out.write_all(&weights.safetensors))?;
    save_state(state, writer)
}

fn save_state(state: &State, writer: &mut Writer) -> io::Result<()> {
    let bytes = postcard::to_stdvec(state).map_err(io::Error::other)?;
    writer.file(STATE, |out| out.write_all(&bytes))
}

/// Goes on from a checkpoint.
pub fn restore(learner: &mut Learner, checkpoint: &Checkpoint) -> Result<State> {
    let state: State =
        postcard::from_bytes(&checkpoint.read(STATE)?).map_err(|error| checkpoint.nonsense(error))?;
    let [weights, target, optimiser] = trainer::FILES.map(|name| checkpoint.read(name));
    learner
        .restore(state.updates, [&weights?, &target?, &optimiser?])
        .map_err(|error| checkpoint.nonsense(error))?;
    Ok(state)
}
