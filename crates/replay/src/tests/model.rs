//! The store against the naive one, under random inserts, repeats, losses, restarts of actors, draws, updates,
//! saves and restarts, with caps so small that everything is reclaimed again and again.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::naive::Naive;
use super::writer::LaneWriter;
use crate::store::{Storage, record};
use crate::testing::{self, priority};
use crate::{
    Chunk, Counters, ItemKey, LaneKey, Remover, SampleError, Sampler, Store, StoreOptions, TableCounters,
    TableOptions,
};

const SALT: u64 = 0x5a17;

/// Fault injected between operations.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Nothing,
    /// The store is replaced by what a save of it loads.
    Reload,
    /// The store is dropped and opened again, or moves to another directory by way of a save.
    Reopen,
}

struct World {
    rng: ChaCha8Rng,
    /// `None` only while it is replaced.
    store: Option<Store>,
    naive: Naive,
    writers: Vec<LaneWriter>,
    /// Chunks made before, to be sent again.
    sent: Vec<Chunk>,
    between: Between,
    directory: Option<TempDir>,
}

impl World {
    fn new(seed: u64, options: StoreOptions, between: Between) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lanes = (0..2).flat_map(|actor| (0..2).map(move |lane| (actor, lane)));
        let writers = lanes
            .map(|(actor, lane)| {
                let (n, keys) = (rng.random_range(1..4), rng.random_range(0.02..0.6));
                LaneWriter::new(LaneKey { actor, incarnation: 1, lane }, n, keys, options.tables.len())
            })
            .collect();
        let directory = (between == Between::Reopen).then(|| TempDir::new().unwrap());
        let storage =
            directory.as_ref().map_or(Storage::in_memory(), |at| Storage::directory(at.path(), SALT, true));
        let (store, _) = Store::open(options.clone(), 7, storage).unwrap();
        Self {
            rng,
            store: Some(store),
            naive: Naive::new(options),
            writers,
            sent: Vec::new(),
            between,
            directory,
        }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    fn operate(&mut self) {
        let table = self.rng.random_range(0..self.naive.tables.len());
        match self.rng.random_range(0..24) {
            0..11 => {
                let index = self.rng.random_range(0..self.writers.len());
                let chunk = self.writers[index].chunk(&mut self.rng);
                self.sent.push(chunk.clone());
                self.insert(&chunk);
            }
            // Lost on the way.
            11 => drop(self.writers[0].chunk(&mut self.rng)),
            // Sent again; it may be fenced by now.
            12 if !self.sent.is_empty() => {
                let from = self.sent.len().saturating_sub(20);
                let chunk = self.sent[self.rng.random_range(from..self.sent.len())].clone();
                self.insert(&chunk);
            }
            13 if self.rng.random_bool(0.2) => {
                let index = self.rng.random_range(0..self.writers.len());
                let lane = self.writers[index].lane;
                let lane = LaneKey { incarnation: lane.incarnation + 1, ..lane };
                self.writers[index] = LaneWriter::new(lane, 2, 0.2, self.naive.tables.len());
            }
            14..17 => self.sample(table),
            17 | 18 => self.update(table),
            19 => self.remove(table),
            20 => {
                let exponent = self.rng.random_range(0.0..1.5);
                self.naive.tables[table].options.priority_exponent = exponent;
                self.store().set_priority_exponent(table, exponent).unwrap();
            }
            21 => {
                let capacity = self.rng.random_range(1..60);
                self.naive.set_capacity(table, capacity);
                self.store().set_capacity(table, capacity).unwrap();
            }
            22 => {
                let largest = priority(self.rng.random_range(0.0..8.0));
                self.naive.tables[table].raise(largest);
                self.store().raise_largest_priority(table, largest);
            }
            _ => {}
        }
        match self.between {
            Between::Reload if self.rng.random_bool(0.3) => self.reload(),
            Between::Reopen if self.rng.random_bool(0.2) => self.reopen(),
            Between::Reopen if self.rng.random_bool(0.02) => self.move_out(),
            _ => {}
        }
    }

    fn reload(&mut self) {
        let mut bytes = Vec::new();
        let store = self.store();
        store.save(&mut bytes).unwrap();
        *store = Store::load(store.options().clone(), store.incarnation(), &mut &bytes[..]).unwrap();
        let mut again = Vec::new();
        store.save(&mut again).unwrap();
        assert!(bytes == again, "a loaded store saves the same bytes");
    }

    fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        let (options, incarnation, chunks) = (store.options().clone(), store.incarnation(), store.chunks());
        let items: usize = store.tables().iter().map(|table| table.len()).sum();
        drop(store);
        let storage = Storage::directory(self.directory.as_ref().unwrap().path(), SALT, false);
        let (store, recovered) = Store::open(options, incarnation, storage).unwrap();
        assert!(recovered.is_whole(), "{recovered:?}");
        assert_eq!((recovered.chunks, recovered.items), (chunks as u64, items as u64));
        self.store = Some(store);
    }

    /// Restores a save into another directory, which resets the counters.
    fn move_out(&mut self) {
        let mut bytes = Vec::new();
        let directory = TempDir::new().unwrap();
        let store = self.store.take().unwrap();
        store.save(&mut bytes).unwrap();
        let storage = Storage::directory(directory.path(), SALT + 1, true);
        drop(Store::restore(store.incarnation() + 1, storage, &mut &bytes[..]).unwrap());
        let (options, incarnation) = (store.options().clone(), store.incarnation() + 1);
        drop(store);
        let wrong = Store::open(options, incarnation, Storage::directory(directory.path(), SALT, false));
        assert_eq!(wrong.unwrap().0.chunks(), 0, "nothing is found with another salt");
        let storage = Storage::directory(directory.path(), SALT, true);
        let (store, recovered) = Store::restore(incarnation, storage, &mut &bytes[..]).unwrap();
        assert!(recovered.is_whole(), "{recovered:?}");
        (self.store, self.directory) = (Some(store), Some(directory));
        self.naive.counters = Counters::default();
        self.naive.tables.iter_mut().for_each(|table| table.counters = TableCounters::default());
    }

    fn insert(&mut self, chunk: &Chunk) {
        let expected = self.naive.insert(chunk);
        let got = self.store().insert(chunk);
        assert_eq!(got.as_ref().err(), expected.as_ref().err());
        if let (Ok(got), Ok(duplicate)) = (got, expected) {
            assert_eq!(got.duplicate, duplicate);
        }
    }

    fn sample(&mut self, table: usize) {
        let (count, stratified) = (self.rng.random_range(0..6), self.rng.random());
        let Self { rng, store, naive, .. } = self;
        let store = store.as_mut().unwrap();
        let result = store.sample(table, count, stratified, rng);
        let incarnation = store.incarnation();
        let of = &mut naive.tables[table];
        let mass = |weights: &[(usize, f64)]| weights.iter().map(|(_, weight)| weight).sum::<f64>();
        match result {
            Err(SampleError::Empty) => assert_eq!(of.live().count(), 0),
            Err(SampleError::NoMass) => assert_eq!(mass(&of.weights()), 0.0),
            Ok(draws) => {
                assert!(draws.len() <= count);
                let fewer = draws.len() < count;
                for draw in draws {
                    let number = draw.key.generation as usize;
                    let weights = of.weights();
                    let (_, weight) =
                        *weights.iter().find(|(item, _)| *item == number).expect("may be drawn");
                    assert_eq!(
                        (draw.key.incarnation, Some(draw.key.slot)),
                        (incarnation, of.items[number].slot)
                    );
                    assert!((draw.probability - weight / mass(&weights)).abs() <= 1e-12);
                    assert!(draw.probability > 0.0);
                    assert_eq!(draw.age_inserts, (of.items.len() - 1 - number) as u64);
                    of.draw(number);
                    assert_eq!(draw.times_sampled, of.items[number].times_sampled);
                }
                assert!(!fewer || mass(&of.weights()) == 0.0, "there was more to draw");
            }
        }
        naive.reclaim_unneeded();
    }

    /// A key: mostly of recent items, some long gone, a few of another incarnation or to come.
    fn any_key(&mut self, table: usize) -> (ItemKey, Option<usize>) {
        let of = &self.naive.tables[table];
        let number = (of.items.len() as i64 + 1 - self.rng.random_range(0..40)).max(0) as usize;
        let item = of.items.get(number);
        let slot = item.and_then(|item| item.slot).unwrap_or(self.rng.random_range(0..50));
        let other = self.rng.random_bool(0.1);
        let incarnation = self.store.as_ref().unwrap().incarnation() + u32::from(other);
        let live = item.is_some_and(|item| item.live) && !other;
        (ItemKey { incarnation, slot, generation: number as u64 }, live.then_some(number))
    }

    fn remove(&mut self, table: usize) {
        let (key, live) = self.any_key(table);
        let expected = live.map_or(0, |number| self.naive.remove(table, number));
        assert_eq!(self.store().remove(table, &[key]), expected);
        assert!(self.store().item(table, key).is_none());
    }

    fn update(&mut self, table: usize) {
        let mut updates = Vec::new();
        let (mut applied, mut stale) = (0, 0);
        for _ in 0..self.rng.random_range(0..5) {
            let (key, live) = self.any_key(table);
            // Some priorities are equal.
            let new = priority(f64::from(self.rng.random_range(0..20)) / 4.0);
            updates.push((key, new));
            match live {
                Some(number) => {
                    self.naive.tables[table].raise(new);
                    self.naive.tables[table].items[number].priority = new;
                    applied += 1;
                }
                None => stale += 1,
            }
        }
        let updated = self.store().update_priorities(table, &updates);
        assert_eq!((updated.applied, updated.stale), (applied, stale));
        self.naive.tables[table].counters.updates += applied;
        self.naive.tables[table].counters.stale_updates += stale;
    }

    /// Everything that can be seen of both must be the same.
    fn compare(&mut self) {
        let Self { store, naive, .. } = self;
        let store = store.as_ref().unwrap();
        assert_eq!(store.counters(), naive.counters);
        assert_eq!(store.chunks(), naive.chunks.len() - naive.oldest);
        assert_eq!(
            store.bytes_used(),
            naive.chunks[naive.oldest..].iter().map(|chunk| chunk.bytes).sum::<usize>()
        );
        assert!(store.bytes_used() <= store.options().bytes_max);
        for (index, of) in naive.tables.iter_mut().enumerate() {
            let table = &store.tables()[index];
            assert_eq!((table.options(), table.counters()), (&of.options, of.counters));
            assert_eq!(table.largest_priority(), of.largest);
            assert_eq!(table.len(), of.live().count());
            let numbers = table.by_age().map(|slot| table.number(slot) as usize);
            assert!(numbers.eq(of.live().map(|(number, _)| number)), "other items, or in another order");
            let mut backwards: Vec<u32> = table.by_youth().collect();
            backwards.reverse();
            assert!(table.by_age().eq(backwards));
            table.by_age().for_each(|slot| of.items[table.number(slot) as usize].slot = Some(slot));
            let weights = of.weights().iter().map(|(_, weight)| weight).sum::<f64>();
            let expected = match of.options.sampler {
                Sampler::Proportional => weights,
                _ => table.len() as f64,
            };
            assert!((table.mass() - expected).abs() <= 1e-9 * expected);
        }
        for (table, of) in self.naive.tables.iter().enumerate() {
            // Items long gone are not looked at, to keep this quick.
            (of.items.len().saturating_sub(100)..of.items.len())
                .for_each(|number| self.compare_item(table, number));
        }
    }

    fn compare_item(&self, table: usize, number: usize) {
        let (store, naive) = (self.store.as_ref().unwrap(), &self.naive);
        let item = &naive.tables[table].items[number];
        let Some(slot) = item.slot else { return };
        let key = ItemKey { incarnation: store.incarnation(), slot, generation: number as u64 };
        let view = store.item(table, key);
        assert_eq!(view.is_some(), item.live, "item {number}");
        let Some(view) = view else { return };
        let last = item.first + item.length;
        let frames: Vec<(&[u8], bool)> = view.frames().collect();
        let expected =
            (item.from..=last).map(|at| naive.step(item, at)).map(|(step, frame)| (frame, step.key_frame));
        assert!(frames.iter().copied().eq(expected));
        assert!(frames[0].1, "frames begin with one that stands alone");
        let pieces: Vec<u8> = view.frame_pieces().flatten().copied().collect();
        assert!(frames.iter().flat_map(|(frame, _)| *frame).eq(&pieces));
        let [state, next_state] = naive.states(item);
        let numbers = |stack: Vec<usize>| {
            stack.into_iter().map(|at| item.from + (view.lead() + at) as u64).collect::<Vec<_>>()
        };
        assert_eq!(numbers(view.state().collect()), state);
        assert_eq!(numbers(view.next_state().collect()), next_state);
        assert_eq!(view.state().next(), Some(0), "the lead is all that is not used");
        assert!(view.steps().map(Some).eq((item.first..last).map(|at| naive.step(item, at).0.taken)));
        assert_eq!(view.priority(), item.priority);
        assert_eq!(view.times_sampled(), item.times_sampled);
        assert_eq!((view.first_step(), view.length() as u64), (item.first, item.length));
        assert_eq!(view.lane(), naive.chunks[item.origin].lane);
        assert_eq!(view.age_inserts(), (naive.tables[table].items.len() - 1 - number) as u64);
    }
}

fn any_table() -> impl Strategy<Value = TableOptions> {
    let samplers = prop::sample::select(vec![
        Sampler::Proportional,
        Sampler::Proportional,
        Sampler::Uniform,
        Sampler::Fifo,
        Sampler::Lifo,
    ]);
    let removers = prop::sample::select(vec![Remover::Fifo, Remover::Lifo, Remover::LowestPriority]);
    let constant = prop::sample::select(vec![0.0, 0.001]);
    (samplers, removers, 1usize..40, 0u32..4, constant).prop_map(
        |(sampler, remover, capacity, most, constant)| TableOptions {
            capacity,
            sampler,
            remover,
            max_times_sampled: most,
            priority_exponent: 0.7,
            priority_constant: constant,
            ..testing::table("main")
        },
    )
}

fn any_options() -> impl Strategy<Value = StoreOptions> {
    let tables = prop::collection::vec(any_table(), 1..4);
    (1usize..6, 0usize..6000, tables).prop_map(|(stack, more, mut tables)| {
        for (index, table) in tables.iter_mut().enumerate() {
            table.name = format!("table-{index}");
        }
        let options = StoreOptions { stack, tables, ..testing::options() };
        let least = record::bytes(stack + 1, 1, options.packed_bytes_max() * (stack + 1));
        StoreOptions { bytes_max: least + more, ..options }
    })
}

fn run(seed: u64, options: StoreOptions, between: Between) {
    let mut world = World::new(seed, options, between);
    for _ in 0..250 {
        world.operate();
        world.compare();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn behaves_as_the_naive_store_does(seed: u64, options in any_options()) {
        run(seed, options, Between::Nothing);
    }

    /// The same, but now and then the store is replaced by what a save of it loads.
    #[test]
    fn behaves_as_the_naive_store_does_across_saves(seed: u64, options in any_options()) {
        run(seed, options, Between::Reload);
    }

    /// The same in a directory, but now and then the store is dropped and opened again.
    #[test]
    fn behaves_as_the_naive_store_does_across_restarts(seed: u64, options in any_options()) {
        run(seed, options, Between::Reopen);
    }

    /// A run with and one without saves end in the same bytes, having drawn the same.
    #[test]
    fn saving_and_loading_changes_nothing(seed: u64, options in any_options(), cut in 0usize..250) {
        let run = |cut: Option<usize>| {
            let mut world = World::new(seed, options.clone(), Between::Nothing);
            for turn in 0..250 {
                world.operate();
                world.compare();
                if Some(turn) == cut {
                    world.reload();
                }
            }
            let World { rng, store, .. } = &mut world;
            let draws = store.as_mut().unwrap().sample(0, 50, true, rng);
            let mut bytes = Vec::new();
            store.as_mut().unwrap().save(&mut bytes).unwrap();
            (draws, bytes)
        };
        prop_assert!(run(None) == run(Some(cut)));
    }
}
