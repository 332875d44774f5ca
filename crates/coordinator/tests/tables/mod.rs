//! Four tables of one-step items with known priorities, and a second way to compute what each item's probability is.

use coordinator::spread::{Masses, Point};
use rand::{Rng, RngExt};
use replay::testing::{self, Lane, NOOP, one_step};
use replay::{Draw, ItemKey, ItemView, LaneKey, Store, StoreOptions, TableOptions};

pub const EXPONENT: f64 = 0.6;
pub const CONSTANT: f64 = 0.01;
const LANE: LaneKey = LaneKey { actor: 0, incarnation: 1, lane: 0 };

pub struct Shard {
    pub store: Store,
    lane: Lane,
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
            priority_exponent: EXPONENT,
            priority_constant: CONSTANT,
            ..testing::table("main")
        };
        let options = StoreOptions { stack: 1, tables: vec![table], ..testing::options() };
        let store = Store::new(options, incarnation).unwrap();
        Self { store, lane: Lane::new(LANE), priorities: Vec::new() }
    }

    /// One more chunk of an endless episode, whose steps complete one-step items with these priorities. Item n goes from
    /// step n to step n + 1, so the first chunk has one step more than items.
    pub fn insert(&mut self, priorities: &[f64]) {
        while self.lane.completed().count() < priorities.len() {
            self.lane.push(&[0], Some(NOOP));
        }
        let items = self.lane.completed().zip(priorities).map(|(first, &value)| one_step(first, value));
        let inserted = self.store.insert(&self.lane.chunk(items)).unwrap();
        assert_eq!(inserted.items, priorities.len() as u64);
        self.priorities.extend(priorities);
    }

    pub fn set(&mut self, item: usize, priority: f64) {
        let incarnation = self.store.incarnation();
        let key = ItemKey { incarnation, slot: item as u32, generation: item as u64 };
        assert_eq!(self.store.update_priorities(0, &[(key, testing::priority(priority))]).applied, 1);
        self.priorities[item] = priority;
    }

    /// (p + constant)^α of every item.
    pub fn weights(&self) -> Vec<f64> {
        self.priorities.iter().map(|priority| (priority + CONSTANT).powf(EXPONENT)).collect()
    }
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
