//! Fills a replay as actors would: several lanes, each an endless episode of recorded frames, packed when they are sent.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::codec::{Codec, Encoder};
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, Store, Taken, WeightsVersion};
use value::priority::Priority;

/// Environments that write side by side.
pub const LANES: u32 = 8;

/// Steps per chunk while filling.
const FILLING_STEPS: u64 = 50;

/// Makes the chunks of all lanes in turn.
pub struct Writer {
    /// Whose lanes these are.
    actor: u32,
    /// Repeated for ever, there and back, so that each is like the one before.
    frames: Arc<Vec<Vec<u8>>>,
    /// How many actions there are.
    actions: u16,
    /// Draws priorities.
    rng: ChaCha8Rng,
    lanes: Vec<Lane>,
    /// The lane whose chunk is next.
    turn: usize,
}

/// Position of a lane.
struct Lane {
    encoder: Encoder,
    sequence: u64,
    step: u64,
}

impl Writer {
    /// A writer of an actor that repeats these frames and takes one of `actions` actions.
    pub fn new(actor: u32, frames: Arc<Vec<Vec<u8>>>, codec: Codec, actions: u16) -> Self {
        let lane = |_| Lane { encoder: Encoder::new(codec, frames[0].len()), sequence: 0, step: 0 };
        let (lanes, rng) = ((0..LANES).map(lane).collect(), ChaCha8Rng::seed_from_u64(actor.into()));
        Self { actor, frames, actions, rng, lanes, turn: 0 }
    }

    /// Inserts until the store's first table is full.
    ///
    /// # Panics
    ///
    /// If the byte cap is too small for as many items as it has room for.
    pub fn fill(&mut self, store: &mut Store) {
        while store.tables()[0].len() < store.tables()[0].options().capacity {
            let chunk = self.chunk(FILLING_STEPS);
            store.insert(&chunk).expect("chunks of a lane come in order");
            assert_eq!(store.table_counters().reclaimed_items, 0, "frames overflow before items do");
        }
    }

    /// The next chunk: so many steps of the lane whose turn it is, and the one-step transitions that they complete.
    pub fn chunk(&mut self, steps: u64) -> Chunk {
        let number = self.turn;
        self.turn = (self.turn + 1) % self.lanes.len();
        let offset = number * self.frames.len() / self.lanes.len();
        let state = &mut self.lanes[number];
        let (sequence, first_step) = (state.sequence, state.step);
        let end = first_step + steps;
        (state.sequence, state.step) = (sequence + 1, end);
        let lane = LaneKey { actor: self.actor, incarnation: 1, lane: number as u32 };
        let mut frames = Vec::with_capacity(steps as usize * 512);
        let mut made = Vec::with_capacity(steps as usize);
        for step in first_step..end {
            let before = frames.len();
            let frame = &self.frames[there_and_back(step as usize + offset, self.frames.len())];
            let key_frame = state.encoder.encode_into(frame, &mut frames);
            let frame_bytes = (frames.len() - before) as u32;
            let taken = Some(taken((step % u64::from(self.actions)) as u16));
            made.push(Step { frame_bytes, key_frame, starts_episode: step == 0, taken });
        }
        let items = (first_step.saturating_sub(1)..end - 1).map(|first| self.item(first)).collect();
        Chunk { lane, sequence, first_step, steps: made, frames: frames.into(), items }
    }

    /// The one-step transition from step `first`.
    fn item(&mut self, first: u64) -> NewItem {
        NewItem { first, length: 1, priority: InitialPriority::Of(priority(&mut self.rng)), table: 0 }
    }
}

fn taken(action: u16) -> Taken {
    Taken {
        action,
        reward: 0.0,
        terminated: false,
        truncated: false,
        life_lost: false,
        log_probability: -1.0,
        weights: WeightsVersion { incarnation: 0, number: 0 },
    }
}

/// An index that runs up to `count` - 1, down to 0, and up again.
fn there_and_back(number: usize, count: usize) -> usize {
    let lap = number % (2 * count - 1).max(1);
    lap.min((2 * count - 2).saturating_sub(lap))
}

/// A random priority of the size that TD errors have.
pub fn priority(rng: &mut ChaCha8Rng) -> Priority {
    Priority::try_new(rng.random()).expect("finite and not negative")
}
