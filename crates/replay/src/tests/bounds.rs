//! Whatever an actor sends, a message costs bounded work and leaves state that can be recovered.

use tempfile::TempDir;

use crate::store::Storage;
use crate::store::insert::{GAP_MAX, NUMBER_MAX};
use crate::testing::{LaneBuilder, one_step, options, taken};
use crate::{Chunk, InsertError, LaneKey, Store};

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
            let _ = store.insert(&Chunk { sequence, first_step, ..good });
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
