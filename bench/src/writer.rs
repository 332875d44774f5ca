//! Fills a replay table as actors would: several lanes, each an endless episode of ready-made frames.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, Table, Taken, WeightsVersion};
use value::priority::Priority;

use crate::recording::Packed;

/// Environments that write side by side.
pub const LANES: u32 = 8;

/// Steps per chunk while filling.
const FILLING_STEPS: u64 = 50;

/// Makes the chunks of all lanes in turn.
pub struct Writer {
    /// Whose lanes these are.
    actor: u32,
    /// Repeated for ever.
    frames: Arc<Packed>,
    /// How many actions there are.
    actions: u16,
    /// Draws priorities.
    rng: ChaCha8Rng,
    /// Every lane.
    lanes: Vec<Lane>,
    /// The lane whose chunk is next.
    turn: usize,
}

/// Where a lane stands.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// Chunks made.
    sequence: u64,
    /// Steps made.
    step: u64,
}

impl Writer {
    /// A writer that repeats these packed frames and takes one of `actions` actions.
    pub fn new(frames: Packed, actions: u16) -> Self {
        Self::of_actor(0, Arc::new(frames), actions)
    }

    /// The same for one of several actors.
    pub fn of_actor(actor: u32, frames: Arc<Packed>, actions: u16) -> Self {
        let (lanes, rng) = (vec![Lane::default(); LANES as usize], ChaCha8Rng::seed_from_u64(1));
        Self { actor, frames, actions, rng, lanes, turn: 0 }
    }

    /// Inserts until the table is full.
    ///
    /// # Panics
    ///
    /// If the table's byte cap is too small for as many items as it has room for.
    pub fn fill(&mut self, table: &mut Table) {
        while table.len() < table.capacity() {
            let chunk = self.chunk(FILLING_STEPS);
            table.insert(chunk).expect("chunks of a lane come in order");
            assert_eq!(table.counters().reclaimed_items, 0, "frames overflow before items do");
        }
    }

    /// The next chunk: so many steps of the lane whose turn it is, and the one-step transitions that they complete.
    pub fn chunk(&mut self, steps: u64) -> Chunk {
        let number = self.turn;
        self.turn = (self.turn + 1) % self.lanes.len();
        let Lane { sequence, step: first_step } = self.lanes[number];
        let end = first_step + steps;
        self.lanes[number] = Lane { sequence: sequence + 1, step: end };
        let lane = LaneKey { actor: self.actor, incarnation: 0, lane: number as u32 };
        let steps = (first_step..end).map(|step| self.step(step, number)).collect();
        let items = (first_step.saturating_sub(1)..end - 1).map(|first| self.item(first)).collect();
        Chunk { lane, sequence, first_step, steps, items }
    }

    /// One observation and the action on it. Lanes begin at different frames, so that they do not all store the same one.
    fn step(&self, number: u64, lane: usize) -> Step {
        let frame = (number as usize + lane * self.frames.len() / self.lanes.len()) % self.frames.len();
        let taken = Taken {
            action: (number % u64::from(self.actions)) as u16,
            reward: 0.0,
            terminated: false,
            truncated: false,
            life_lost: false,
            log_probability: -1.0,
            weights: WeightsVersion { incarnation: 0, number: 0 },
        };
        Step { frame: self.frames[frame].clone(), starts_episode: number == 0, taken: Some(taken) }
    }

    /// The one-step transition from step `first`.
    fn item(&mut self, first: u64) -> NewItem {
        NewItem { first, length: 1, priority: InitialPriority::Of(priority(&mut self.rng)) }
    }
}

/// A random priority of the size that TD errors have.
pub fn priority(rng: &mut ChaCha8Rng) -> Priority {
    Priority::try_new(rng.random()).expect("finite and not negative")
}
