//! Four tables of one-step items with known priorities, and a second way to compute what each item's probability is.

use bytes::Bytes;
use coordinator::spread::{Masses, Point};
use rand::{Rng, RngExt};
use replay::{
    Chunk, Draw, InitialPriority, ItemKey, ItemView, LaneKey, NewItem, Remover, Sampler, Step, Store,
    StoreOptions, TableOptions, Taken, WeightsVersion,
};
use value::priority::Priority;

pub const EXPONENT: f64 = 0.6;
pub const CONSTANT: f64 = 0.01;
const LANE: LaneKey = LaneKey { actor: 0, incarnation: 1, lane: 0 };

pub struct Shard {
    pub store: Store,
    /// By item number, which is also its slot: nothing is ever overwritten here.
    pub priorities: Vec<f64>,
}

/// What came back for one draw.
pub struct Drawn {
    pub shard: usize,
    pub item: usize,
    /// P(i): the known share of its shard times the exact probability inside.
    pub probability: f64,
}

impl Shard {
    fn new(incarnation: u32) -> Self {
        let table = TableOptions {
            name: "main".into(),
            capacity: 4096,
            sampler: Sampler::Proportional,
            remover: Remover::Fifo,
            max_times_sampled: 0,
            priority_exponent: EXPONENT,
            priority_constant: CONSTANT,
            first_priority: 1.0,
        };
        let options = StoreOptions { bytes_max: 1 << 20, stack: 1, frame_bytes: 1, tables: vec![table] };
        Self { store: Store::new(options, incarnation).unwrap(), priorities: Vec::new() }
    }

    /// One more chunk of an endless episode, whose steps complete one-step items with these priorities. Item n goes from
    /// step n to step n + 1, so the first chunk has one step more than items.
    pub fn insert(&mut self, priorities: &[f64]) {
        let first_item = self.priorities.len() as u64;
        let (first_step, sequence) =
            if first_item == 0 { (0, 0) } else { (first_item + 1, self.store.counters().chunks) };
        let steps: Vec<Step> = (first_step..=first_item + priorities.len() as u64).map(step).collect();
        let frames = Bytes::from(vec![0; steps.len()]);
        let item = |(first, &priority)| {
            let priority = InitialPriority::Of(of(priority));
            NewItem { first, length: 1, priority, table: 0 }
        };
        let items = (first_item..).zip(priorities).map(item).collect();
        let chunk = Chunk { lane: LANE, sequence, first_step, steps, frames, items };
        let inserted = self.store.insert(&chunk).unwrap();
        assert_eq!(inserted.items, priorities.len() as u64);
        self.priorities.extend(priorities);
    }

    pub fn set(&mut self, item: usize, priority: f64) {
        let incarnation = self.store.incarnation();
        let key = ItemKey { incarnation, slot: item as u32, generation: item as u64 };
        assert_eq!(self.store.update_priorities(0, &[(key, of(priority))]).applied, 1);
        self.priorities[item] = priority;
    }

    /// (p + constant)^α of every item.
    pub fn weights(&self) -> Vec<f64> {
        self.priorities.iter().map(|priority| (priority + CONSTANT).powf(EXPONENT)).collect()
    }
}

fn of(priority: f64) -> Priority {
    Priority::try_new(priority).unwrap()
}

fn step(number: u64) -> Step {
    let taken = Taken {
        action: 0,
        reward: 0.0,
        terminated: false,
        truncated: false,
        life_lost: false,
        log_probability: 0.0,
        weights: WeightsVersion::default(),
    };
    Step { frame_bytes: 1, key_frame: true, starts_episode: number == 0, taken: Some(taken) }
}

/// Four shards that differ in size and in how large their priorities are.
pub fn shards(rng: &mut impl Rng) -> Vec<Shard> {
    let sizes_and_scales = [(40, 1.0), (150, 0.3), (7, 5.0), (90, 2.0)];
    let fill = |(index, (size, scale)): (usize, (usize, f64))| {
        let mut shard = Shard::new(index as u32 + 1);
        let priorities: Vec<f64> = (0..size).map(|_| scale * rng.random_range(0.05..1.0)).collect();
        priorities.chunks(60).for_each(|part| shard.insert(part));
        shard
    };
    sizes_and_scales.into_iter().enumerate().map(fill).collect()
}

pub fn masses(shards: &[Shard]) -> Masses {
    Masses::new(shards.iter().map(|shard| shard.store.tables()[0].mass()))
}

/// The probability of every item by the closed form, shard after shard: `masses` by shard as known, weights as they are.
pub fn probabilities(shards: &[Shard], masses: &[f64]) -> Vec<f64> {
    let known: f64 = masses.iter().sum();
    let of_shard = |(shard, mass): (&Shard, &f64)| {
        let weights = shard.weights();
        let sum: f64 = weights.iter().sum();
        let share = mass / known;
        weights.into_iter().map(move |weight| share * weight / sum).collect::<Vec<_>>()
    };
    shards.iter().zip(masses).flat_map(of_shard).collect()
}

/// Where an item stands in [`probabilities`].
pub fn index(shards: &[Shard], shard: usize, item: usize) -> usize {
    shards[..shard].iter().map(|shard| shard.priorities.len()).sum::<usize>() + item
}

/// One batch, as the learner draws it: points over the whole, then each shard's part.
pub fn draw(
    shards: &mut [Shard],
    masses: &Masses,
    count: usize,
    strata: bool,
    rng: &mut impl Rng,
) -> Vec<Drawn> {
    let points = masses.draw(count, strata, rng);
    let mut drawn = Vec::with_capacity(count);
    for (number, shard) in shards.iter_mut().enumerate() {
        let here = |point: &&Point| point.shard == number;
        let within: Vec<f64> = points.iter().filter(here).map(|point| point.within).collect();
        if within.is_empty() {
            continue;
        }
        let add = |draw: Draw, _: ItemView<'_>| {
            let (item, probability) = (draw.key.slot as usize, masses.share(number) * draw.probability);
            drawn.push(Drawn { shard: number, item, probability });
        };
        shard.store.sample_at(0, &within, add).unwrap();
    }
    assert_eq!(drawn.len(), count);
    drawn
}
