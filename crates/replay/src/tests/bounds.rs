//! Whatever an actor sends, a message costs bounded work and leaves state that can be recovered.

use tempfile::TempDir;

use crate::store::Storage;
use crate::store::insert::{GAP_MAX, NUMBER_MAX};
use crate::store::window::reach;
use crate::testing::{LaneBuilder, item, one_step, options, table, taken};
use crate::{Chunk, InsertError, LaneKey, NewItem, Store, StoreOptions, TableOptions};

const SALT: u64 = 0xb0d5;

fn lane(lane: u32) -> LaneBuilder {
    LaneBuilder::new(LaneKey { actor: 1, incarnation: 1, lane })
}

/// The lane's next chunk: so many steps, and the one-step items among them.
fn chunk(lane: &mut LaneBuilder, steps: u64) -> Chunk {
    let begin = lane.next_step();
    (0..steps).for_each(|at| lane.push(&[at as u8], Some(taken(begin + at))));
    lane.chunk((begin..begin + steps - 1).map(|first| one_step(first, 1.0)))
}

#[test]
fn a_gap_in_sequence_numbers_is_bounded() {
    let mut store = Store::new(options(), 7).unwrap();
    let missing = GAP_MAX + 1;
    let refused = store.insert(&chunk(&mut lane(0).at(missing, 8), 4));
    assert_eq!(refused, Err(InsertError::Gap { sequence: missing, missing, most: GAP_MAX }));
    let mut largest = lane(0).at(GAP_MAX, 8);
    assert_eq!(store.insert(&chunk(&mut largest, 4)).unwrap().chunks_lost, GAP_MAX);
    // The bound holds from wherever the lane is.
    assert!(store.insert(&chunk(&mut largest, 4)).is_ok());
    let missing = lane(0).at(2 * GAP_MAX + 3, 1 << 20);
    assert!(matches!(store.insert(&chunk(&mut { missing }, 4)), Err(InsertError::Gap { .. })));
    assert_eq!(store.counters().lost_chunks, GAP_MAX);
}

#[test]
fn the_steps_of_missing_chunks_are_bounded() {
    let mut store = Store::new(options(), 7).unwrap();
    let refused = store.insert(&chunk(&mut lane(0).at(1, 1025), 4));
    assert_eq!(refused, Err(InsertError::NotContiguous { expected: 0, got: 1025 }));
    store.insert(&chunk(&mut lane(0).at(1, 1024), 4)).unwrap();
}

#[test]
fn no_number_of_a_chunk_can_damage_the_state() {
    let directory = TempDir::new().unwrap();
    let open =
        |is_new| Store::open(options(), 7, Storage::directory(directory.path(), SALT, is_new)).unwrap();
    let (mut store, _) = open(true);
    store.insert(&chunk(&mut lane(0), 4)).unwrap();
    let numbers = [GAP_MAX - 1, GAP_MAX, NUMBER_MAX - 5, NUMBER_MAX - 1, NUMBER_MAX, 1 << 63, u64::MAX];
    for (sequence, first_step) in numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b))) {
        for number in 1..4 {
            let good = chunk(&mut lane(number).at(1, 8), 4);
            let _ = store.insert(&Chunk { sequence, first_step, items: vec![], ..good });
        }
    }
    // As after gaps without end.
    store.counters.lost_chunks = NUMBER_MAX - 2;
    store.insert(&chunk(&mut lane(9).at(GAP_MAX, 4), 4)).unwrap();
    let counters = store.counters();
    assert_eq!(counters.lost_chunks, NUMBER_MAX - 1);
    assert!(counters.chunks > 4, "some of them are taken");
    drop(store);
    let (store, recovered) = open(false);
    assert!(recovered.is_whole(), "{recovered:?}");
    assert_eq!((store.counters(), recovered.chunks), (counters, counters.chunks));
}

/// The most items of a message.
const ITEMS: usize = 1024;

/// A ring of 16 MiB and one table, of so many items.
fn large_options(capacity: usize) -> StoreOptions {
    let tables = vec![TableOptions { capacity, ..table("main") }];
    StoreOptions { bytes_max: 16 << 20, tables, ..options() }
}

/// Chunks of one step each, without items.
fn insert_single_steps(store: &mut Store, lane: &mut LaneBuilder, count: u64) {
    for _ in 0..count {
        store.insert(&chunk(lane, 1)).unwrap();
    }
}

/// A chunk of one step and the most items, each of 255 steps that end there.
fn deep_chunk(lane: &mut LaneBuilder) -> Chunk {
    let number = lane.next_step();
    lane.push(&[1], Some(taken(number)));
    lane.chunk(vec![item(number - 255, 255); ITEMS])
}

/// The result of a change, and how many steps, chunks and items it visited.
fn walked<T>(store: &mut Store, change: impl FnOnce(&mut Store) -> T) -> (T, u64) {
    let before = store.walked();
    let result = change(store);
    (result, store.walked() - before)
}

#[test]
fn an_item_must_end_in_the_chunk_that_carries_it_and_have_few_steps() {
    let mut store = Store::new(StoreOptions { max_length: 3, ..options() }, 7).unwrap();
    let mut writer = lane(0);
    store.insert(&chunk(&mut writer, 10)).unwrap();
    let mut with = |given: NewItem| {
        let mut next = lane(0).at(1, 10);
        next.push(&[1], Some(taken(10)));
        store.insert(&next.chunk([given])).map(|inserted| inserted.items)
    };
    let earlier = InsertError::ItemOfEarlierChunk { first: 8, length: 1, first_step: 10 };
    assert_eq!(with(item(8, 1)), Err(earlier));
    // A length that no configuration allows is refused too, before anything is looked up.
    assert_eq!(with(item(8, 4)), Err(InsertError::ItemLength { first: 8, length: 4, most: 3 }));
    assert!(matches!(with(item(8, 255)), Err(InsertError::ItemLength { .. })));
    assert_eq!(with(item(8, 2)), Ok(1));
}

#[test]
fn a_chunk_costs_bounded_work_however_long_the_chain_before_it() {
    let mut work = Vec::new();
    for chain in [300, 4000] {
        let mut store = Store::new(large_options(10 * ITEMS), 7).unwrap();
        let mut writer = lane(0);
        insert_single_steps(&mut store, &mut writer, chain);
        let deep = deep_chunk(&mut writer);
        let (inserted, walked) = walked(&mut store, |store| store.insert(&deep).unwrap());
        assert_eq!(inserted.items, ITEMS as u64);
        work.push(walked);
    }
    assert_eq!(work[0], work[1]);
    assert!(work[0] <= 2 * reach(&options()) + 1, "{work:?}");
}

#[test]
fn evicting_and_reclaiming_deep_items_costs_bounded_work() {
    let mut store = Store::new(large_options(ITEMS), 7).unwrap();
    let mut writer = lane(0);
    insert_single_steps(&mut store, &mut writer, 4000);
    store.insert(&deep_chunk(&mut writer)).unwrap();
    // The table is full of items that span 255 chunks each.
    let (inserted, evicting) = walked(&mut store, |store| store.insert(&deep_chunk(&mut writer)).unwrap());
    assert_eq!((inserted.items, store.table_counters().evicted), (ITEMS as u64, ITEMS as u64));
    assert!(evicting <= 2 * reach(&options()) + 1, "{evicting}");
    // Large chunks displace all the others.
    let (mut number, frame) = (1, vec![1; options().packed_bytes_max()]);
    while store.table_counters().reclaimed_items < ITEMS as u64 {
        let mut large = lane(number);
        number += 1;
        (0..1000).for_each(|at| large.push(&frame, Some(taken(at))));
        let (chunks, items) = (store.chunks() as u64, store.table_counters().reclaimed_items);
        let (_, work) = walked(&mut store, |store| store.insert(&large.chunk([])).unwrap());
        let removed = store.table_counters().reclaimed_items - items;
        assert!(work <= chunks + removed, "{work} for {removed} items");
    }
}

#[test]
fn sampling_costs_no_more_than_the_frames_it_returns() {
    let mut store = Store::new(large_options(10 * ITEMS), 7).unwrap();
    let mut writer = lane(0);
    insert_single_steps(&mut store, &mut writer, 4000);
    store.insert(&deep_chunk(&mut writer)).unwrap();
    insert_single_steps(&mut store, &mut writer, 4000);
    let mut frames = 0;
    let ((), walked) = walked(&mut store, |store| {
        store.sample_at(0, &[0.1, 0.5, 0.9], |_, item| frames += item.frames().count() as u64).unwrap();
    });
    assert_eq!(frames, 3 * (255 + 1 + 3));
    assert!(walked <= 2 * frames, "{walked}");
}

#[test]
fn recovery_costs_bounded_work_per_chunk() {
    let directory = TempDir::new().unwrap();
    let open = |is_new| {
        let storage = Storage::directory(directory.path(), SALT, is_new);
        Store::open(large_options(100 * ITEMS), 7, storage).unwrap()
    };
    let (mut store, _) = open(true);
    let mut writer = lane(0);
    insert_single_steps(&mut store, &mut writer, 2000);
    for _ in 0..20 {
        store.insert(&deep_chunk(&mut writer)).unwrap();
    }
    let chunks = store.chunks() as u64;
    drop(store);
    let (store, recovered) = open(false);
    assert_eq!((recovered.items, recovered.is_whole()), (20 * ITEMS as u64, true));
    assert!(store.walked() <= chunks + 20 * (2 * reach(&options()) + 1), "{}", store.walked());
}

#[test]
fn chunks_without_items_are_charged_and_those_of_a_usual_run_are_not() {
    let mut store = Store::new(StoreOptions { max_length: 3, ..options() }, 7).unwrap();
    let mut writer = lane(0);
    // Windows of three steps: the first chunks complete nothing.
    for sequence in 0..2000u64 {
        let number = writer.next_step();
        writer.push(&[1], Some(taken(number)));
        let completed = number.checked_sub(3).map(|first| item(first, 3));
        assert_eq!(store.insert(&writer.chunk(completed)).unwrap().items, u64::from(sequence >= 3));
    }
    assert_eq!((store.counters().surcharge, store.inserts_charged()), (0, 1997));
    // An item pays for four steps, and the steps of 256 items are free.
    let mut writer = lane(1);
    insert_single_steps(&mut store, &mut writer, 4 * 256 + 4 * 1000);
    assert_eq!((store.counters().surcharge, store.inserts_charged()), (1000, 2997));
}
