//! One environment, and the experience that comes out of it.
//!
//! A lane numbers its steps from 0. A step's transition is complete when the state n steps later is known, or the
//! return ends before; it is sent with the chunk that holds that state's frame, so references point backwards.

use std::collections::VecDeque;

use agents::Behaviour;
use bytes::Bytes;
use envs::stack::FrameStack;
use envs::{EnvError, Environment};
use rand_chacha::ChaCha8Rng;
use replay::codec::{Encoder, EncoderState};
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, Taken, WeightsVersion};
use serde::{Deserialize, Serialize};
use value::priority::{InvalidPriority, Priority};

use crate::rules::Rules;

/// A finished game.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeEnd {
    /// Unclipped.
    pub score: f64,
    /// Decisions made.
    pub steps: u64,
    /// Cut short by the time limit.
    pub truncated: bool,
}

/// Why a lane can't go on.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The network no longer gives numbers.
    #[error("the network's values are not finite: training has diverged; lower learning_rate")]
    Diverged(#[from] InvalidPriority),
    /// A saved lane does not fit.
    #[error("saved lane does not fit: {0}")]
    State(String),
    /// The environment has no way to save its state.
    #[error("{0} cannot save its state, so a run of it has no lockstep checkpoints: leave out --lockstep")]
    StateNotSaved(String),
    /// The environment refused its state.
    #[error(transparent)]
    Environment(#[from] EnvError),
}

/// One environment and what is remembered of it.
pub struct Lane {
    environment: Box<dyn Environment>,
    encoder: Encoder,
    chunk: Vec<Step>,
    /// Packed frames of `chunk`, one after the other.
    frames: Vec<u8>,
    items: Vec<NewItem>,
    memory: Memory,
}

/// Everything of a lane that a checkpoint keeps, besides its environment.
#[derive(Serialize, Deserialize)]
struct Memory {
    key: LaneKey,
    rng: ChaCha8Rng,
    stack: FrameStack,
    next_step: u64,
    next_sequence: u64,
    starts_episode: bool,
    score: f64,
    steps: u64,
    /// Steps whose transitions are not complete, oldest first.
    window: VecDeque<Moment>,
    /// Transitions that wait for the next frame, their last.
    ready: Vec<(u64, u8, Option<f64>)>,
}

#[derive(Serialize, Deserialize)]
struct Moment {
    number: u64,
    q: Vec<f64>,
    taken: Taken,
}

impl Lane {
    /// A lane at the start of its environment's first episode.
    pub fn new(key: LaneKey, environment: Box<dyn Environment>, rng: ChaCha8Rng, rules: &Rules) -> Self {
        let mut stack = FrameStack::new(rules.stack, environment.spec().observation.bytes());
        stack.reset(environment.observation());
        let memory = Memory {
            key,
            rng,
            stack,
            next_step: 0,
            next_sequence: 0,
            starts_episode: true,
            score: 0.0,
            steps: 0,
            window: VecDeque::new(),
            ready: Vec::new(),
        };
        let encoder = Encoder::new(rules.codec, environment.spec().observation.bytes());
        let (chunk, frames, items) = (Vec::new(), Vec::new(), Vec::new());
        Self { environment, encoder, chunk, frames, items, memory }
    }

    /// The state to be valued next.
    pub fn state(&self) -> &[u8] {
        self.memory.stack.as_slice()
    }

    /// Makes one decision from the Q-values of [`Lane::state`]. `value_of` is asked for the Q-values of a state that
    /// is not acted on: the last of a game that was cut short.
    pub fn act(
        &mut self,
        rules: &Rules,
        behaviour: Behaviour,
        weights: WeightsVersion,
        q: &[f64],
        value_of: impl FnOnce(&[u8]) -> Vec<f64>,
    ) -> Result<(u32, Option<EpisodeEnd>), LaneError> {
        if self.memory.window.len() == rules.n_step {
            self.complete_oldest(rules, Some(q))?;
        }
        let chosen = behaviour.choose(&*rules.agent, q, &mut self.memory.rng);
        let frame = self.pack();
        let outcome = self.environment.step(chosen.action);
        let taken = Taken {
            action: chosen.action as u16,
            reward: outcome.reward,
            terminated: outcome.terminated,
            truncated: outcome.truncated,
            life_lost: outcome.life_lost,
            log_probability: chosen.log_probability as f32,
            weights,
        };
        let number = self.push(frame, Some(taken))?;
        self.memory.window.push_back(Moment { number, q: q.to_vec(), taken });
        self.memory.score += f64::from(outcome.reward);
        self.memory.steps += 1;

        self.memory.stack.push(self.environment.observation());
        if rules.returns.ends(&taken) {
            self.complete_all(rules, None)?;
        } else if taken.truncated {
            let q = value_of(self.memory.stack.as_slice());
            self.complete_all(rules, Some(&q))?;
        }
        let end = taken.ends_episode().then(|| self.next_episode(taken.truncated)).transpose()?;
        Ok((outcome.frames, end))
    }

    /// Steps that wait to be sent.
    pub fn steps_waiting(&self) -> usize {
        self.chunk.len()
    }

    /// What there is to send since the last call: steps, and transitions completed by them.
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        if self.chunk.is_empty() {
            return None;
        }
        let steps = std::mem::take(&mut self.chunk);
        let sequence = self.memory.next_sequence;
        self.memory.next_sequence += 1;
        let first_step = self.memory.next_step - steps.len() as u64;
        let items = std::mem::take(&mut self.items);
        let frames = Bytes::from(std::mem::take(&mut self.frames));
        Some(Chunk { lane: self.memory.key, sequence, first_step, steps, frames, items })
    }

    /// The lane as bytes. The caller takes the pending chunk first.
    pub fn save(&self) -> Result<Vec<u8>, LaneError> {
        assert!(self.chunk.is_empty(), "a lane is saved between chunks");
        let not_saved = || LaneError::StateNotSaved(self.environment.spec().game.clone());
        let environment = self.environment.save().ok_or_else(not_saved)?;
        let saved = (&self.memory, environment, self.encoder.state());
        Ok(postcard::to_stdvec(&saved).expect("a lane can always be written"))
    }

    /// Goes on from [`Lane::save`], in a lane made with the same rules and game.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        let (memory, environment, encoder): (Memory, Vec<u8>, EncoderState) =
            postcard::from_bytes(bytes).map_err(|error| LaneError::State(error.to_string()))?;
        if memory.key != self.memory.key || memory.stack.as_slice().len() != self.state().len() {
            return Err(LaneError::State("it is of another lane or shape".into()));
        }
        if !self.encoder.restore(encoder) {
            return Err(LaneError::State("its frames are of another size".into()));
        }
        self.environment.restore(&environment)?;
        self.memory = memory;
        Ok(())
    }

    /// Packs the observation: the size of the frame, and whether it is a key frame.
    fn pack(&mut self) -> (u32, bool) {
        let before = self.frames.len();
        let key = self.encoder.encode_into(self.environment.observation(), &mut self.frames);
        ((self.frames.len() - before) as u32, key)
    }

    fn push(&mut self, frame: (u32, bool), taken: Option<Taken>) -> Result<u64, LaneError> {
        let number = self.memory.next_step;
        let (frame_bytes, key_frame) = frame;
        self.chunk.push(Step { frame_bytes, key_frame, starts_episode: self.memory.starts_episode, taken });
        self.memory.next_step += 1;
        self.memory.starts_episode = false;
        for (first, length, priority) in self.memory.ready.drain(..) {
            let priority = match priority {
                Some(priority) => InitialPriority::Of(Priority::try_new(priority)?),
                None => InitialPriority::Largest,
            };
            self.items.push(NewItem { first, length, priority, table: 0 });
        }
        Ok(number)
    }

    fn complete_all(&mut self, rules: &Rules, bootstrap: Option<&[f64]>) -> Result<(), LaneError> {
        while !self.memory.window.is_empty() {
            self.complete_oldest(rules, bootstrap)?;
        }
        Ok(())
    }

    /// The oldest transition ends in the state that comes next (whose frame is not pushed yet).
    fn complete_oldest(&mut self, rules: &Rules, bootstrap: Option<&[f64]>) -> Result<(), LaneError> {
        let memory = &mut self.memory;
        let agent = &*rules.agent;
        let folded = rules.returns.fold(agent, memory.window.iter().map(|moment| moment.taken));
        let moment = memory.window.pop_front().expect("the window is not empty");
        let action = usize::from(moment.taken.action);
        let td = agent.target(&moment.q, action, folded, bootstrap) - moment.q[action];
        let priority = rules.computes_priorities.then(|| agent.priority(&moment.q, action, td, None));
        if let Some(priority) = priority {
            Priority::try_new(priority)?;
        }
        let length = (memory.next_step - moment.number) as u8;
        memory.ready.push((moment.number, length, priority));
        Ok(())
    }

    fn next_episode(&mut self, truncated: bool) -> Result<EpisodeEnd, LaneError> {
        let last = self.pack();
        self.push(last, None)?;
        let end = EpisodeEnd { score: self.memory.score, steps: self.memory.steps, truncated };
        self.environment.reset();
        self.memory.stack.reset(self.environment.observation());
        self.memory.starts_episode = true;
        (self.memory.score, self.memory.steps) = (0.0, 0);
        Ok(end)
    }
}
