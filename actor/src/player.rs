//! Steps all lanes of one process with one forward pass.

use nn::QNetwork;
use replay::{Chunk, LaneKey, WeightsVersion};
use run::Resolved;

use crate::lane::{EpisodeEnd, Lane, LaneError};
use crate::rules::Rules;
use crate::seed::{self, Purpose};

/// Many lanes, one policy.
pub struct Player {
    rules: Rules,
    lanes: Vec<Lane>,
    states: Vec<u8>,
}

/// What one round of decisions gave.
#[derive(Debug, Default)]
pub struct Played {
    /// Frames emulated.
    pub frames: u64,
    /// Decisions made.
    pub agent_steps: u64,
    /// Games that ended.
    pub episodes: Vec<EpisodeEnd>,
    /// Experience to be stored.
    pub chunks: Vec<Chunk>,
}

impl Player {
    /// The lanes of one incarnation of one actor.
    pub fn new(resolved: &Resolved, actor: u32, incarnation: u64) -> Result<Self, LaneError> {
        let settings = &resolved.settings;
        let rules = Rules::new(settings);
        let options = settings.environment();
        let make = |lane: u32| {
            let path = [actor.into(), incarnation, lane.into()];
            let environment_seed = seed::number(settings.seed, Purpose::Environment, &path);
            let environment = envs::make(&resolved.game, &options, environment_seed)?;
            let rng = seed::generator(settings.seed, Purpose::Actions, &path);
            Ok(Lane::new(LaneKey { actor, incarnation, lane }, environment, rng, &rules))
        };
        let lanes = (0..settings.lanes).map(make).collect::<Result<_, LaneError>>()?;
        Ok(Self { rules, lanes, states: Vec::new() })
    }

    /// One decision in every lane. `agent_steps` is the whole run's count so far, for the exploration schedule.
    pub fn step(
        &mut self,
        network: &QNetwork,
        weights: WeightsVersion,
        agent_steps: u64,
    ) -> Result<Played, LaneError> {
        self.states.clear();
        for lane in &self.lanes {
            self.states.extend_from_slice(lane.state());
        }
        let q = network.q_values(&self.states, self.lanes.len());
        let actions = q.len() / self.lanes.len();
        let mut played = Played::default();
        for (lane, q) in self.lanes.iter_mut().zip(q.chunks_exact(actions)) {
            let behaviour = self.rules.behaviour(agent_steps + played.agent_steps);
            let value_of = |state: &[u8]| network.q_values(state, 1);
            let (frames, end) = lane.act(&self.rules, behaviour, weights, q, value_of)?;
            played.frames += u64::from(frames);
            played.agent_steps += 1;
            played.episodes.extend(end);
            played.chunks.extend(lane.take_chunk());
        }
        Ok(played)
    }

    /// Every lane as bytes.
    pub fn save(&self) -> Vec<Vec<u8>> {
        self.lanes.iter().map(Lane::save).collect()
    }

    /// Goes on from [`Player::save`].
    pub fn restore(&mut self, lanes: &[Vec<u8>]) -> Result<(), LaneError> {
        if lanes.len() != self.lanes.len() {
            return Err(LaneError::State(format!(
                "{} lanes saved, {} wanted",
                lanes.len(),
                self.lanes.len()
            )));
        }
        self.lanes.iter_mut().zip(lanes).try_for_each(|(lane, bytes)| lane.restore(bytes))
    }
}
