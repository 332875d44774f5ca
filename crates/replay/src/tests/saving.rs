//! What a save refuses, and what one that was taken in pieces holds. That a sound one is exact is in `model`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::contents::{Item, contents};
use super::writer::LaneWriter;
use crate::blocks::{BlockReader, BlockWriter};
use crate::store::Storage;
use crate::store::state::State;
use crate::testing::{options, priority, table};
use crate::{LaneKey, LoadError, Remover, Sampler, SnapshotWriter, Store, StoreOptions, TableOptions};

const KINDS: [(Sampler, Remover); 3] = [
    (Sampler::Proportional, Remover::Fifo),
    (Sampler::Uniform, Remover::LowestPriority),
    (Sampler::Lifo, Remover::Lifo),
];

/// Two tables over a ring that has turned round, with evicted items, a lost chunk, two lanes that continue and one
/// that has long stopped.
fn used_store((sampler, remover): (Sampler, Remover)) -> Store {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let main = TableOptions { capacity: 14, sampler, remover, ..table("main") };
    let tables = vec![main, TableOptions { capacity: 6, max_times_sampled: 2, ..table("other") }];
    let mut store = Store::new(StoreOptions { bytes_max: 4000, tables, ..options() }, 7).unwrap();
    let lane = |lane| LaneWriter::new(LaneKey { actor: 3, incarnation: 1, lane }, 2, 0.3, 2);
    let mut writers = [lane(0), lane(1), lane(2)];
    for turn in 0..60 {
        for (index, writer) in writers.iter_mut().enumerate() {
            let chunk = writer.chunk(&mut rng);
            if turn != 55 && (index < 2 || turn < 5) {
                store.insert(&chunk).unwrap();
            }
        }
    }
    store.sample(0, 10, true, &mut rng).unwrap();
    store.sample(1, 4, true, &mut rng).unwrap();
    assert!(store.counters().lost_chunks > 0 && store.table_counters().evicted > 0);
    assert!(store.tables().iter().all(|table| table.len() > 1));
    store
}

fn saved(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(&mut bytes).unwrap();
    bytes
}

fn load(options: &StoreOptions, bytes: &[u8]) -> Result<Store, LoadError> {
    Store::load(options.clone(), 7, &mut &bytes[..])
}

#[test]
fn an_empty_store_comes_back() {
    let store = Store::new(options(), 7).unwrap();
    let loaded = load(store.options(), &saved(&store)).unwrap();
    assert_eq!(saved(&loaded), saved(&store));
    assert!(loaded.tables()[0].is_empty());
}

#[test]
fn bytes_after_a_save_are_left_to_the_caller() {
    let store = used_store(KINDS[0]);
    let mut bytes = saved(&store);
    bytes.extend(b"next");
    let mut input = &bytes[..];
    Store::load(store.options().clone(), 7, &mut input).unwrap();
    assert_eq!(input, b"next");
}

#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    for kind in KINDS {
        let store = used_store(kind);
        let bytes = saved(&store);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(load(store.options(), &damaged).is_err(), "byte {at}");
            assert!(load(store.options(), &bytes[..at]).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn other_options_are_named() {
    let store = used_store(KINDS[0]);
    let bytes = saved(&store);
    let check = |change: fn(&mut StoreOptions), message: &str| {
        let mut options = store.options().clone();
        change(&mut options);
        assert_eq!(load(&options, &bytes).err().unwrap().to_string(), message);
    };
    let end = "set it back, or start with an empty replay";
    check(|o| o.tables[0].capacity = 21, &format!("the replay was saved with capacity 14, not 21: {end}"));
    check(|o| o.bytes_max = 4001, &format!("the replay was saved with bytes_max 4000, not 4001: {end}"));
    check(|o| o.stack = 3, &format!("the replay was saved with stack 4, not 3: {end}"));
    check(|o| o.frame_bytes = 7, &format!("the replay was saved with frame_bytes 8, not 7: {end}"));
    check(|o| o.tables.truncate(1), &format!("the replay was saved with number of tables 2, not 1: {end}"));
    check(|o| o.tables[1].name = "x".into(), &format!("the replay was saved with table other, not x: {end}"));
    let sampler = format!("the replay was saved with sampler proportional, not uniform: {end}");
    check(|o| o.tables[0].sampler = Sampler::Uniform, &sampler);
    let remover = format!("the replay was saved with remover fifo, not lowest-priority: {end}");
    check(|o| o.tables[0].remover = Remover::LowestPriority, &remover);
}

#[test]
fn another_file_is_foreign() {
    for bytes in [&b""[..], b"short", b"quivrep\x01 of an earlier version"] {
        assert!(matches!(load(&options(), bytes), Err(LoadError::Foreign)));
    }
}

#[test]
fn a_new_incarnation_makes_old_keys_stale() {
    let mut store = used_store(KINDS[0]);
    let key = store.sample(0, 1, false, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()[0].key;
    let loaded = Store::load(store.options().clone(), 8, &mut &saved(&store)[..]).unwrap();
    assert!(store.item(0, key).is_some());
    assert!(loaded.item(0, key).is_none());
}

#[test]
fn a_full_disk_is_reported_as_such() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let store = used_store(KINDS[0]);
    let size = saved(&store).len();
    for room in [0, 10, size - 1] {
        let error = store.save(&mut Full(room)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "room for {room}");
    }
    store.save(&mut Full(size)).unwrap();
}

/// The stream inside the blocks, as [`SnapshotWriter`] makes it, with every checksum made anew.
fn sealed(store: &Store, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    let seal = |bytes: &mut [u8], at: usize, of: &[u8]| {
        bytes[at..at + 4].copy_from_slice(&crc32c::crc32c(of).to_le_bytes());
    };
    let number = |payload: &[u8], at: usize| {
        payload.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().unwrap()) as usize)
    };
    let mut at = postcard::to_stdvec(store.options()).unwrap().len();
    // Records: length, place, then salt 8, number 8, checksum 4 and the rest.
    while let Some(length @ 20..) = number(&payload, at) {
        let Some(record) = payload.get_mut(at + 12..at + 12 + length) else { break };
        record[..8].fill(0);
        let covered = [&record[8..16], &record[20..]].concat();
        seal(record, 16, &covered);
        at += 12 + length;
    }
    at += 4;
    let size = size_of::<State>();
    if let Some(state) = payload.get_mut(at..at + size) {
        let covered = state[..size - 8].to_vec();
        seal(state, size - 8, &covered);
    }
    at += size;
    for _ in store.tables() {
        while let Some(length @ 1..) = number(&payload, at) {
            let Some(slots) = payload.get_mut(at + 4..at + 4 + length) else { break };
            for slot in slots.chunks_exact_mut(24) {
                let covered = slot[..20].to_vec();
                seal(slot, 20, &covered);
            }
            at += 4 + length;
        }
        let Some(rest) = payload.get(at + 4..) else { break };
        let Ok((_, after)) = postcard::take_from_bytes::<Vec<u32>>(rest) else { break };
        at = payload.len() - after.len();
    }
    if let Some(marks) = payload.get_mut(at + 4..) {
        for mark in marks.chunks_exact_mut(64) {
            let covered = mark[..60].to_vec();
            seal(mark, 60, &covered);
        }
    }
    let mut bytes = b"quivrep\x04".to_vec();
    let mut out = BlockWriter::new(&mut bytes);
    out.write_all(&payload).unwrap();
    out.end().unwrap();
    bytes
}

fn payload(bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    BlockReader::new(&bytes[8..]).read_to_end(&mut payload).unwrap();
    payload
}

/// With the salt, a writer could forge frames that parse as records.
#[test]
fn a_save_does_not_tell_the_salt() {
    let (directory, salt) = (tempfile::TempDir::new().unwrap(), 0x5ec_4e75_a174_u64);
    let storage = Storage::directory(directory.path(), salt, true);
    let (mut store, _) = Store::open(options(), 7, storage).unwrap();
    let mut writer = LaneWriter::new(LaneKey { actor: 3, incarnation: 1, lane: 0 }, 2, 0.3, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    (0..9).for_each(|_| assert!(store.insert(&writer.chunk(&mut rng)).is_ok()));
    let tells = |bytes: &[u8]| bytes.windows(8).any(|eight| eight == salt.to_le_bytes());
    assert!(tells(&std::fs::read(directory.path().join("ring")).unwrap()));
    assert!(!tells(&saved(&store)));
    assert_eq!(contents(&load(store.options(), &saved(&store)).unwrap()), contents(&store));
}

#[test]
fn a_sealed_save_is_the_save() {
    for kind in KINDS {
        let store = used_store(kind);
        let bytes = saved(&store);
        assert!(sealed(&store, &payload(&bytes)) == bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Checksums detect only accidental damage. A save with valid checksums but altered contents must be refused,
    /// or load as a store whose invariants hold.
    #[test]
    fn changed_contents_never_make_a_store_that_breaks(seed: u64, kind in 0usize..3) {
        let store = used_store(KINDS[kind]);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut payload = payload(&saved(&store));
        let head = postcard::to_stdvec(store.options()).unwrap().len();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(head..payload.len());
            match rng.random_range(0..3) {
                0 => payload[at] = 0xff,
                1 => payload[at] ^= 1 << rng.random_range(0..8),
                _ => payload[at] = payload[at].wrapping_add(rng.random_range(1..=255)),
            }
        }
        let bytes = sealed(&store, &payload);
        if let Ok(loaded) = load(store.options(), &bytes) {
            use_it(loaded, &mut rng);
        }
        if let Ok((restored, _)) = Store::restore(8, Storage::in_memory(), &mut &bytes[..]) {
            use_it(restored, &mut rng);
        }
    }
}

fn use_it(mut store: Store, rng: &mut ChaCha8Rng) {
    contents(&store);
    let mut writer = LaneWriter::new(LaneKey { actor: 9, incarnation: u64::MAX, lane: 0 }, 3, 0.3, 2);
    for _ in 0..20 {
        store.insert(&writer.chunk(rng)).unwrap();
        contents(&store);
        for table in 0..2 {
            let draws = store.sample(table, 2, false, rng).unwrap_or_default();
            for draw in draws {
                store.update_priorities(table, &[(draw.key, priority(rng.random_range(0.0..2.0)))]);
            }
        }
        assert!(store.bytes_used() <= store.options().bytes_max);
    }
    let bytes = saved(&store);
    let loaded = load(store.options(), &bytes).unwrap();
    assert!(contents(&loaded).keys().eq(contents(&store).keys()));
}

/// A save in pieces, with all kinds of operations in between. What it holds is the store at one moment, less what has
/// gone since.
#[test]
fn a_save_in_pieces_holds_what_was_there_and_did_not_go() {
    let (mut turned, mut kept) = (0, 0);
    for seed in 0..150 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (sampler, remover) = KINDS[seed as usize % 3];
        let capacity = rng.random_range(10..60);
        let main =
            TableOptions { capacity, sampler, remover, max_times_sampled: seed as u32 % 3, ..table("main") };
        let tables = vec![main, TableOptions { capacity: 8, ..table("other") }];
        let bytes_max = rng.random_range(1500..9000);
        let mut store = Store::new(StoreOptions { bytes_max, tables, ..options() }, 7).unwrap();
        let lane = |lane| LaneWriter::new(LaneKey { actor: lane, incarnation: 1, lane: 0 }, 2, 0.3, 2);
        let mut writers: Vec<_> = (0..4).map(lane).collect();
        let mut ever = BTreeMap::<(usize, u64), Item>::new();
        let mut operate = |store: &mut Store, rng: &mut ChaCha8Rng| {
            match rng.random_range(0..10) {
                0 => drop(store.sample(0, 3, true, rng)),
                1 => drop(store.remove(0, &store.newest(0, 1))),
                2 => {
                    let updates: Vec<_> =
                        store.newest(0, 5).into_iter().map(|key| (key, priority(3.0))).collect();
                    store.update_priorities(0, &updates);
                }
                3 if rng.random_bool(0.2) => store.set_capacity(1, rng.random_range(1..30)).unwrap(),
                // The first lane stops early on.
                turn => {
                    let index = if turn == 4 && rng.random_bool(0.1) { 0 } else { rng.random_range(1..4) };
                    drop(store.insert(&writers[index].chunk(rng)));
                }
            }
            ever.extend(contents(store));
        };
        (0..120).for_each(|_| operate(&mut store, &mut rng));
        let (piece, pace) = (rng.random_range(1..2000), rng.random_range(0..4));
        let mut saving = SnapshotWriter::new(Vec::new()).unwrap();
        let before = store.table_counters().reclaimed_items;
        while saving.write_some(&store, piece).unwrap() {
            (0..pace).for_each(|_| operate(&mut store, &mut rng));
        }
        turned += u64::from(store.table_counters().reclaimed_items > before + 20);
        let bytes = std::mem::take(saving.sink());
        let (mut restored, recovered) = Store::restore(8, Storage::in_memory(), &mut &bytes[..]).unwrap();
        assert!(recovered.is_whole(), "{recovered:?}");
        let (found, now) = (contents(&restored), contents(&store));
        kept += found.len();
        let known = |(table, number): (usize, u64)| number < restored.tables()[table].next_number;
        for (key, item) in &found {
            assert!(known(*key));
            assert_eq!(item.what(), ever[key].what(), "seed {seed}: item {key:?}");
        }
        // The capacity is that of the beginning, so a table that grew since may not have all.
        let grew = |table: usize| {
            store.tables()[table].options().capacity > restored.tables()[table].options().capacity
        };
        for (key, item) in now.iter().filter(|(key, _)| known(**key) && !grew(key.0)) {
            let found = found.get(key).unwrap_or_else(|| panic!("seed {seed}: item {key:?} is missing"));
            assert_eq!(found.what(), item.what());
        }
        // Every writer can continue, and the restored store is as good as any.
        for writer in &mut writers {
            for _ in 0..10 {
                let chunk = writer.chunk(&mut rng);
                assert!(restored.insert(&chunk).is_err() || restored.insert(&chunk).unwrap().duplicate);
            }
        }
        let again = load(restored.options(), &saved(&restored)).unwrap();
        assert_eq!(contents(&again), contents(&restored));
    }
    assert!(turned > 5 && kept > 1000, "{turned} {kept}");
}
