//! The contents of a checkpoint: weights, optimizer, and the run's counters ([`RunState`]). Lockstep adds its replay
//! and environments; in a cluster the shards store the replay themselves.

use std::io;

use agents::parameters::WeightsError;
use anyhow::{Result, anyhow};
use coordinator::control::ShardCount;
use rand_chacha::ChaCha8Rng;
use run::checkpoint::{Checkpoint, CheckpointWriter};
use run::record::Cut;
use serde::{Deserialize, Serialize};

use crate::learner::Learner;

/// The online network's weights.
pub const WEIGHTS: &str = "weights.safetensors";
/// The target network's weights.
pub const TARGET: &str = "target.safetensors";
pub const OPTIMIZER: &str = "optimiser.safetensors";
pub const STATE: &str = "state.bin";

/// First bytes of every file of counters. Each version of the format has its own.
const FORMAT: &str = "quiver-state-2";

/// Files of the checkpoint `final`: all except the replay of lockstep.
pub const FINAL_FILES: [&str; 4] = [WEIGHTS, TARGET, OPTIMIZER, STATE];

/// Counters of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    pub frames: u64,
    /// Agent steps: one decision each.
    pub agent_steps: u64,
    pub updates: u64,
    pub seconds: f64,
    /// Best mean of an evaluation so far.
    pub best: Option<f64>,
    /// Lengths of the record's files at this checkpoint.
    pub cut: Cut,
    /// What had been counted of each shard incarnation; empty in lockstep.
    pub shard_counts: Vec<ShardCount>,
    /// What a lockstep run needs in addition; `None` in a cluster.
    pub lockstep: Option<LockstepState>,
}

/// Random generator and environments of a lockstep run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockstepState {
    /// The generator that draws batches.
    pub sampling: ChaCha8Rng,
    /// Each lane's environment, with the steps not yet stored in the replay.
    pub lanes: Vec<Vec<u8>>,
}

/// Writes weights, optimizer and counters.
pub fn save(learner: &Learner, state: &RunState, writer: &mut CheckpointWriter) -> io::Result<()> {
    for (name, bytes) in [WEIGHTS, TARGET, OPTIMIZER].into_iter().zip(learner.save()) {
        writer.file(name, |out| out.write_all(&bytes))?;
    }
    save_state(state, learner.episodes(), writer)
}

/// Writes a checkpoint that can only play: published weights and their counters.
pub fn save_weights(safetensors: &[u8], state: &RunState, writer: &mut CheckpointWriter) -> io::Result<()> {
    writer.file(WEIGHTS, |out| out.write_all(safetensors))?;
    // Nothing resumes from this checkpoint, so nothing reads its count of episodes.
    save_state(state, 0, writer)
}

/// The count of training episodes follows the other counters, where older files end: they lack it, and an older
/// Quiver ignores it.
fn save_state(state: &RunState, episodes: u64, writer: &mut CheckpointWriter) -> io::Result<()> {
    let bytes = postcard::to_stdvec(&(FORMAT, state, episodes)).map_err(io::Error::other)?;
    writer.file(STATE, |out| out.write_all(&bytes))
}

/// Restores the learner from a checkpoint and returns the run's counters.
pub fn restore(learner: &mut Learner, checkpoint: &Checkpoint) -> Result<RunState> {
    let (state, episodes) = read_counters(checkpoint)?;
    let [weights, target, optimizer] = [WEIGHTS, TARGET, OPTIMIZER].map(|name| checkpoint.read(name));
    learner
        .restore((state.updates, episodes), [&weights?, &target?, &optimizer?])
        .map_err(|error| weights_error(checkpoint, error))?;
    Ok(state)
}

/// The error for weights that a network can't load. Those of another network are intact: deleting them is no remedy.
pub fn weights_error(checkpoint: &Checkpoint, error: WeightsError) -> anyhow::Error {
    match error {
        WeightsError::Mismatch(_) => {
            anyhow!(
                "checkpoint {} does not fit the settings of its run: {error}",
                checkpoint.path().display()
            )
        }
        WeightsError::Format(_) | WeightsError::NotFinite(_) => checkpoint.invalid(error).into(),
    }
}

/// The counters of a checkpoint, of a cluster or of lockstep.
pub fn read_state(checkpoint: &Checkpoint) -> Result<RunState> {
    read_counters(checkpoint).map(|(state, _)| state)
}

/// The counters, and the learner's count of training episodes, which is 0 in files that end before it.
fn read_counters(checkpoint: &Checkpoint) -> Result<(RunState, u64)> {
    let bytes = checkpoint.read(STATE)?;
    let format = postcard::take_from_bytes::<String>(&bytes).ok().filter(|(format, _)| format == FORMAT);
    let (_, rest) = format.ok_or_else(|| checkpoint.other_version())?;
    let invalid = |error| checkpoint.invalid(error);
    let (state, rest) = postcard::take_from_bytes(rest).map_err(invalid)?;
    let episodes = if rest.is_empty() { 0 } else { postcard::from_bytes(rest).map_err(invalid)? };
    Ok((state, episodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::checkpoint;

    #[test]
    fn counters_come_back_and_those_of_another_format_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = RunState { frames: 400_000, updates: 25_000, best: Some(1.5), ..RunState::default() };
        checkpoint::write(folder.path(), "400000", |writer| save_weights(b"", &state, writer)).unwrap();
        let found = Checkpoint::newest(folder.path()).unwrap();
        assert_eq!(read_state(&found).unwrap(), state);

        let older = postcard::to_stdvec(&(FORMAT, &state)).unwrap();
        checkpoint::write(folder.path(), "400001", |writer| writer.file(STATE, |out| out.write_all(&older)))
            .unwrap();
        let older = Checkpoint::newest(folder.path()).unwrap();
        assert_eq!(read_counters(&older).unwrap(), (state, 0), "older files counted no episodes");

        let former = postcard::to_stdvec(&(400_000u64, 100_000u64, 25_000u64)).unwrap();
        checkpoint::write(folder.path(), "500000", |writer| writer.file(STATE, |out| out.write_all(&former)))
            .unwrap();
        let former = Checkpoint::newest(folder.path()).unwrap();
        let refused = read_state(&former).unwrap_err().to_string();
        assert!(refused.contains("another version of quiver") && !refused.contains("damaged"), "{refused}");
    }
}
