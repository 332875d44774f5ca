//! Steps all lanes of one process with one forward pass.

use agents::QNetwork;
use replay::{Chunk, LaneKey, WeightsVersion};
use settings::Resolved;

use crate::lane::{EpisodeEnd, Lane, LaneError};
use crate::rules::Rules;
use settings::seed::{self, Purpose};

/// All lanes of one process, with one policy.
pub struct Lanes {
    rules: Rules,
    lanes: Vec<Lane>,
    states: Vec<u8>,
    /// Steps per chunk.
    chunk_steps: usize,
}

/// The result of one step in all ready lanes.
#[derive(Debug, Default)]
pub struct LanesStep {
    /// Emulated frames.
    pub frames: u64,
    pub agent_steps: u64,
    /// Episodes that ended.
    pub episodes: Vec<EpisodeEnd>,
    /// Experience to store.
    pub chunks: Vec<Chunk>,
}

impl Lanes {
    /// Creates the lanes of one incarnation of one actor, which joined the learner's start number `learner_start`. Each
    /// sends its steps in chunks of `chunk_steps`.
    pub fn new(
        resolved: &Resolved,
        actor: u32,
        incarnation: u64,
        learner_start: u32,
        chunk_steps: usize,
    ) -> Result<Self, LaneError> {
        let settings = &resolved.settings;
        let rules = Rules::new(settings);
        let options = settings.environment();
        let make = |lane: u32| {
            let path = [actor.into(), seed_of(incarnation, learner_start), lane.into()];
            let environment_seed = seed::number(settings.seed, Purpose::Environment, &path);
            let environment = envs::make(&resolved.game, &options, environment_seed)?;
            let rng = seed::generator(settings.seed, Purpose::Actions, &path);
            Ok(Lane::new(LaneKey { actor, incarnation, lane }, environment, rng, &rules))
        };
        let lanes = (0..settings.lanes).map(make).collect::<Result<_, LaneError>>()?;
        Ok(Self { rules, lanes, states: Vec::new(), chunk_steps })
    }

    /// Takes one agent step in every lane for whose number `ready` is true. `agent_steps` is the whole run's count so
    /// far, for the exploration schedule.
    pub fn step(
        &mut self,
        network: &QNetwork,
        weights: WeightsVersion,
        agent_steps: u64,
        ready: impl Fn(usize) -> bool,
    ) -> Result<LanesStep, LaneError> {
        let mut acting: Vec<&mut Lane> = Vec::with_capacity(self.lanes.len());
        acting
            .extend(self.lanes.iter_mut().enumerate().filter(|(lane, _)| ready(*lane)).map(|(_, lane)| lane));
        let mut stepped = LanesStep::default();
        if acting.is_empty() {
            return Ok(stepped);
        }
        self.states.clear();
        for lane in &acting {
            self.states.extend_from_slice(lane.state());
        }
        let agent = self.rules.agent.clone();
        let q = agent.q_rows(network, &self.states, acting.len());
        let actions = q.len() / acting.len();
        for (lane, q) in acting.into_iter().zip(q.chunks_exact(actions)) {
            let behaviour = self.rules.behaviour(agent_steps + stepped.agent_steps);
            let value_of = |state: &[u8]| agent.q_rows(network, state, 1);
            let (frames, end) = lane.act(&self.rules, behaviour, weights, q, value_of)?;
            stepped.frames += u64::from(frames);
            stepped.agent_steps += 1;
            stepped.episodes.extend(end);
            if lane.steps_waiting() >= self.chunk_steps {
                stepped.chunks.extend(lane.take_chunk());
            }
        }
        Ok(stepped)
    }

    /// Serializes every lane.
    pub fn save(&self) -> Result<Vec<Vec<u8>>, LaneError> {
        self.lanes.iter().map(Lane::save).collect()
    }

    /// Restores the lanes that [`Lanes::save`] returned.
    pub fn restore(&mut self, lanes: &[Vec<u8>]) -> Result<(), LaneError> {
        if lanes.len() != self.lanes.len() {
            return Err(LaneError::State(format!(
                "it has {} lanes, but the settings have {}",
                lanes.len(),
                self.lanes.len()
            )));
        }
        self.lanes.iter_mut().zip(lanes).try_for_each(|(lane, bytes)| lane.restore(bytes))
    }
}

/// The part of an incarnation that seeds generators. Its upper half, the learner's incarnation, depends on the clock; with
/// the number of the learner's start in its place, runs of equal seeds are comparable, and no two members share a seed.
fn seed_of(incarnation: u64, learner_start: u32) -> u64 {
    u64::from(learner_start) << 32 | u64::from(incarnation as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_are_comparable_whatever_the_learners_clock_said() {
        let (tuesday, friday) = (1_700_000_000 << 32 | 3, 1_700_259_200 << 32 | 3);
        assert_eq!(seed_of(tuesday, 1), seed_of(friday, 1));
        assert_ne!(seed_of(tuesday, 1), seed_of(friday, 2), "a later start of the learner");
        assert_ne!(seed_of(tuesday, 1), seed_of(tuesday + 1, 1), "another member");
    }
}
