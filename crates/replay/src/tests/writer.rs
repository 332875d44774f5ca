//! An actor's side of a lane: plays random episodes and cuts them into chunks.

use rand::{Rng, RngExt};
use value::priority::Priority;

use crate::{Chunk, InitialPriority, LaneKey, NewItem, Step, Taken, WeightsVersion};

pub fn priority(value: f64) -> Priority {
    Priority::try_new(value).unwrap()
}

/// A step whose fields all depend on its number, so that mix-ups show.
pub fn step(number: u64, starts_episode: bool, ends: Option<bool>) -> Step {
    let taken = Taken {
        action: number as u16,
        reward: number as f32,
        terminated: ends == Some(true),
        truncated: ends == Some(false),
        life_lost: number.is_multiple_of(3),
        log_probability: -(number as f32),
        weights: WeightsVersion { incarnation: 1, number },
    };
    Step { frame: Box::new([number as u8]), starts_episode, taken: Some(taken) }
}

pub fn final_observation(number: u64) -> Step {
    Step { frame: Box::new([number as u8]), starts_episode: false, taken: None }
}

pub fn item(first: u64, length: u8) -> NewItem {
    NewItem { first, length, priority: InitialPriority::Of(priority(1.0)) }
}

pub struct LaneWriter {
    pub lane: LaneKey,
    sequence: u64,
    /// Every step made so far, without its frame.
    steps: Vec<(bool, Option<Taken>)>,
    next_item: u64,
    /// The n of n-step items.
    n: u64,
}

impl LaneWriter {
    pub fn new(lane: LaneKey, n: u64) -> Self {
        Self { lane, sequence: 0, steps: Vec::new(), next_item: 0, n }
    }

    /// The next chunk: some steps and the items that they complete, a few items left out.
    pub fn chunk(&mut self, rng: &mut impl Rng) -> Chunk {
        let first_step = self.steps.len() as u64;
        let steps = (0..rng.random_range(0..7)).map(|_| self.step(rng)).collect();
        let items = self.items(rng);
        let sequence = self.sequence;
        self.sequence += 1;
        Chunk { lane: self.lane, sequence, first_step, steps, items }
    }

    fn step(&mut self, rng: &mut impl Rng) -> Step {
        let number = self.steps.len() as u64;
        let last = self.steps.last().map(|(_, taken)| *taken);
        let starts_episode = matches!(last, None | Some(None));
        let ended = matches!(last, Some(Some(taken)) if taken.ends_episode());
        let ends = rng.random_bool(0.15).then(|| rng.random_bool(0.5));
        let mut made = if ended { final_observation(number) } else { step(number, starts_episode, ends) };
        // Random lengths, so that the ring is not regular; the lane shows in the bytes.
        let length = rng.random_range(1..=8);
        made.frame = (0..length).map(|i| (number * 31 + i + u64::from(self.lane.lane) * 7) as u8).collect();
        self.steps.push((starts_episode, made.taken));
        made
    }

    fn items(&mut self, rng: &mut impl Rng) -> Vec<NewItem> {
        let mut items = Vec::new();
        while let Some(&(_, taken)) = self.steps.get(self.next_item as usize) {
            let first = self.next_item;
            if taken.is_some() {
                let ends = |t: u64| matches!(self.steps.get(t as usize), Some((_, Some(taken))) if taken.ends_episode());
                let length = (1..=self.n).find(|&k| k == self.n || ends(first + k - 1)).unwrap();
                if first + length >= self.steps.len() as u64 {
                    break;
                }
                if rng.random_bool(0.9) {
                    let priority = match rng.random_range(0..5) {
                        0 => InitialPriority::Largest,
                        1 => InitialPriority::Of(priority(0.0)),
                        _ => InitialPriority::Of(priority(rng.random_range(0.0..3.0))),
                    };
                    items.push(NewItem { first, length: length as u8, priority });
                }
            }
            self.next_item += 1;
        }
        items
    }
}
