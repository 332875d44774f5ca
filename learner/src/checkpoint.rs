//! What a checkpoint of a run holds: weights, optimiser, and one [`State`] of counters. Lockstep adds its replay and its
//! environments; a cluster's replay is the shards' business.

use std::io;

use anyhow::Result;
use coordinator::control::Mark;
use rand_chacha::ChaCha8Rng;
use run::checkpoint::{Checkpoint, Writer};
use run::record::Cut;
use serde::{Deserialize, Serialize};

use crate::learner::Learner;

/// The online network's weights.
pub const WEIGHTS: &str = "weights.safetensors";
/// The target network's weights.
pub const TARGET: &str = "target.safetensors";
/// Adam's moments.
pub const OPTIMISER: &str = "optimiser.safetensors";
/// The counters.
pub const STATE: &str = "state.bin";

/// Opens every file of counters; another version of the format has another.
const FORMAT: &str = "quiver-state-2";

/// All files of a checkpoint that make an agent that can play.
pub const FILES_OF_AN_AGENT: [&str; 4] = [WEIGHTS, TARGET, OPTIMISER, STATE];

/// Counters of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Emulator frames.
    pub frames: u64,
    /// Decisions.
    pub agent_steps: u64,
    /// Gradient steps.
    pub updates: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Best mean of an evaluation so far.
    pub best: Option<f64>,
    /// How long the record's files were.
    pub cut: Cut,
    /// How far each shard of a cluster had counted.
    pub marks: Vec<Mark>,
    /// What a run in lockstep needs beyond that.
    pub lockstep: Option<LockstepState>,
}

/// Generator and environments of a run in lockstep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockstepState {
    /// Draws batches.
    pub sampling: ChaCha8Rng,
    /// Each lane's environment, with what it has not sent yet.
    pub lanes: Vec<Vec<u8>>,
}

/// Writes weights, optimiser and counters.
pub fn save(learner: &Learner, state: &State, writer: &mut Writer) -> io::Result<()> {
    for (name, bytes) in [WEIGHTS, TARGET, OPTIMISER].into_iter().zip(learner.save()) {
        writer.file(name, |out| out.write_all(&bytes))?;
    }
    save_state(state, writer)
}

/// Writes a checkpoint to play with: weights as they were published, and their counters.
pub fn save_weights(safetensors: &[u8], state: &State, writer: &mut Writer) -> io::Result<()> {
    writer.file(WEIGHTS, |out| out.write_all(safetensors))?;
    save_state(state, writer)
}

fn save_state(state: &State, writer: &mut Writer) -> io::Result<()> {
    let bytes = postcard::to_stdvec(&(FORMAT, state)).map_err(io::Error::other)?;
    writer.file(STATE, |out| out.write_all(&bytes))
}

/// Resumes from a checkpoint.
pub fn restore(learner: &mut Learner, checkpoint: &Checkpoint) -> Result<State> {
    let state = read_state(checkpoint)?;
    let [weights, target, optimiser] = [WEIGHTS, TARGET, OPTIMISER].map(|name| checkpoint.read(name));
    learner
        .restore(state.updates, [&weights?, &target?, &optimiser?])
        .map_err(|error| checkpoint.nonsense(error))?;
    Ok(state)
}

/// The counters of a checkpoint, whatever kind of run wrote it.
pub fn read_state(checkpoint: &Checkpoint) -> Result<State> {
    let bytes = checkpoint.read(STATE)?;
    let (_, rest) =
        postcard::take_from_bytes::<String>(&bytes).ok().filter(|(format, _)| format == FORMAT).ok_or_else(
            || checkpoint.nonsense("another version of quiver wrote it: continue the run with that version"),
        )?;
    Ok(postcard::from_bytes(rest).map_err(|error| checkpoint.nonsense(error))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::checkpoint;

    #[test]
    fn counters_come_back_and_those_of_another_format_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = State { frames: 400_000, updates: 25_000, best: Some(1.5), ..State::default() };
        checkpoint::write(folder.path(), "400000", |writer| save_weights(b"", &state, writer)).unwrap();
        let found = Checkpoint::newest(folder.path()).unwrap();
        assert_eq!(read_state(&found).unwrap(), state);

        let former = postcard::to_stdvec(&(400_000u64, 100_000u64, 25_000u64)).unwrap();
        checkpoint::write(folder.path(), "500000", |writer| writer.file(STATE, |out| out.write_all(&former)))
            .unwrap();
        let former = Checkpoint::newest(folder.path()).unwrap();
        assert!(read_state(&former).unwrap_err().to_string().contains("another version of quiver"));
    }
}
