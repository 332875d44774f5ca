//! One environment and the experience that it produces.
//!
//! A lane numbers its steps from 0. A transition is complete when the state n steps later is known, or when the return
//! ends earlier. It is sent with the chunk that contains that state's frame, so references always point backwards.

use std::collections::VecDeque;

use agents::Behaviour;
use bytes::Bytes;
use envs::stack::FrameStack;
use envs::{EnvError, Environment};
use rand_chacha::ChaCha8Rng;
use replay::codec::{Encoder, EncoderState};
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, Taken, WeightsVersion};
use serde::{Deserialize, Serialize};
use settings::choices::PressFire;
use value::priority::{InvalidPriority, Priority};

use crate::fire;
use crate::rules::Rules;

/// A finished game.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeEnd {
    /// Sum of the unclipped rewards.
    pub score: f64,
    /// Agent steps.
    pub steps: u64,
    /// Cut short by the time limit.
    pub truncated: bool,
}

/// Why a lane cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The network's values are NaN or infinite.
    #[error("training has diverged: the network's values are not finite; lower learning_rate")]
    Diverged(#[from] InvalidPriority),
    #[error("the saved lane does not match this run: {0}")]
    State(String),
    #[error("{0} cannot save its state, so lockstep cannot write checkpoints: remove --lockstep")]
    StateNotSaved(String),
    #[error(transparent)]
    Environment(#[from] EnvError),
}

/// One environment with its state.
pub struct Lane {
    environment: Box<dyn Environment>,
    /// When FIRE is pressed; never in a game without it.
    press_fire: PressFire,
    encoder: Encoder,
    chunk: Vec<Step>,
    /// Compressed frames of `chunk`, concatenated.
    frames: Vec<u8>,
    items: Vec<NewItem>,
    saved: LaneState,
}

/// The state of a lane that a checkpoint contains, except the environment and the encoder.
#[derive(Serialize, Deserialize)]
struct LaneState {
    key: LaneKey,
    rng: ChaCha8Rng,
    stack: FrameStack,
    next_step: u64,
    next_sequence: u64,
    starts_episode: bool,
    score: f64,
    steps: u64,
    /// Steps whose transitions are not complete, oldest first.
    window: VecDeque<PendingStep>,
    /// Completed transitions whose final observation is not yet in a chunk; they are added with the next step. (first
    /// step, length, priority)
    ready: Vec<(u64, u8, Option<f64>)>,
}

#[derive(Serialize, Deserialize)]
struct PendingStep {
    number: u64,
    q: Vec<f64>,
    taken: Taken,
}

impl Lane {
    /// A lane at the start of its environment's first episode.
    pub fn new(key: LaneKey, mut environment: Box<dyn Environment>, rng: ChaCha8Rng, rules: &Rules) -> Self {
        let press_fire = if fire::has_fire(environment.spec()) { rules.press_fire } else { PressFire::Never };
        let score = start_score(environment.as_mut(), press_fire);
        let mut stack = FrameStack::new(rules.stack, environment.spec().observation.bytes());
        stack.reset(environment.observation());
        let saved = LaneState {
            key,
            rng,
            stack,
            next_step: 0,
            next_sequence: 0,
            starts_episode: true,
            score,
            steps: 0,
            window: VecDeque::new(),
            ready: Vec::new(),
        };
        let encoder = Encoder::new(rules.codec, environment.spec().observation.bytes());
        let (chunk, frames, items) = (Vec::new(), Vec::new(), Vec::new());
        Self { environment, press_fire, encoder, chunk, frames, items, saved }
    }

    /// The state for which the next Q-values are needed.
    pub fn state(&self) -> &[u8] {
        self.saved.stack.as_slice()
    }

    /// Takes one agent step, given the Q-values of [`Lane::state`]. `value_of` computes the Q-values of the last state
    /// of an episode that bootstraps from it, in which no action is taken.
    pub fn act(
        &mut self,
        rules: &Rules,
        behaviour: Behaviour,
        weights: WeightsVersion,
        q: &[f64],
        value_of: impl FnOnce(&[u8]) -> Vec<f64>,
    ) -> Result<(u32, Option<EpisodeEnd>), LaneError> {
        if self.saved.window.len() == rules.n_step {
            self.complete_oldest(rules, Some(q))?;
        }
        let chosen = behaviour.choose(&*rules.agent, q, &mut self.saved.rng);
        let frame = self.pack();
        let outcome = self.environment.step(chosen.action);
        let life_ends_episode = rules.life_loss_refills && outcome.life_lost && !outcome.done();
        let taken = Taken {
            action: chosen.action as u16,
            reward: outcome.reward,
            terminated: outcome.terminated || life_ends_episode,
            truncated: outcome.truncated,
            life_lost: outcome.life_lost,
            log_probability: chosen.log_probability as f32,
            weights,
        };
        let number = self.push(frame, Some(taken))?;
        self.saved.window.push_back(PendingStep { number, q: q.to_vec(), taken });
        self.saved.score += f64::from(outcome.reward);
        self.saved.steps += 1;

        self.saved.stack.push(self.environment.observation());
        // The windows that stop here bootstrap from the state after the step, or from nothing.
        if rules.returns.ends(&taken) || taken.truncated {
            let last = rules.returns.bootstraps(&taken).then(|| value_of(self.saved.stack.as_slice()));
            self.complete_all(rules, last.as_deref())?;
        }
        if taken.ends_episode() {
            self.end_episode()?;
        }
        let end = if outcome.done() {
            Some(self.next_game(outcome.truncated))
        } else if life_ends_episode {
            self.next_life()
        } else {
            None
        };
        Ok((outcome.frames, end))
    }

    /// Number of steps that are not sent yet.
    pub fn steps_waiting(&self) -> usize {
        self.chunk.len()
    }

    /// The steps since the last call and the transitions that they completed; `None` without steps.
    pub fn take_chunk(&mut self) -> Option<Chunk> {
        if self.chunk.is_empty() {
            return None;
        }
        let steps = std::mem::take(&mut self.chunk);
        let sequence = self.saved.next_sequence;
        self.saved.next_sequence += 1;
        let first_step = self.saved.next_step - steps.len() as u64;
        let items = std::mem::take(&mut self.items);
        let frames = Bytes::from(std::mem::take(&mut self.frames));
        Some(Chunk { lane: self.saved.key, sequence, first_step, steps, frames, items })
    }

    /// Serializes the lane. The caller must take the pending chunk first.
    pub fn save(&self) -> Result<Vec<u8>, LaneError> {
        assert!(self.chunk.is_empty(), "a lane is saved between chunks");
        let not_saved = || LaneError::StateNotSaved(self.environment.spec().game.clone());
        let environment = self.environment.save().ok_or_else(not_saved)?;
        let whole = (&self.saved, environment, self.encoder.state());
        Ok(postcard::to_stdvec(&whole).expect("a lane can always be serialized"))
    }

    /// Restores the state that [`Lane::save`] returned, in a lane with the same rules and game.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        let (saved, environment, encoder): (LaneState, Vec<u8>, EncoderState) =
            postcard::from_bytes(bytes).map_err(|error| LaneError::State(error.to_string()))?;
        if saved.key != self.saved.key || saved.stack.as_slice().len() != self.state().len() {
            return Err(LaneError::State("it belongs to another lane or has another shape".into()));
        }
        if !self.encoder.restore(encoder) {
            return Err(LaneError::State("its frames have another size".into()));
        }
        self.environment.restore(&environment)?;
        self.saved = saved;
        Ok(())
    }

    /// Compresses the observation. Returns the frame's size in bytes and whether it is a key frame.
    fn pack(&mut self) -> (u32, bool) {
        let before = self.frames.len();
        let key = self.encoder.encode_into(self.environment.observation(), &mut self.frames);
        ((self.frames.len() - before) as u32, key)
    }

    /// Adds a step to the chunk, and the items whose last frame it is. Returns the step's number.
    fn push(&mut self, frame: (u32, bool), taken: Option<Taken>) -> Result<u64, LaneError> {
        let number = self.saved.next_step;
        let (frame_bytes, key_frame) = frame;
        self.chunk.push(Step { frame_bytes, key_frame, starts_episode: self.saved.starts_episode, taken });
        self.saved.next_step += 1;
        self.saved.starts_episode = false;
        for (first, length, priority) in self.saved.ready.drain(..) {
            let priority = match priority {
                Some(priority) => InitialPriority::Of(Priority::try_new(priority)?),
                None => InitialPriority::Largest,
            };
            self.items.push(NewItem { first, length, priority, table: 0 });
        }
        Ok(number)
    }

    fn complete_all(&mut self, rules: &Rules, bootstrap: Option<&[f64]>) -> Result<(), LaneError> {
        while !self.saved.window.is_empty() {
            self.complete_oldest(rules, bootstrap)?;
        }
        Ok(())
    }

    /// Completes the oldest transition. It ends in the next state, whose frame is not pushed yet.
    fn complete_oldest(&mut self, rules: &Rules, bootstrap: Option<&[f64]>) -> Result<(), LaneError> {
        let saved = &mut self.saved;
        let agent = &*rules.agent;
        let steps = saved.window.iter().map(|step| (step.taken, step.q.as_slice()));
        let folded = rules.returns.fold_valued(agent, steps);
        let first = saved.window.pop_front().expect("the window is not empty");
        let action = usize::from(first.taken.action);
        let td = agent.target(&first.q, action, folded, bootstrap) - first.q[action];
        let priority = rules.computes_priorities.then(|| agent.priority(&first.q, action, td, None));
        if let Some(priority) = priority {
            Priority::try_new(priority)?;
        }
        let length = (saved.next_step - first.number) as u8;
        saved.ready.push((first.number, length, priority));
        Ok(())
    }

    /// Pushes the last observation as a step without action.
    fn end_episode(&mut self) -> Result<(), LaneError> {
        let last = self.pack();
        self.push(last, None)?;
        self.saved.starts_episode = true;
        Ok(())
    }

    /// Resets the environment.
    fn next_game(&mut self, truncated: bool) -> EpisodeEnd {
        let end = EpisodeEnd { score: self.saved.score, steps: self.saved.steps, truncated };
        self.environment.reset();
        self.saved.score = start_score(self.environment.as_mut(), self.press_fire);
        self.saved.steps = 0;
        self.saved.stack.reset(self.environment.observation());
        end
    }

    /// Continues the game after a lost life whose episode has ended. The game may end in the steps that this takes.
    fn next_life(&mut self) -> Option<EpisodeEnd> {
        if self.press_fire == PressFire::Lives {
            let (score, ended) = fire::resume(self.environment.as_mut());
            self.saved.score += score;
            if let Some(ended) = ended {
                return Some(self.next_game(ended.truncated));
            }
        }
        self.saved.stack.reset(self.environment.observation());
        None
    }
}

/// The score with which a game starts, after FIRE if it is pressed.
fn start_score(environment: &mut dyn Environment, press_fire: PressFire) -> f64 {
    if press_fire == PressFire::Never { 0.0 } else { fire::start(environment) }
}
