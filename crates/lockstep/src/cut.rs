//! A checkpoint of a lockstep run: one consistent cut through all of it.

use anyhow::Result;
use rand_chacha::ChaCha8Rng;
use replay::Store;
use run::checkpoint::{Checkpoint, Writer};
use run::record::Cut;
use serde::{Deserialize, Serialize};
use std::io;

use crate::lockstep::Lockstep;

const STATE: &str = "state.bin";
const REPLAY: &str = "replay.bin";

/// All files of a checkpoint that make a player; `best` and `final` have these.
pub const FILES_OF_AN_AGENT: [&str; 4] = {
    let [weights, target, optimiser] = learner::trainer::FILES;
    [weights, target, optimiser, STATE]
};

/// What is remembered beside the run's own state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// How long the record's files were.
    pub cut: Cut,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Best mean of an evaluation so far.
    pub best: Option<f64>,
}

/// Counters and generators.
#[derive(Serialize, Deserialize)]
struct State {
    frames: u64,
    agent_steps: u64,
    updates: u64,
    sampling: ChaCha8Rng,
    lanes: Vec<Vec<u8>>,
    ledger: Ledger,
}

/// Writes everything, the replay only if asked.
pub fn save(run: &Lockstep, ledger: &Ledger, with_replay: bool, writer: &mut Writer) -> io::Result<()> {
    for (name, bytes) in run.learner.save() {
        writer.file(name, |out| out.write_all(&bytes))?;
    }
    let state = State {
        frames: run.frames,
        agent_steps: run.agent_steps,
        updates: run.learner.updates(),
        sampling: run.sampling.clone(),
        lanes: run.player.save().map_err(io::Error::other)?,
        ledger: ledger.clone(),
    };
    let state = postcard::to_stdvec(&state).map_err(io::Error::other)?;
    writer.file(STATE, |out| out.write_all(&state))?;
    if with_replay {
        writer.file(REPLAY, |mut out| run.store.save(&mut out))?;
    }
    Ok(())
}

/// Puts a run back to where a checkpoint left it. `run` must be new and of the same settings.
pub fn restore(run: &mut Lockstep, checkpoint: &Checkpoint) -> Result<Ledger> {
    let state: State =
        postcard::from_bytes(&checkpoint.read(STATE)?).map_err(|error| checkpoint.nonsense(error))?;
    let files = learner::trainer::FILES.map(|name| checkpoint.read(name));
    let [weights, target, optimiser] = files;
    run.learner
        .restore(state.updates, [&weights?, &target?, &optimiser?])
        .map_err(|error| checkpoint.nonsense(error))?;
    run.player.restore(&state.lanes).map_err(|error| checkpoint.nonsense(error))?;
    let mut replay = checkpoint.reader(REPLAY)?;
    let options = run.store.options().clone();
    run.store = Store::load(options, 0, &mut replay).map_err(|error| checkpoint.nonsense(error))?;
    run.frames = state.frames;
    run.agent_steps = state.agent_steps;
    run.sampling = state.sampling;
    Ok(state.ledger)
}

/// Frames and updates behind a checkpoint's weights, be it of a run in lockstep or of a cluster.
pub fn age(checkpoint: &Checkpoint) -> Result<(u64, u64)> {
    Ok(counters(&checkpoint.read(STATE)?).map_err(|error| checkpoint.nonsense(error))?)
}

/// The counters with which the state in every kind of checkpoint begins; what follows differs.
fn counters(state: &[u8]) -> postcard::Result<(u64, u64)> {
    let (frames, _agent_steps, updates) = postcard::from_bytes::<(u64, u64, u64)>(state)?;
    Ok((frames, updates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_clusters_checkpoint_can_be_read() {
        let state = learner::state::State {
            frames: 400_000,
            agent_steps: 100_000,
            updates: 25_000,
            ..learner::state::State::default()
        };
        assert_eq!(counters(&postcard::to_stdvec(&state).unwrap()), Ok((400_000, 25_000)));
    }
}
