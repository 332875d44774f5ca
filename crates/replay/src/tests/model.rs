//! The table against the naive one, under random inserts, repeats, losses, restarts of actors,
//! draws and updates, with caps so small that everything is reclaimed again and again.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::naive::Naive;
use super::writer::{LaneWriter, priority};
use crate::check::check_state;
use crate::{Chunk, ItemKey, LaneKey, SampleError, Sampler, Table, TableOptions};

struct World {
    rng: ChaCha8Rng,
    table: Table,
    naive: Naive,
    writers: Vec<LaneWriter>,
    /// Chunks made before, to be sent again.
    sent: Vec<Chunk>,
    /// If set, the table is saved and loaded between operations.
    reload: bool,
}

impl World {
    fn new(seed: u64, options: TableOptions, reload: bool) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lanes = (0..2).flat_map(|actor| (0..2).map(move |lane| (actor, lane)));
        let writers = lanes
            .map(|(actor, lane)| {
                LaneWriter::new(LaneKey { actor, incarnation: 1, lane }, rng.random_range(1..4))
            })
            .collect();
        let table = Table::new(options.clone()).unwrap();
        Self { rng, table, naive: Naive::new(options), writers, sent: Vec::new(), reload }
    }

    fn operate(&mut self) {
        match self.rng.random_range(0..20) {
            0..11 => {
                let index = self.rng.random_range(0..self.writers.len());
                let chunk = self.writers[index].chunk(&mut self.rng);
                self.sent.push(chunk.clone());
                self.insert(chunk);
            }
            // Lost on the way.
            11 => drop(self.writers[0].chunk(&mut self.rng)),
            // Sent again; it may be fenced by now.
            12 if !self.sent.is_empty() => {
                let chunk = self.sent[self.rng.random_range(0..self.sent.len())].clone();
                self.insert(chunk);
            }
            13 if self.rng.random_bool(0.2) => {
                let index = self.rng.random_range(0..self.writers.len());
                let lane = self.writers[index].lane;
                let lane = LaneKey { incarnation: lane.incarnation + 1, ..lane };
                self.writers[index] = LaneWriter::new(lane, 2);
            }
            14..17 => self.sample(),
            17 => self.update(),
            18 => self.remove(),
            _ => {
                let exponent = self.rng.random_range(0.0..1.5);
                self.naive.options.priority_exponent = exponent;
                self.table.set_priority_exponent(exponent).unwrap();
            }
        }
        if self.reload && self.rng.random_bool(0.3) {
            let mut bytes = Vec::new();
            self.table.save(&mut bytes).unwrap();
            self.table = Table::load(self.table.options().clone(), &mut &bytes[..]).unwrap();
        }
    }

    fn insert(&mut self, chunk: Chunk) {
        let expected = self.naive.insert(chunk.clone());
        let duplicates = self.table.counters().duplicate_chunks;
        let got = self.table.insert(chunk);
        assert_eq!(got.as_ref().err(), expected.as_ref().err());
        let duplicate = self.naive.counters.duplicate_chunks > duplicates;
        assert_eq!(got.is_ok_and(|inserted| inserted.duplicate), duplicate);
    }

    fn sample(&mut self) {
        let (count, stratified) = (self.rng.random_range(0..6), self.rng.random());
        let live = self.naive.items.iter().filter(|item| item.live);
        let uniform = self.naive.options.sampler == Sampler::Uniform;
        let weight = |item| if uniform { 1.0 } else { self.naive.weight(item) };
        let total: f64 = live.clone().map(weight).sum();
        match self.table.sample(count, stratified, &mut self.rng) {
            Err(SampleError::Empty) => assert_eq!(live.count(), 0),
            Err(SampleError::NoMass) => assert_eq!(total, 0.0),
            Ok(draws) => {
                assert_eq!(draws.len(), count);
                let inserts = self.naive.counters.inserts;
                self.naive.counters.samples += count as u64;
                for draw in draws {
                    let number = draw.key.generation as usize;
                    assert_eq!(draw.key, self.naive.key(number));
                    let item = &self.naive.items[number];
                    assert!(item.live, "drew an item that is gone");
                    let expected = if uniform { 1.0 } else { self.naive.weight(item) } / total;
                    assert!((draw.probability - expected).abs() <= 1e-12);
                    assert!(draw.probability > 0.0);
                    assert_eq!(draw.age_inserts, inserts - 1 - number as u64);
                    assert_eq!(draw.times_sampled, item.times_sampled + 1);
                    self.naive.items[number].times_sampled += 1;
                }
            }
        }
    }

    fn remove(&mut self) {
        let number = (self.naive.items.len() as i64 + 1 - self.rng.random_range(0..20)).max(0) as usize;
        let key = self.naive.key(number);
        assert_eq!(self.table.remove(&[key]), self.naive.remove(number));
        assert!(self.table.item(key).is_none());
    }

    fn update(&mut self) {
        let mut updates = Vec::new();
        for _ in 0..self.rng.random_range(0..5) {
            // Mostly recent items, some long gone, a few of another incarnation or to come.
            let newest = self.naive.items.len() as i64 + 1;
            let number = newest - self.rng.random_range(0..40);
            let mut key = self.naive.key(number.max(0) as usize);
            key.incarnation += u32::from(self.rng.random_bool(0.1));
            updates.push((key, priority(self.rng.random_range(0.0..5.0))));
        }
        let updated = self.table.update_priorities(&updates);
        let (mut applied, mut stale) = (0, 0);
        for (key, priority) in updates {
            let number = key.generation as usize;
            let live = self.naive.items.get(number).is_some_and(|item| item.live);
            if live && key == self.naive.key(number) {
                self.naive.raise(priority);
                self.naive.items[number].priority = priority;
                applied += 1;
            } else {
                stale += 1;
            }
        }
        assert_eq!((updated.applied, updated.stale), (applied, stale));
        self.naive.counters.updates += applied;
        self.naive.counters.stale_updates += stale;
    }

    /// Everything that can be seen of both must be the same.
    fn compare(&self) {
        let (table, naive) = (&self.table, &self.naive);
        check_state(&table.state, &table.options).unwrap();
        assert_eq!(table.counters(), naive.counters);
        assert_eq!(table.largest_priority(), naive.largest);
        assert_eq!(table.steps_stored(), naive.steps.len() - naive.oldest);
        let stored = naive.steps[naive.oldest..].iter();
        assert_eq!(table.frame_bytes_used(), stored.map(|s| s.step.frame.len()).sum::<usize>());
        assert!(table.frame_bytes_used() <= table.options.bytes_max);
        assert_eq!(table.len(), naive.items.iter().filter(|item| item.live).count());
        // Items long gone are looked at once in a while only, to keep this quick.
        let from = naive.items.len().saturating_sub(3 * naive.options.capacity);
        for number in from..naive.items.len() {
            self.compare_item(number, naive.key(number));
        }
        let weights = naive.items.iter().filter(|item| item.live).map(|item| naive.weight(item));
        let expected = match naive.options.sampler {
            Sampler::Proportional => weights.sum::<f64>(),
            Sampler::Uniform => table.len() as f64,
        };
        assert!((table.mass() - expected).abs() <= 1e-9 * expected);
    }

    fn compare_item(&self, number: usize, key: ItemKey) {
        let item = &self.naive.items[number];
        let view = self.table.item(key);
        assert_eq!(view.is_some(), item.live, "item {number}");
        let Some(view) = view else { return };
        let frames: Vec<&[u8]> = view.frames().collect();
        let steps = &self.naive.steps;
        let [state, next_state] = self.naive.states(item);
        let bytes = |stack: &[usize]| stack.iter().map(|&i| &*steps[i].step.frame).collect::<Vec<_>>();
        assert_eq!(view.state().map(|i| frames[i]).collect::<Vec<_>>(), bytes(&state));
        assert_eq!(view.next_state().map(|i| frames[i]).collect::<Vec<_>>(), bytes(&next_state));
        assert_eq!(view.state().next(), Some(0), "no frame is given that is not used");
        assert!(view.steps().map(Some).eq(self.naive.span(item).map(|step| step.taken)));
        assert_eq!(view.priority(), item.priority);
        assert_eq!(view.times_sampled(), item.times_sampled);
        assert_eq!((view.first_step(), view.length() as u64), (item.first, item.length));
    }
}

fn any_options() -> impl Strategy<Value = TableOptions> {
    let stack = 1usize..6;
    (stack, 1usize..40, 0usize..600, any::<bool>()).prop_map(|(stack, capacity, more, uniform)| {
        let options = TableOptions {
            capacity,
            stack,
            bytes_max: 0,
            sampler: if uniform { Sampler::Uniform } else { Sampler::Proportional },
            priority_exponent: 0.7,
            priority_constant: 0.001,
            ..super::options()
        };
        let bytes_max = options.packed_bytes_max() * (stack + 1) + more;
        TableOptions { bytes_max, ..options }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaves_as_the_naive_table_does(seed: u64, options in any_options()) {
        let mut world = World::new(seed, options, false);
        for _ in 0..250 {
            world.operate();
            world.compare();
        }
    }

    /// The same, but now and then the table is replaced by what a save of it loads.
    #[test]
    fn behaves_as_the_naive_table_does_across_saves(seed: u64, options in any_options()) {
        let mut world = World::new(seed, options, true);
        for _ in 0..250 {
            world.operate();
            world.compare();
        }
    }

    /// A run with and one without saves end in the same bytes, having drawn the same.
    #[test]
    fn saving_and_loading_changes_nothing(seed: u64, options in any_options(), cut in 0usize..250) {
        let run = |cut: Option<usize>| {
            let mut world = World::new(seed, options.clone(), false);
            for turn in 0..250 {
                world.operate();
                if Some(turn) == cut {
                    let mut bytes = Vec::new();
                    world.table.save(&mut bytes).unwrap();
                    let options = world.table.options().clone();
                    world.table = Table::load(options, &mut &bytes[..]).unwrap();
                }
            }
            let draws = world.table.sample(50, true, &mut world.rng);
            let mut bytes = Vec::new();
            world.table.save(&mut bytes).unwrap();
            (draws, bytes)
        };
        prop_assert!(run(None) == run(Some(cut)));
    }
}
