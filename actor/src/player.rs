//! Steps all lanes of one process with one forward pass.

use agents::QNetwork;
use replay::{Chunk, LaneKey, WeightsVersion};
use settings::Resolved;

use crate::lane::{EpisodeEnd, Lane, LaneError};
use crate::rules::Rules;
use settings::seed::{self, Purpose};

/// Many lanes, one policy.
pub struct Player {
    rules: Rules,
    lanes: Vec<Lane>,
    states: Vec<u8>,
    /// Steps that a lane gathers before they are sent.
    chunk_steps: usize,
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
    /// The lanes of one incarnation of one actor, which send their steps in chunks of `chunk_steps`.
    pub fn new(
        resolved: &Resolved,
        actor: u32,
        incarnation: u64,
        chunk_steps: usize,
    ) -> Result<Self, LaneError> {
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
        Ok(Self { rules, lanes, states: Vec::new(), chunk_steps })
    }

    /// One decision in every lane that is `ready`, which is asked by its number. `agent_steps` is the whole run's count so
    /// far, for the exploration schedule.
    pub fn step(
        &mut self,
        network: &QNetwork,
        weights: WeightsVersion,
        agent_steps: u64,
        ready: impl Fn(usize) -> bool,
    ) -> Result<Played, LaneError> {
        let mut acting: Vec<&mut Lane> = Vec::with_capacity(self.lanes.len());
        acting
            .extend(self.lanes.iter_mut().enumerate().filter(|(lane, _)| ready(*lane)).map(|(_, lane)| lane));
        let mut played = Played::default();
        if acting.is_empty() {
            return Ok(played);
        }
        self.states.clear();
        for lane in &acting {
            self.states.extend_from_slice(lane.state());
        }
        let agent = self.rules.agent.clone();
        let q = agent.q_rows(network, &self.states, acting.len());
        let actions = q.len() / acting.len();
        for (lane, q) in acting.into_iter().zip(q.chunks_exact(actions)) {
            let behaviour = self.rules.behaviour(agent_steps + played.agent_steps);
            let value_of = |state: &[u8]| agent.q_rows(network, state, 1);
            let (frames, end) = lane.act(&self.rules, behaviour, weights, q, value_of)?;
            played.frames += u64::from(frames);
            played.agent_steps += 1;
            played.episodes.extend(end);
            if lane.steps_waiting() >= self.chunk_steps {
                played.chunks.extend(lane.take_chunk());
            }
        }
        Ok(played)
    }

    /// Every lane as bytes.
    pub fn save(&self) -> Result<Vec<Vec<u8>>, LaneError> {
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
