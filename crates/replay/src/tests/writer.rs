//! An actor's side of a lane: plays random episodes and cuts them into chunks.

use bytes::Bytes;
use rand::{Rng, RngExt};

use crate::testing::{final_observation, priority, step};
use crate::{Chunk, InitialPriority, KEY_DISTANCE_MAX, LaneKey, NewItem, Step};

/// A step as the actor remembers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Played {
    pub step: Step,
    pub frame: Vec<u8>,
}

#[derive(Clone)]
pub struct LaneWriter {
    pub lane: LaneKey,
    /// Every step made so far.
    pub played: Vec<Played>,
    sequence: u64,
    next_item: u64,
    /// The n of n-step items.
    n: u64,
    /// Probability of a key frame.
    keys: f64,
    since_key: u8,
    /// How many tables items go to.
    tables: u8,
}

impl LaneWriter {
    pub fn new(lane: LaneKey, n: u64, keys: f64, tables: usize) -> Self {
        let (sequence, next_item, since_key, tables) = (0, 0, 0, tables as u8);
        Self { lane, played: Vec::new(), sequence, next_item, n, keys, since_key, tables }
    }

    /// The next chunk: some steps and the items that they complete, a few items left out.
    pub fn chunk(&mut self, rng: &mut impl Rng) -> Chunk {
        let first = self.played.len();
        (0..rng.random_range(1..7)).for_each(|_| self.play(rng));
        let items = self.items(rng);
        let sequence = self.sequence;
        self.sequence += 1;
        let steps = self.played[first..].iter().map(|played| played.step).collect();
        let frames: Vec<u8> = self.played[first..].iter().flat_map(|played| played.frame.clone()).collect();
        let (lane, first_step, frames) = (self.lane, first as u64, Bytes::from(frames));
        Chunk { lane, sequence, first_step, steps, frames, items }
    }

    fn play(&mut self, rng: &mut impl Rng) {
        let number = self.played.len() as u64;
        let last = self.played.last().map(|played| played.step.taken);
        let starts_episode = matches!(last, None | Some(None));
        let ended = matches!(last, Some(Some(taken)) if taken.ends_episode());
        let ends = rng.random_bool(0.15).then(|| rng.random_bool(0.5));
        let mut made = if ended { final_observation() } else { step(number, starts_episode, ends) };
        made.key_frame = number == 0 || self.since_key == KEY_DISTANCE_MAX || rng.random_bool(self.keys);
        self.since_key = if made.key_frame { 0 } else { self.since_key + 1 };
        // Random lengths, so that the ring is not regular; the lane shows in the bytes.
        made.frame_bytes = rng.random_range(1..=8);
        let LaneKey { actor, incarnation, lane } = self.lane;
        let salt = u64::from(lane) * 7 + u64::from(actor) * 61 + incarnation.wrapping_mul(101) % 1000;
        let frame = (0..made.frame_bytes).map(|i| (number * 31 + u64::from(i) + salt) as u8).collect();
        self.played.push(Played { step: made, frame });
    }

    fn items(&mut self, rng: &mut impl Rng) -> Vec<NewItem> {
        let mut items = Vec::new();
        while let Some(played) = self.played.get(self.next_item as usize) {
            let first = self.next_item;
            if played.step.taken.is_some() {
                let ends = |t: u64| {
                    let taken = self.played.get(t as usize).and_then(|played| played.step.taken);
                    taken.is_some_and(|taken| taken.ends_episode())
                };
                let length = (1..=self.n).find(|&k| k == self.n || ends(first + k - 1)).unwrap();
                if first + length >= self.played.len() as u64 {
                    break;
                }
                // Mostly one table gets it, sometimes none, sometimes several.
                let only = rng.random_range(0..self.tables);
                for table in 0..self.tables {
                    if rng.random_bool(if table == only { 0.9 } else { 0.1 }) {
                        let priority = match rng.random_range(0..5) {
                            0 => InitialPriority::Largest,
                            1 => InitialPriority::Of(priority(0.0)),
                            _ => InitialPriority::Of(priority(rng.random_range(0.0..3.0))),
                        };
                        items.push(NewItem { first, length: length as u8, priority, table });
                    }
                }
            }
            self.next_item += 1;
        }
        items
    }
}
