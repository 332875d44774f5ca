//! What is left of a store whose process was killed, whose machine lost power, or whose files were damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::contents::{Item, contents};
use super::writer::LaneWriter;
use crate::store::directory::{DirectoryError, FORMAT, SlotDirectory, StoreManifest, parse};
use crate::store::lanes::LANES_MAX;
use crate::store::record::{ItemRecord, Record};
use crate::store::{Recovered, Storage, StorageError};
use crate::testing::{options, priority, table};
use crate::{Chunk, LaneKey, Remover, Sampler, Store, StoreOptions, TableOptions};

const SALT: u64 = 0x1234_5678_9abc_def1;
const INCARNATION: u32 = 7;

/// Bytes of a slot, a mark and a copy of the state.
const SLOT: usize = 24;
const MARK: usize = 64;
const COPY: usize = 2048;

fn small_options() -> StoreOptions {
    let main = TableOptions { capacity: 20, remover: Remover::LowestPriority, ..table("main") };
    let other =
        TableOptions { capacity: 9, sampler: Sampler::Uniform, max_times_sampled: 3, ..table("other") };
    StoreOptions { bytes_max: 5000, tables: vec![main, other], ..options() }
}

/// Seeds for so many stories. `QUIVER_SEEDS_FROM` gives others than usual, to look for trouble.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let from = std::env::var("QUIVER_SEEDS_FROM").map_or(0, |from| from.parse().unwrap());
    from..from + count
}

/// A store's files by name.
#[derive(Clone, PartialEq)]
struct Files(BTreeMap<&'static str, Vec<u8>>);

const NAMES: [&str; 5] = ["ring", "table-0", "table-1", "marks", "state"];

impl Files {
    /// The marks are large and mostly empty, so only their beginning is read.
    fn read(directory: &Path) -> Self {
        let read = |name: &str| {
            let mut bytes = Vec::new();
            let most = if name == "marks" { 16 * MARK } else { usize::MAX };
            File::open(directory.join(name)).unwrap().take(most as u64).read_to_end(&mut bytes).unwrap();
            bytes
        };
        Self(NAMES.map(|name| (name, read(name))).into())
    }

    fn write(&self, directory: &Path) {
        for (name, bytes) in &self.0 {
            let path = directory.join(name);
            if *name == "marks" && bytes.len() == 16 * MARK {
                let mut file = File::options().write(true).open(path).unwrap();
                file.write_all(bytes).unwrap();
                file.set_len((LANES_MAX * MARK) as u64).unwrap();
            } else {
                fs::write(path, bytes).unwrap();
            }
        }
    }

    fn of(&mut self, name: &str) -> &mut Vec<u8> {
        self.0.get_mut(name).unwrap()
    }

    /// Some pieces of a file as they are in another moment.
    fn take(&mut self, from: &Files, name: &str, unit: usize, mut taken: impl FnMut(usize) -> bool) {
        let theirs = &from.0[name];
        for at in (0..theirs.len()).step_by(unit) {
            let end = theirs.len().min(at + unit);
            if taken(at) {
                self.of(name)[at..end].copy_from_slice(&theirs[at..end]);
            }
        }
    }

    /// The records of the ring: number, place, bytes, and what the record says.
    fn records(&self) -> Vec<Found> {
        let ring = &self.0["ring"];
        let units: Vec<[u64; 8]> = ring.chunks_exact(64).map(bytemuck::pod_read_unaligned).collect();
        let ring: &[u8] = bytemuck::cast_slice(&units);
        let mut found = Vec::new();
        let mut place = 0;
        while place < ring.len() {
            match Record::find(&ring[place..], SALT) {
                Some(record) => {
                    let header = record.header();
                    let (number, lane, bytes) = (header.number, record.lane(), record.as_bytes().len());
                    let steps = header.first_step..header.first_step + u64::from(header.steps);
                    let (sequence, items) = (header.sequence, record.items().to_vec());
                    found.push(Found { number, place, bytes, lane, sequence, steps, items });
                    place += bytes;
                }
                None => place += 64,
            }
        }
        found
    }
}

struct Found {
    number: u64,
    place: usize,
    bytes: usize,
    lane: LaneKey,
    sequence: u64,
    steps: std::ops::Range<u64>,
    items: Vec<ItemRecord>,
}

/// A store in a directory and those who write to it.
struct World {
    rng: ChaCha8Rng,
    directory: TempDir,
    options: StoreOptions,
    store: Option<Store>,
    writers: Vec<LaneWriter>,
    /// Every lane there ever was, to compare with.
    past: Vec<LaneWriter>,
    sent: Vec<Chunk>,
}

impl World {
    fn new(seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (directory, options) = (TempDir::new().unwrap(), small_options());
        let storage = Storage::directory(directory.path(), SALT, true);
        let store = Some(Store::open(options.clone(), INCARNATION, storage).unwrap().0);
        let lane = |lane| LaneWriter::new(LaneKey { actor: lane % 3, incarnation: 1, lane }, 2, 0.25, 2);
        let writers = (0..5).map(lane).collect();
        Self { rng, directory, options, store, writers, past: Vec::new(), sent: Vec::new() }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    fn chunk(&mut self) -> Chunk {
        // The first lane writes seldom, so that its chunks are all gone most of the time.
        let seldom = self.rng.random_bool(0.02);
        let index = if seldom { 0 } else { self.rng.random_range(1..self.writers.len()) };
        if self.rng.random_bool(0.02) {
            let lane = self.writers[index].lane;
            let lane = LaneKey { incarnation: lane.incarnation + 1, ..lane };
            let fresh = LaneWriter::new(lane, 2, 0.25, 2);
            self.past.push(std::mem::replace(&mut self.writers[index], fresh));
        }
        let chunk = self.writers[index].chunk(&mut self.rng);
        self.sent.push(chunk.clone());
        chunk
    }

    fn operate(&mut self) {
        match self.rng.random_range(0..12) {
            0 | 1 => {
                let Self { rng, store, .. } = self;
                let draws = store.as_mut().unwrap().sample(rng.random_range(0..2), 3, true, rng);
                drop(draws);
            }
            2 => {
                let new = priority(self.rng.random_range(0.0..4.0));
                let table = self.rng.random_range(0..2);
                let store = self.store();
                let updates: Vec<_> = store.newest(table, 4).into_iter().map(|key| (key, new)).collect();
                store.update_priorities(table, &updates);
            }
            3 => {
                let store = self.store();
                let keys = store.newest(0, 7);
                store.remove(0, &keys[keys.len() / 2..][..keys.len().min(1)]);
            }
            _ => {
                // Those of a fenced lane are refused.
                let chunk = self.chunk();
                let _ = self.store().insert(&chunk);
            }
        }
    }

    fn run(&mut self, operations: usize) {
        (0..operations).for_each(|_| self.operate());
    }

    /// The files as a process that dies now leaves them.
    fn files(&self) -> Files {
        Files::read(self.directory.path())
    }

    /// Opens these files in place of the store's own.
    fn open(&mut self, files: &Files) -> Recovered {
        self.store = None;
        files.write(self.directory.path());
        let storage = Storage::directory(self.directory.path(), SALT, false);
        let (store, recovered) = Store::open(self.options.clone(), INCARNATION, storage).unwrap();
        self.store = Some(store);
        recovered
    }

    fn contents(&self) -> BTreeMap<(usize, u64), Item> {
        contents(self.store.as_ref().unwrap())
    }

    /// Every stored item equals what its writer sent, and is stored once.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        for ((table, _), item) in self.contents() {
            let writer =
                self.writers.iter().chain(&self.past).find(|writer| writer.lane == item.lane).unwrap();
            item.check(&writer.played);
            assert!(seen.insert((table, item.lane, item.first)), "an item is there twice");
        }
        let store = self.store.as_ref().unwrap();
        assert!(store.bytes_used() <= store.options().bytes_max);
    }

    /// The store accepts further operations, and its contents survive another crash.
    fn continue_with(&mut self, operations: usize) {
        for _ in 0..operations {
            self.operate();
            self.check();
        }
        let (files, before) = (self.files(), self.contents());
        let recovered = self.open(&files);
        assert!(recovered.is_whole(), "{recovered:?}");
        assert!(self.contents() == before);
    }
}

/// The chunks that each item is made of, by table and number.
fn needs(records: &[Found]) -> BTreeMap<(usize, u64), BTreeSet<u64>> {
    let mut needs = BTreeMap::new();
    for origin in records {
        for item in &origin.items {
            let holds = |found: &&Found| {
                let steps = found.steps.start.max(item.from())..found.steps.end.min(item.last() + 1);
                found.lane == origin.lane && found.number <= origin.number && !steps.is_empty()
            };
            let first = records.iter().filter(holds).map(|found| found.number).min();
            // Those without steps are links of the chain, too.
            let between = first.unwrap_or(origin.number)..=origin.number;
            let chain =
                records.iter().filter(|found| found.lane == origin.lane && between.contains(&found.number));
            needs.insert((usize::from(item.table), item.number), chain.map(|found| found.number).collect());
        }
    }
    needs
}

#[test]
fn a_flipped_bit_costs_what_it_hits() {
    let (mut hit_chunks, mut hit_slots) = (0, 0);
    for seed in seeds(8) {
        let mut world = World::new(seed);
        world.run(300);
        while world.contents().len() < 15 || world.store().chunks() < 8 {
            world.run(10);
        }
        let (files, before) = (world.files(), world.contents());
        let (records, chunks) = (files.records(), world.store().chunks() as u64);
        let newest = records.iter().map(|found| found.number).max().unwrap();
        let live = newest + 1 - chunks..newest + 1;
        let needs = needs(&records);
        let slots =
            |name: &str| files.0[name].chunks_exact(SLOT).map(|slot| slot[..8].to_vec()).collect::<Vec<_>>();
        let numbers = [slots("table-0"), slots("table-1")];
        for round in 0..250 {
            let name = NAMES[[0, 0, 0, 0, 1, 1, 2, 3, 4][round % 9]];
            let most = if name == "marks" { 8 * MARK } else { files.0[name].len() };
            let at = world.rng.random_range(0..most);
            let mut damaged = files.clone();
            damaged.of(name)[at] ^= 1 << world.rng.random_range(0..8);
            let recovered = world.open(&damaged);
            let after = world.contents();
            let story = format!("seed {seed}, {name} at {at}: {recovered:?}");
            let hit = records.iter().find(|found| (found.place..found.place + found.bytes).contains(&at));
            let hit = hit.filter(|found| name == "ring" && live.contains(&found.number));
            let untouched = |key: &(usize, u64)| hit.is_none_or(|hit| !needs[key].contains(&hit.number));
            let slot = name.strip_prefix("table-").map(|table| (table.parse::<usize>().unwrap(), at / SLOT));
            let in_slot = |(table, number): (usize, u64)| {
                slot.is_some_and(|(of, slot)| of == table && numbers[table][slot] == number.to_le_bytes())
            };
            for (key, item) in &before {
                let found = after.get(key);
                assert_eq!(found.is_some(), untouched(key), "{story}: item {key:?}");
                match found {
                    Some(found) if in_slot(*key) => {
                        assert_eq!(found.what(), item.what(), "{story}");
                        assert_eq!(found.times_sampled, 0, "{story}");
                    }
                    Some(found) => assert_eq!(found, item, "{story}"),
                    None => {}
                }
            }
            // A slot that can't be read may have been vacant.
            let more = after.keys().filter(|key| !before.contains_key(key)).count();
            let lost = before.keys().filter(|key| !after.contains_key(key)).count() as u64;
            assert!(more == 0 || (more == 1 && slot.is_some()), "{story}");
            assert_eq!(
                (recovered.damaged_chunks, recovered.lost_items),
                (u64::from(hit.is_some()), lost),
                "{story}"
            );
            let live_slot = before.keys().any(|key| in_slot(*key));
            assert_eq!(recovered.damaged_priorities, u64::from(live_slot) + more as u64, "{story}");
            assert!(recovered.damaged_lanes <= u64::from(name == "marks"), "{story}");
            assert!(!recovered.damaged_state, "{story}");
            hit_chunks += u64::from(hit.is_some());
            hit_slots += u64::from(live_slot);
            if round % 25 == 0 {
                let (writers, past, sent) = (world.writers.clone(), world.past.clone(), world.sent.clone());
                world.continue_with(40);
                (world.writers, world.past, world.sent) = (writers, past, sent);
            } else {
                let mut writer = LaneWriter::new(LaneKey { actor: 77, incarnation: 1, lane: 0 }, 1, 0.5, 2);
                let (chunk, more) = (writer.chunk(&mut world.rng), writer.chunk(&mut world.rng));
                let World { store, rng, .. } = &mut world;
                let store = store.as_mut().unwrap();
                assert!(!store.insert(&chunk).unwrap().duplicate && !store.insert(&more).unwrap().duplicate);
                let _ = store.sample(0, 3, true, rng);
            }
        }
    }
    assert!(hit_chunks > 400 && hit_slots > 100, "{hit_chunks} {hit_slots}");
}

#[test]
fn without_any_state_everything_else_is_still_found() {
    let mut world = World::new(1);
    world.run(300);
    let (mut files, before, chunks) = (world.files(), world.contents(), world.store().chunks());
    let largest = world.store().tables()[0].largest_priority();
    let state = files.of("state");
    state[30] ^= 1;
    state[COPY + 30] ^= 1;
    let recovered = world.open(&files);
    assert!(recovered.damaged_state && !recovered.is_whole());
    // Chunks that had been forgotten and not yet overwritten may be found again, and go at once.
    assert_eq!((recovered.damaged_chunks, recovered.lost_items, world.store().chunks()), (0, 0, chunks));
    assert!(world.contents() == before);
    assert!(world.store().tables()[0].largest_priority() <= largest);
    world.continue_with(100);
}

#[test]
fn a_file_of_the_wrong_size_is_named() {
    let mut world = World::new(2);
    world.run(50);
    let files = world.files();
    let mut check = |name: &'static str, change: fn(&mut Vec<u8>)| {
        world.store = None;
        let mut changed = files.clone();
        change(changed.of(name));
        changed.write(world.directory.path());
        let storage = Storage::directory(world.directory.path(), SALT, false);
        match Store::open(world.options.clone(), INCARNATION, storage) {
            Err(StorageError::Io { name: named, .. }) => assert_eq!(named, name),
            Err(error) => panic!("{name}: {error}"),
            Ok(_) => panic!("{name} is taken as it is"),
        }
    };
    for name in NAMES {
        check(name, |bytes| bytes.truncate(bytes.len() - 1));
        check(name, |bytes| bytes.clear());
        check(name, |bytes| bytes.push(0));
    }
    fs::remove_file(world.directory.path().join("ring")).unwrap();
    let storage = Storage::directory(world.directory.path(), SALT, false);
    assert!(Store::open(world.options.clone(), INCARNATION, storage).is_err());
}

#[test]
fn a_start_that_failed_leaves_nothing_behind() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("ring"), [0xff; 777]).unwrap();
    fs::write(directory.path().join("marks"), [0xff; 9]).unwrap();
    let storage = Storage::directory(directory.path(), SALT, true);
    let (store, recovered) = Store::open(small_options(), INCARNATION, storage).unwrap();
    assert_eq!((store.chunks(), recovered), (0, Recovered::default()));
    drop(store);
    let storage = Storage::directory(directory.path(), SALT, false);
    assert!(Store::open(small_options(), INCARNATION, storage).unwrap().1.is_whole());
}

/// The point at which a crash interrupts an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Torn {
    /// Some slots and marks are written, the state is the old one.
    Slots,
    /// Room is reclaimed and persisted in the state, all slots are written, the record is missing or partial.
    Record,
    /// The record is whole, the state does not know yet.
    State,
    /// In the middle of writing a state.
    HalfState,
}

/// The files before and after an operation, mixed as a process leaves them that dies in between.
fn torn(torn: Torn, before: &Files, after: &Files, rng: &mut ChaCha8Rng) -> Files {
    let mut files = before.clone();
    let all = torn != Torn::Slots;
    for name in ["table-0", "table-1"] {
        let until = if all { usize::MAX } else { rng.random_range(0..20 * SLOT) };
        files.take(after, name, SLOT, |at| at < until);
    }
    let marks = all || rng.random();
    files.take(after, "marks", MARK, |_| marks);
    // The older copy is what an insert writes before it overwrites anything, or is not new.
    let state = after.0["state"].clone();
    let serial = |at: usize| u64::from_le_bytes(state[at..at + 8].try_into().unwrap());
    let (older, newer) = if serial(0) < serial(COPY) { (0, COPY) } else { (COPY, 0) };
    if all {
        files.take(after, "state", COPY, |at| at == older);
    }
    if torn == Torn::HalfState {
        let cut = rng.random_range(0..400);
        files.of("state")[newer..newer + cut].copy_from_slice(&state[newer..newer + cut]);
    }
    let known: BTreeSet<u64> = before.records().iter().map(|found| found.number).collect();
    let new = after.records().into_iter().find(|found| !known.contains(&found.number));
    let Some(Found { place, bytes, .. }) = new else { return files };
    match torn {
        Torn::Slots => {}
        Torn::State | Torn::HalfState => files.take(after, "ring", 1, |_| true),
        Torn::Record => {
            // The header is wiped, the rest comes piece by piece, the salt, the number and the checksum last.
            files.of("ring")[place..place + 96].fill(0);
            let (until, header) = (rng.random_range(0..=bytes), rng.random_range(0..20));
            let any = rng.random_bool(0.3);
            let mut some = ChaCha8Rng::seed_from_u64(rng.random());
            files.take(after, "ring", 1, |at| (place + 96..place + until.max(96)).contains(&at));
            if any {
                files.take(after, "ring", 64, |at| {
                    (place + 128..place + bytes).contains(&at) && some.random_bool(0.5)
                });
            }
            if until == bytes || any {
                let end = place + bytes;
                files.take(after, "ring", 1, |at| {
                    (place + 20..end).contains(&at) || (place..place + header).contains(&at)
                });
            }
        }
    }
    files
}

/// At any moment of any operation the process is killed. Whatever was there before and is there after the operation
/// is there now, nothing is there twice, and a chunk that was not acknowledged can be sent again.
#[test]
fn a_process_that_dies_loses_nothing_it_acknowledged() {
    let mut found = BTreeMap::new();
    for seed in seeds(16) {
        let mut world = World::new(100 + seed);
        world.run(150 + seed as usize % 50);
        for _ in 0..12 {
            let (before, old) = (world.files(), world.contents());
            let sent = world.sent.len();
            world.operate();
            let (after, new) = (world.files(), world.contents());
            let chunk = world.sent.get(sent).cloned();
            let stored = chunk.filter(|_| after.0["ring"] != before.0["ring"]);
            let (writers, past) = (world.writers.clone(), world.past.clone());
            for kind in [Torn::Slots, Torn::Record, Torn::State, Torn::HalfState] {
                let files = torn(kind, &before, &after, &mut world.rng);
                let recovered = world.open(&files);
                let story = format!("seed {seed}, {kind:?}: {recovered:?}");
                assert!(recovered.is_whole(), "{story}");
                let now = world.contents();
                for (key, item) in old.iter().filter(|(key, _)| new.contains_key(key)) {
                    assert_eq!(now.get(key).map(Item::what), Some(item.what()), "{story}: {key:?}");
                }
                assert!(now.keys().all(|key| old.contains_key(key) || new.contains_key(key)), "{story}");
                if kind == Torn::State || kind == Torn::HalfState {
                    assert!(now.keys().eq(new.keys()), "{story}");
                }
                world.check();
                if let Some(chunk) = &stored {
                    let whole = kind == Torn::State || kind == Torn::HalfState;
                    assert_eq!(world.store().insert(chunk).unwrap().duplicate, whole, "{story}");
                    assert!(world.store().insert(chunk).unwrap().duplicate);
                    world.check();
                    *found.entry(format!("{kind:?}")).or_insert(0) += 1;
                }
                world.continue_with(5);
                (world.writers, world.past) = (writers.clone(), past.clone());
            }
            world.sent.truncate(sent + 1);
            world.open(&after);
        }
    }
    assert!(found.len() == 4 && found.values().all(|times| *times > 60), "{found:?}");
}

/// A mark or a slot is written in several steps, and the process may die between them.
#[test]
fn half_a_slot_or_half_a_mark_costs_a_priority_at_most() {
    for seed in seeds(30) {
        let mut world = World::new(300 + seed);
        world.run(200);
        for _ in 0..6 {
            let (before, old) = (world.files(), world.contents());
            world.operate();
            let (after, new) = (world.files(), world.contents());
            let (writers, past) = (world.writers.clone(), world.past.clone());
            let mut files = before.clone();
            let until = world.rng.random_range(0..20 * SLOT);
            let name = ["table-0", "table-1"][world.rng.random_range(0..2)];
            files.take(&after, name, 4, |at| at < until);
            let until = world.rng.random_range(0..8 * MARK);
            files.take(&after, "marks", 8, |at| at < until);
            let recovered = world.open(&files);
            let story = format!("seed {seed}: {recovered:?}");
            assert_eq!(
                (recovered.damaged_chunks, recovered.lost_items, recovered.damaged_state),
                (0, 0, false)
            );
            assert!(recovered.damaged_priorities <= 1 && recovered.damaged_lanes <= 1, "{story}");
            let now = world.contents();
            for (key, item) in old.iter().filter(|(key, _)| new.contains_key(key)) {
                assert_eq!(now.get(key).map(Item::what), Some(item.what()), "{story}: {key:?}");
            }
            world.check();
            world.continue_with(10);
            (world.writers, world.past) = (writers, past);
            world.open(&after);
        }
    }
}

/// After a loss of power each file, or each sector of one, is of another moment.
#[test]
fn after_a_loss_of_power_what_is_left_fits_together() {
    let mut kept = 0;
    for seed in seeds(120) {
        let mut world = World::new(500 + seed);
        world.run(60 + 2 * (seed as usize % 120));
        let mut moments = Vec::new();
        for _ in 0..6 {
            moments.push(world.files());
            let more = world.rng.random_range(1..25);
            world.run(more);
        }
        moments.push(world.files());
        let pick = |rng: &mut ChaCha8Rng| moments[rng.random_range(0..moments.len())].clone();
        let rng = &mut world.rng;
        let mut files = pick(rng);
        match seed % 4 {
            // Only the ring is new, or only the ring is old.
            0 => files.0.insert("ring", moments.last().unwrap().0["ring"].clone()),
            1 => {
                files = moments.last().unwrap().clone();
                files.0.insert("ring", pick(rng).0["ring"].clone())
            }
            _ => {
                NAMES.map(|name| files.0.insert(name, pick(rng).0[name].clone())).into_iter().next().flatten()
            }
        };
        if seed % 4 == 3 {
            let other = pick(rng);
            let mut some = ChaCha8Rng::seed_from_u64(seed);
            NAMES.iter().for_each(|name| files.take(&other, name, 512, |_| some.random()));
        }
        let records = files.records();
        world.open(&files);
        world.check();
        kept += world.contents().len();
        // What survived of a lane is not stored again.
        let numbers = world.store().numbers();
        for found in records.iter().filter(|found| numbers.contains(&found.number)) {
            let same = |chunk: &&Chunk| chunk.lane == found.lane && chunk.sequence == found.sequence;
            let chunk = world.sent.iter().find(same).unwrap().clone();
            match world.store().insert(&chunk) {
                Ok(inserted) => assert!(inserted.duplicate, "seed {seed}: chunk {}", found.number),
                Err(error) => {
                    assert!(matches!(error, crate::InsertError::Fenced { .. }), "seed {seed}: {error}");
                }
            }
        }
        world.check();
        world.continue_with(60);
    }
    assert!(kept > 400, "{kept}");
}

/// If only the slots are older than the ring, no item is lost and none comes back that has no record.
#[test]
fn slots_older_than_the_ring_cost_priorities_and_no_items() {
    let mut known = 0;
    for seed in seeds(60) {
        let mut world = World::new(700 + seed);
        world.run(100);
        let old = world.files();
        world.run(1 + seed as usize % 60);
        let (mut files, before) = (world.files(), world.contents());
        for name in ["table-0", "table-1"] {
            files.0.insert(name, old.0[name].clone());
        }
        let recovered = world.open(&files);
        let after = world.contents();
        for (key, item) in &before {
            // A table that is too full now may have let something else go.
            let full = world.store().tables()[key.0].len() == world.options.tables[key.0].capacity;
            match after.get(key) {
                Some(found) => assert_eq!(found.what(), item.what()),
                None => assert!(full, "seed {seed}: {key:?} is missing, {recovered:?}"),
            }
        }
        assert_eq!((recovered.damaged_chunks, recovered.damaged_state), (0, false));
        known += recovered.damaged_priorities;
        world.check();
        world.continue_with(30);
    }
    assert!(known > 100, "{known}");
}

/// A ring that starts over at its beginning leaves old records behind, in an order that no ring has.
#[test]
fn records_left_over_from_before_are_not_mixed_up_with_newer_ones() {
    for seed in seeds(60) {
        let mut world = World::new(900 + seed);
        let mut files = Vec::new();
        for _ in 0..8 {
            let more = world.rng.random_range(1..15);
            world.run(more);
            files.push(world.files());
            // Everything leaves, so that the next chunk goes to the beginning.
            for table in 0..2 {
                let store = world.store();
                store.remove(table, &store.newest(table, usize::MAX));
            }
            for index in 0..world.writers.len() {
                let lane = world.writers[index].lane;
                let lane = LaneKey { incarnation: lane.incarnation + 10, ..lane };
                let fresh = LaneWriter::new(lane, 2, 0.25, 2);
                world.past.push(std::mem::replace(&mut world.writers[index], fresh));
            }
        }
        let mut last = world.files();
        last.of("state").fill(0);
        last.0.insert("table-0", files[0].0["table-0"].clone());
        world.open(&last);
        world.check();
        world.continue_with(80);
    }
}

#[test]
fn two_shards_take_two_slots_and_a_freed_one_is_taken_again() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("not").join("yet");
    let first = SlotDirectory::take(&data).unwrap();
    let second = SlotDirectory::take(&data).unwrap();
    assert_ne!(first.directory(), second.directory());
    assert_ne!(first.identity().id, second.identity().id);
    assert_eq!(first.identity().id.len(), 32);
    let (id, place) = (first.identity().id.clone(), first.directory().to_owned());
    drop(first);
    let again = SlotDirectory::take(&data).unwrap();
    assert_eq!((again.identity().id.as_str(), again.directory()), (id.as_str(), place.as_path()));
    assert!(again.storage().is_none() && again.identity().manifest.is_none());
}

#[test]
fn a_slot_keeps_its_manifest() {
    let directory = TempDir::new().unwrap();
    let mut slot = SlotDirectory::take(directory.path()).unwrap();
    let manifest = StoreManifest::new("run".into(), "zstd".into(), 18, small_options()).unwrap();
    slot.save_manifest(manifest.clone()).unwrap();
    assert_eq!(slot.identity().manifest.as_ref(), Some(&manifest));
    let open = |slot: &SlotDirectory| {
        Store::open(small_options(), manifest.incarnation, slot.storage().unwrap()).unwrap()
    };
    let chunk = LaneWriter::new(LaneKey { actor: 0, incarnation: 1, lane: 0 }, 1, 0.5, 2);
    let chunk = { chunk }.chunk(&mut ChaCha8Rng::seed_from_u64(1));
    open(&slot).0.insert(&chunk).unwrap();
    // As long as it does not say that the files are there, they are made anew.
    assert!(!open(&slot).0.insert(&chunk).unwrap().duplicate);
    slot.mark_ready(manifest.clone()).unwrap();
    drop(slot);
    let slot = SlotDirectory::take(directory.path()).unwrap();
    let found = slot.identity().manifest.clone().unwrap();
    assert_eq!(
        (found.run, found.incarnation, found.options),
        (manifest.run.clone(), manifest.incarnation, small_options())
    );
    assert!(!slot.identity().manifest.as_ref().unwrap().is_of_another_boot());
    let (mut store, recovered) = open(&slot);
    assert!(recovered.is_whole() && recovered.chunks == 1);
    assert!(store.insert(&chunk).unwrap().duplicate);
}

#[test]
fn a_failed_flush_is_remembered_until_everything_was_written_again() {
    let directory = TempDir::new().unwrap();
    let mut slot = SlotDirectory::take(directory.path()).unwrap();
    let manifest = StoreManifest::new("run".into(), "zstd".into(), 18, small_options()).unwrap();
    let (store, _) = Store::open(small_options(), 1, slot.storage_of(&manifest)).unwrap();
    slot.mark_ready(manifest).unwrap();
    store.sync().unwrap();
    assert!(!slot.flush_marker().is_set().unwrap());
    assert_eq!(slot.flush_marker().last_failure().unwrap(), 0.0);
    store.storage().break_flush();
    assert!(store.sync().is_err());
    drop((store, slot));

    let slot = SlotDirectory::take(directory.path()).unwrap();
    assert!(slot.flush_marker().is_set().unwrap());
    let failed = slot.flush_marker().last_failure().unwrap();
    assert!(failed > 1_700_000_000.0);
    let before = fs::read(slot.directory().join("ring")).unwrap();
    slot.storage().unwrap().rewrite().unwrap();
    assert_eq!(fs::read(slot.directory().join("ring")).unwrap(), before, "as it was");
    slot.flush_marker().clear().unwrap();
    drop(slot);
    let slot = SlotDirectory::take(directory.path()).unwrap();
    assert!(!slot.flush_marker().is_set().unwrap());
    assert_eq!(slot.flush_marker().last_failure().unwrap(), failed, "for the alert");
}

/// A learner that says the same again would be refused otherwise.
#[test]
fn a_slot_remembers_numbers_to_the_last_bit() {
    let directory = TempDir::new().unwrap();
    let mut options = small_options();
    // As text it has 16 digits, and a parser that rounds carelessly makes another number of them.
    options.tables[0].priority_constant = 0.907_303_832_202_868_9;
    let manifest = StoreManifest::new("run".into(), "zstd".into(), 18, options.clone()).unwrap();
    SlotDirectory::take(directory.path()).unwrap().save_manifest(manifest).unwrap();
    let slot = SlotDirectory::take(directory.path()).unwrap();
    assert_eq!(slot.identity().manifest.as_ref().unwrap().options, options);
}

#[test]
fn a_slot_of_another_version_or_with_garbage_is_refused_and_says_so() {
    let directory = TempDir::new().unwrap();
    let identity = SlotDirectory::take(directory.path()).unwrap().directory().join("shard.json");
    let written = fs::read_to_string(&identity).unwrap();
    assert!(parse(written.as_bytes()).is_ok());
    let later = written.replace(&format!("\"format\": {FORMAT}"), "\"format\": 99");
    fs::write(&identity, later).unwrap();
    let error = SlotDirectory::take(directory.path()).unwrap_err();
    assert!(matches!(error, DirectoryError::Format(99)));
    let message = format!(
        "the data directory has format 99, but this version reads {FORMAT}: use the version of quiver that wrote it, or another directory"
    );
    assert_eq!(error.to_string(), message);
    let empty = format!("{{\"format\": {FORMAT}}}");
    for garbage in ["", "{", "[]", &empty, "\u{0}\u{1}\u{2}"] {
        fs::write(&identity, garbage).unwrap();
        let error = SlotDirectory::take(directory.path()).unwrap_err();
        assert!(matches!(error, DirectoryError::Damaged(_)), "{garbage:?}: {error:?}");
        assert!(error.to_string().contains("move the slot away"), "{error}");
    }
    // A half-written new one beside it does no harm.
    fs::write(&identity, written).unwrap();
    fs::write(identity.with_extension("json.new"), "{").unwrap();
    assert!(SlotDirectory::take(directory.path()).is_ok());
}
