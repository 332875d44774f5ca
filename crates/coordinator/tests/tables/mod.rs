//! Four tables of one-step items with known priorities.

use coordinator::sample_points::{SamplePoint, ShardMasses};
use rand::{Rng, RngExt};
use replay::testing::statistics::{BATCH, CONSTANT, Drawn, EXPONENT, SIZES_AND_SCALES, items_of};
use replay::testing::{self, LaneBuilder, NOOP, one_step};
use replay::{Draw, ItemKey, ItemView, LaneKey, Store, StoreOptions, TableOptions};

const LANE: LaneKey = LaneKey { actor: 0, incarnation: 1, lane: 0 };

pub struct Shards {
    /// A store and the lane that writes to it.
    shards: Vec<(Store, LaneBuilder)>,
    /// By shard and item. The item's number is its slot: nothing is ever overwritten here.
    pub priorities: Vec<Vec<f64>>,
}

impl Shards {
    pub fn new(rng: &mut impl Rng) -> Self {
        let shards = (1..=4).map(|incarnation| (store(incarnation), LaneBuilder::new(LANE))).collect();
        let mut shards = Self { shards, priorities: vec![Vec::new(); 4] };
        for (index, (size, scale)) in SIZES_AND_SCALES.into_iter().enumerate() {
            let priorities: Vec<f64> = (0..size).map(|_| scale * rng.random_range(0.05..1.0)).collect();
            priorities.chunks(60).for_each(|part| shards.insert(index, part));
        }
        shards
    }

    /// One more chunk of an endless episode, whose steps complete one-step items with these priorities. Item n goes from
    /// step n to step n + 1, so the first chunk has one step more than items.
    pub fn insert(&mut self, index: usize, priorities: &[f64]) {
        let (store, lane) = &mut self.shards[index];
        while lane.completed().count() < priorities.len() {
            lane.push(&[0], Some(NOOP));
        }
        let items = lane.completed().zip(priorities).map(|(first, &value)| one_step(first, value));
        let inserted = store.insert(&lane.chunk(items)).unwrap();
        assert_eq!(inserted.items, priorities.len() as u64);
        self.priorities[index].extend(priorities);
    }

    pub fn set(&mut self, index: usize, item: usize, priority: f64) {
        let (store, _) = &mut self.shards[index];
        let key = ItemKey { incarnation: store.incarnation(), slot: item as u32, generation: item as u64 };
        assert_eq!(store.update_priorities(0, &[(key, testing::priority(priority))]).applied, 1);
        self.priorities[index][item] = priority;
    }

    /// As the tables report them.
    pub fn masses(&self) -> ShardMasses {
        ShardMasses::new(self.shards.iter().map(|(store, _)| store.tables()[0].mass()))
    }

    /// Batches, drawn as the learner does: for each, points over the whole, then each shard's part.
    pub fn draw(
        &mut self,
        masses: &ShardMasses,
        strata: bool,
        batches: usize,
        rng: &mut impl Rng,
    ) -> Vec<Drawn> {
        let mut drawn = Vec::with_capacity(batches * BATCH);
        for batch in 1..=batches {
            let points = masses.draw(BATCH, strata, rng);
            for (index, (store, _)) in self.shards.iter_mut().enumerate() {
                let here = |point: &&SamplePoint| point.shard == index;
                let within: Vec<f64> = points.iter().filter(here).map(|point| point.within).collect();
                if within.is_empty() {
                    continue;
                }
                let first = items_of(index, &self.priorities).start;
                let add = |draw: Draw, _: ItemView<'_>| {
                    let probability = masses.share(index) * draw.probability;
                    drawn.push(Drawn { item: first + draw.key.slot as usize, probability });
                };
                store.sample_at(0, &within, add).unwrap();
            }
            assert_eq!(drawn.len(), batch * BATCH);
        }
        drawn
    }
}

fn store(incarnation: u32) -> Store {
    let table =
        TableOptions { priority_exponent: EXPONENT, priority_constant: CONSTANT, ..testing::table("main") };
    let options = StoreOptions { stack: 1, tables: vec![table], ..testing::options() };
    Store::new(options, incarnation).unwrap()
}
