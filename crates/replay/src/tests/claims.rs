//! Small stories about one store, each named by what it claims.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use bytes::Bytes;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use crate::store::duplicate::DUPLICATE_DISTANCE_MAX;
use crate::store::lanes::LANES_MAX;
use crate::store::record::{self, Header, Record, StepRecord};
use crate::store::{Recovered, Storage};
use crate::testing::{final_observation, item, one_step, options, priority, step, table};
use crate::{
    Chunk, Draw, InitialPriority, InsertError, ItemKey, KEY_DISTANCE_MAX, LaneKey, NewItem, OptionsError,
    Remover, SampleError, Sampler, Step, Store, StoreOptions, TableOptions,
};

const LANE: LaneKey = LaneKey { actor: 1, incarnation: 10, lane: 0 };
const SALT: u64 = 0xfeed_beef;

fn store() -> Store {
    Store::new(options(), 7).unwrap()
}

/// A store of one table that differs from [`options`] in this.
fn store_with(change: impl Fn(&mut TableOptions)) -> Store {
    let mut options = options();
    change(&mut options.tables[0]);
    Store::new(options, 7).unwrap()
}

fn key(slot: u32, generation: u64) -> ItemKey {
    ItemKey { incarnation: 7, slot, generation }
}

/// Steps `first..first + count` of one endless episode.
fn steps(first: u64, count: u64) -> Vec<Step> {
    (first..first + count).map(|number| step(number, number == 0, None)).collect()
}

/// A chunk whose frames are made of their steps' numbers.
fn chunk(sequence: u64, first_step: u64, steps: Vec<Step>, items: Vec<NewItem>) -> Chunk {
    let frame = |(number, step): (u64, &Step)| vec![number as u8; step.frame_bytes as usize];
    let frames: Vec<u8> = (first_step..).zip(&steps).flat_map(frame).collect();
    Chunk { lane: LANE, sequence, first_step, steps, frames: Bytes::from(frames), items }
}

/// Five steps and the one-step items that they complete.
fn first_chunk() -> Chunk {
    five(0)
}

/// Chunk `sequence` of an endless episode of five steps each, with all one-step items.
fn five(sequence: u64) -> Chunk {
    let first = sequence * 5;
    chunk(
        sequence,
        first,
        steps(first, 5),
        (first.saturating_sub(1)..first + 4).map(|first| item(first, 1)).collect(),
    )
}

fn insert_fives(store: &mut Store, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        store.insert(&five(sequence)).unwrap();
    }
}

fn frames_of(store: &Store, key: ItemKey) -> Vec<u8> {
    store.item(0, key).unwrap().frame_pieces().flatten().copied().collect()
}

/// First steps of a table's items, oldest item first.
fn firsts(store: &Store, table: usize) -> Vec<u64> {
    let mut keys = store.newest(table, usize::MAX);
    keys.reverse();
    keys.into_iter().map(|key| store.item(table, key).unwrap().first_step()).collect()
}

/// First steps of what is drawn.
fn drawn(store: &mut Store, table: usize, count: usize) -> Vec<u64> {
    let mut firsts = Vec::new();
    store.sample_at(table, &vec![0.5; count], |_, view| firsts.push(view.first_step())).unwrap();
    firsts
}

fn reopened(store: Store, directory: &TempDir) -> (Store, Recovered) {
    let (options, incarnation) = (store.options().clone(), store.incarnation());
    drop(store);
    Store::open(options, incarnation, Storage::directory(directory.path(), SALT, false)).unwrap()
}

fn store_in(directory: &TempDir, options: StoreOptions) -> Store {
    Store::open(options, 7, Storage::directory(directory.path(), SALT, true)).unwrap().0
}

#[test]
fn a_state_at_an_episodes_start_repeats_the_first_frame() {
    let mut store = store();
    store.insert(&first_chunk()).unwrap();
    let view = store.item(0, key(1, 1)).unwrap();
    assert_eq!(frames_of(&store, key(1, 1)), [0, 1, 2]);
    assert!(view.state().eq([0, 0, 0, 1]));
    assert!(view.next_state().eq([0, 0, 1, 2]));
    assert_eq!(view.steps().map(|taken| taken.action).collect::<Vec<_>>(), [1]);
    assert_eq!(view.lane(), LANE);
    assert_eq!(view.key(), key(1, 1));
    assert_eq!(view.age_inserts(), 2);
}

#[test]
fn an_n_step_item_spans_chunks_and_stops_at_the_final_observation() {
    let mut store = store();
    store.insert(&chunk(0, 0, steps(0, 6), vec![])).unwrap();
    let rest = vec![step(6, false, Some(false)), final_observation()];
    store.insert(&chunk(1, 6, rest, vec![item(4, 3)])).unwrap();
    let view = store.item(0, key(0, 0)).unwrap();
    assert_eq!(frames_of(&store, key(0, 0)), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(view.frame_pieces().collect::<Vec<_>>(), [&[1, 2, 3, 4, 5][..], &[6, 7]]);
    assert!(view.state().eq([0, 1, 2, 3]));
    assert!(view.next_state().eq([3, 4, 5, 6]));
    assert!(view.steps().map(|taken| taken.truncated).eq([false, false, true]));
}

#[test]
fn a_stack_never_reaches_into_the_episode_before() {
    let mut store = store();
    let mut two = vec![step(0, true, None), step(1, false, Some(true)), final_observation()];
    two.extend([step(3, true, None), step(4, false, None)]);
    store.insert(&chunk(0, 0, two, vec![item(3, 1)])).unwrap();
    assert_eq!(frames_of(&store, key(0, 0)), [3, 4]);
}

#[test]
fn frames_reach_back_to_one_that_stands_alone() {
    let mut store = store();
    let mut many = steps(0, 20);
    many.iter_mut().enumerate().for_each(|(number, step)| step.key_frame = number % 8 == 0);
    store.insert(&chunk(0, 0, many, vec![item(11, 1), item(14, 1)])).unwrap();
    let view = store.item(0, key(0, 0)).unwrap();
    assert_eq!((view.lead(), frames_of(&store, key(0, 0))), (0, vec![8, 9, 10, 11, 12]));
    let view = store.item(0, key(1, 1)).unwrap();
    assert_eq!((view.lead(), frames_of(&store, key(1, 1))), (3, vec![8, 9, 10, 11, 12, 13, 14, 15]));
    assert!(view.state().eq([0, 1, 2, 3]));
    assert!(
        view.frames().map(|(_, alone)| alone).eq([true, false, false, false, false, false, false, false])
    );
}

#[test]
fn at_most_so_many_frames_follow_one_that_stands_alone() {
    let run = |first_key: bool, deltas: u64| {
        let mut many = steps(0, 1 + deltas);
        many.iter_mut().for_each(|step| step.key_frame = false);
        many[0].key_frame = first_key;
        let rest = many.split_off(10);
        let mut store = store();
        store.insert(&chunk(0, 0, many, vec![]))?;
        store.insert(&chunk(1, 10, rest, vec![item(deltas - 1, 1)]))
    };
    let most = u64::from(KEY_DISTANCE_MAX);
    assert_eq!(run(true, most).unwrap().items, 1);
    assert_eq!(run(true, most + 1), Err(InsertError::KeyFrame { step: most + 1 }));
    assert_eq!(run(false, most), Err(InsertError::KeyFrame { step: 0 }));
}

#[test]
fn after_a_gap_items_wait_for_a_frame_that_stands_alone() {
    let mut store = store();
    store.insert(&first_chunk()).unwrap();
    let mut many = steps(10, 12);
    many.iter_mut().enumerate().for_each(|(index, step)| step.key_frame = index == 5);
    // Stacks of four from 15 on: the state at 17 would need frame 14.
    let items = (10..21).map(|first| item(first, 1)).collect();
    let inserted = store.insert(&chunk(2, 10, many, items)).unwrap();
    assert_eq!((inserted.items, inserted.items_without_frames), (3, 8));
    assert_eq!(firsts(&store, 0)[4..], [18, 19, 20]);
}

#[test]
fn a_chunk_sent_twice_is_stored_once() {
    let mut store = store();
    assert!(!store.insert(&first_chunk()).unwrap().duplicate);
    assert!(store.insert(&first_chunk()).unwrap().duplicate);
    assert_eq!((store.tables()[0].len(), store.counters().duplicate_chunks), (4, 1));
}

/// The outcome of sending a chunk that is not stored: whether it was a duplicate, or why it was refused.
fn resent(store: &mut Store, chunk: &Chunk) -> Result<bool, InsertError> {
    let before = store.counters().chunks;
    let sent = store.insert(chunk).map(|inserted| inserted.duplicate);
    assert_eq!(store.counters().chunks, before);
    sent
}

#[test]
fn a_chunk_with_a_known_number_and_other_content_is_refused() {
    let directory = TempDir::new().unwrap();
    let mut store = store_in(&directory, options());
    store.insert(&five(0)).unwrap();
    // After a gap, and an item at 14 whose frame is missing.
    let after_gap = chunk(3, 15, steps(15, 5), vec![item(14, 1), item(18, 1)]);
    store.insert(&after_gap).unwrap();
    for _ in 0..2 {
        for known in [&five(0), &after_gap] {
            assert_eq!(resent(&mut store, known), Ok(true));
            let changes: [fn(&mut Chunk); 7] = [
                |chunk| chunk.first_step += 1,
                |chunk| chunk.frames = vec![99; chunk.frames.len()].into(),
                |chunk| chunk.steps[2].taken.as_mut().unwrap().reward += 1.0,
                |chunk| chunk.steps[2].key_frame ^= true,
                |chunk| chunk.steps[2].starts_episode ^= true,
                |chunk| chunk.steps.truncate(chunk.steps.len() - 1),
                |chunk| chunk.items.clear(),
            ];
            for (number, change) in changes.into_iter().enumerate() {
                let mut other = known.clone();
                change(&mut other);
                let conflict = InsertError::Conflict { lane: 0, sequence: known.sequence };
                assert_eq!(resent(&mut store, &other), Err(conflict), "change {number}");
            }
        }
        store = reopened(store, &directory).0;
    }
}

#[test]
fn finding_a_duplicate_takes_a_bounded_number_of_steps() {
    // Room for all of it.
    let tables = vec![TableOptions { capacity: 10_000, ..table("main") }];
    let mut store = Store::new(StoreOptions { bytes_max: 1 << 22, tables, ..options() }, 7).unwrap();
    let newest = 3 * DUPLICATE_DISTANCE_MAX;
    for sequence in 0..=newest {
        store.insert(&five(sequence)).unwrap();
    }
    let oldest = newest - DUPLICATE_DISTANCE_MAX;
    for sequence in oldest..=newest {
        assert_eq!(resent(&mut store, &five(sequence)), Ok(true));
    }
    let (expected, most) = (newest + 1, DUPLICATE_DISTANCE_MAX);
    let refused = InsertError::TooFarBehind { sequence: oldest - 1, expected, most };
    assert_eq!(resent(&mut store, &five(oldest - 1)), Err(refused));
}

#[test]
fn a_gap_is_counted_and_never_linked_across() {
    let mut store = store();
    store.insert(&first_chunk()).unwrap();
    // Chunks 1 and 2 with steps 5 to 9 are lost. Items at 4 and 10 would need their frames.
    let items = vec![item(4, 6), item(10, 1), item(12, 1), item(13, 1)];
    let inserted = store.insert(&chunk(3, 10, steps(10, 6), items)).unwrap();
    assert_eq!((inserted.chunks_lost, inserted.items, inserted.items_without_frames), (2, 1, 3));
    assert_eq!(frames_of(&store, key(4, 4)), [10, 11, 12, 13, 14]);
    assert_eq!(store.counters().lost_chunks, 2);
    // The lost chunk turning up late is too late.
    assert!(store.insert(&chunk(1, 5, steps(5, 5), vec![])).unwrap().duplicate);
}

#[test]
fn a_newer_incarnation_fences_older_ones_of_its_actor_only() {
    let mut store = store();
    let other = LaneKey { actor: 2, ..LANE };
    store.insert(&first_chunk()).unwrap();
    store.insert(&Chunk { lane: other, ..first_chunk() }).unwrap();
    let newer = LaneKey { incarnation: 11, lane: 5, ..LANE };
    store.insert(&Chunk { lane: newer, ..first_chunk() }).unwrap();
    let fenced = InsertError::Fenced { actor: 1, incarnation: 10, newest: 11 };
    assert_eq!(store.insert(&chunk(1, 5, steps(5, 1), vec![])), Err(fenced));
    store.insert(&Chunk { lane: other, ..chunk(1, 5, steps(5, 1), vec![item(4, 1)]) }).unwrap();
    assert_eq!(store.tables()[0].len(), 13, "what the older incarnation wrote stays");
}

#[test]
fn whatever_is_wrong_with_a_chunk_nothing_of_it_is_stored() {
    let mut store = store();
    store.insert(&first_chunk()).unwrap();
    let mut before = Vec::new();
    store.save(&mut before).unwrap();
    let mut refuse = |chunk: Chunk, expected: InsertError| {
        assert_eq!(store.insert(&chunk), Err(expected));
        let mut after = Vec::new();
        store.save(&mut after).unwrap();
        assert_eq!(before, after);
    };
    let good = |items: Vec<NewItem>| chunk(1, 5, steps(5, 2), items);
    let with = |change: fn(&mut Step)| {
        let mut made = steps(5, 2);
        change(&mut made[1]);
        chunk(1, 5, made, vec![item(4, 1)])
    };

    let late = chunk(1, 6, steps(6, 2), vec![]);
    refuse(late, InsertError::NotContiguous { expected: 5, got: 6 });
    let back = chunk(2, 4, steps(4, 2), vec![]);
    refuse(back, InsertError::NotContiguous { expected: 5, got: 4 });
    refuse(chunk(u64::MAX, 9, steps(9, 1), vec![]), InsertError::NumberTooLarge(u64::MAX));
    let far = Chunk { first_step: u64::MAX, ..chunk(2, 5, steps(5, 1), vec![]) };
    refuse(far, InsertError::NumberTooLarge(u64::MAX));
    refuse(with(|step| step.frame_bytes = 0), InsertError::FrameSize { step: 6, bytes: 0, most: 72 });
    refuse(with(|step| step.frame_bytes = 73), InsertError::FrameSize { step: 6, bytes: 73, most: 72 });
    let cut = Chunk { frames: Bytes::from_static(&[5]), ..good(vec![]) };
    refuse(cut, InsertError::Frames { declared: 2, got: 1 });
    let more = Chunk { frames: Bytes::from_static(&[5; 3]), ..good(vec![]) };
    refuse(more, InsertError::Frames { declared: 2, got: 3 });
    let large = Chunk { frames: Bytes::from(vec![0; 1 << 20]), ..good(vec![]) };
    refuse(large, InsertError::ChunkSize { bytes: (1 << 20) + 192, most: 1 << 20 });
    refuse(with(|step| step.taken.as_mut().unwrap().reward = f32::NAN), InsertError::NotFinite { step: 6 });
    let infinite = |step: &mut Step| step.taken.as_mut().unwrap().log_probability = f32::NEG_INFINITY;
    refuse(with(infinite), InsertError::NotFinite { step: 6 });
    refuse(with(|step| step.starts_episode = true), InsertError::OutOfEpisode { step: 6 });
    refuse(with(|step| step.taken = None), InsertError::OutOfEpisode { step: 6 });
    let elsewhere = NewItem { table: 1, ..item(4, 1) };
    refuse(good(vec![elsewhere]), InsertError::NoSuchTable { table: 1, tables: 1 });
    refuse(good(vec![item(5, 1), item(4, 1)]), InsertError::ItemOrder { first: 4, newest: 5 });
    refuse(good(vec![item(2, 1)]), InsertError::ItemOrder { first: 2, newest: 3 });
    let range = |first, length| InsertError::ItemRange { first, length, next_step: 7 };
    refuse(good(vec![item(6, 1)]), range(6, 1));
    refuse(good(vec![item(4, 3)]), range(4, 3));
    refuse(good(vec![item(4, 0)]), range(4, 0));
    refuse(good(vec![item(u64::MAX, 255)]), range(u64::MAX, 255));
    let earlier = InsertError::ItemOfEarlierChunk { first: 3, length: 1, first_step: 5 };
    refuse(good(vec![item(3, 1)]), earlier);
    refuse(chunk(1, 5, vec![], vec![]), InsertError::NoSteps);

    let mut ends = vec![step(5, false, Some(true)), final_observation(), step(7, true, None)];
    ends.push(step(8, false, None));
    let across = |first, length| chunk(1, 5, ends.clone(), vec![item(first, length)]);
    refuse(across(4, 3), InsertError::ItemCrossesEnd { first: 4, length: 3, step: 5 });
    refuse(across(6, 1), InsertError::ItemCrossesEnd { first: 6, length: 1, step: 6 });
    assert!(store.insert(&across(4, 2)).is_ok());
}

#[test]
fn the_first_step_of_a_lane_starts_an_episode() {
    let late = chunk(0, 0, vec![step(0, false, None)], vec![]);
    assert_eq!(store().insert(&late), Err(InsertError::OutOfEpisode { step: 0 }));
    let lost = chunk(4, 0, vec![step(0, false, None)], vec![]);
    assert_eq!(store().insert(&lost), Err(InsertError::OutOfEpisode { step: 0 }));
}

#[test]
fn a_full_table_keeps_the_newest_items_and_drops_chunks_with_the_oldest() {
    let mut store = store_with(|table| table.capacity = 8);
    insert_fives(&mut store, 0..100);
    let table = &store.tables()[0];
    assert_eq!((table.len(), table.counters().evicted), (8, 499 - 8));
    assert!(store.item(0, key(0, 0)).is_none(), "an old key does not mean its successor");
    assert_eq!(firsts(&store, 0), (491..499).collect::<Vec<_>>());
    // Steps 488 to 499 are needed, which lie in three chunks of five.
    assert_eq!((store.chunks(), store.bytes_used()), (3, 3 * record::bytes(5, 5, 5)));
}

#[test]
fn chunks_without_items_are_bounded_by_the_ring() {
    let mut store = Store::new(StoreOptions { bytes_max: 5000, ..options() }, 7).unwrap();
    let bytes = record::bytes(10, 0, 10);
    for sequence in 0..300 {
        store.insert(&chunk(sequence, sequence * 10, steps(sequence * 10, 10), vec![])).unwrap();
        assert!(store.bytes_used() <= 5000);
    }
    assert_eq!(store.chunks(), 5000 / bytes);
}

#[test]
fn when_the_ring_is_full_the_oldest_chunk_takes_its_items_along() {
    let bytes = record::bytes(5, 5, 5);
    let mut store = Store::new(StoreOptions { bytes_max: 4 * bytes, ..options() }, 7).unwrap();
    insert_fives(&mut store, 0..20);
    // Chunks 16 to 19 are there, with steps 80 to 99. The stack of the first item starts at 80.
    assert_eq!((store.chunks(), firsts(&store, 0)), (4, (83..99).collect()));
    let counters = store.tables()[0].counters();
    assert_eq!((counters.inserts, counters.reclaimed_items), (99, 99 - 16));
}

#[test]
fn lanes_are_bounded_and_a_restarted_actor_gives_its_back() {
    let directory = TempDir::new().unwrap();
    let mut store = store_in(&directory, options());
    let lane = |incarnation, lane| Chunk {
        lane: LaneKey { actor: 1, incarnation, lane },
        ..chunk(0, 0, steps(0, 1), vec![])
    };
    for number in 0..LANES_MAX as u32 {
        store.insert(&lane(10, number)).unwrap();
    }
    let full = InsertError::LanesFull { most: LANES_MAX };
    assert_eq!(store.insert(&lane(10, LANES_MAX as u32)), Err(full.clone()));
    let other = Chunk { lane: LaneKey { actor: 2, ..LANE }, ..first_chunk() };
    assert_eq!(store.insert(&other), Err(full.clone()));
    // The ring holds the chunks of some lanes, the marks hold the cursors of the others.
    let (mut store, recovered) = reopened(store, &directory);
    assert!(recovered.is_whole() && (1..LANES_MAX as u64).contains(&recovered.chunks), "{recovered:?}");
    assert_eq!(store.insert(&other), Err(full));
    for number in (0..LANES_MAX as u32).step_by(1000) {
        assert!(store.insert(&lane(10, number)).unwrap().duplicate);
    }
    assert!(store.insert(&lane(11, 0)).is_ok());
    assert!(store.insert(&other).is_ok());
}

#[test]
fn several_tables_look_at_the_same_frames() {
    let tables = vec![table("all"), TableOptions { sampler: Sampler::Lifo, capacity: 2, ..table("new") }];
    let mut store = Store::new(StoreOptions { tables, ..options() }, 7).unwrap();
    let both = |first| [item(first, 1), NewItem { table: 1, ..item(first, 2) }];
    let items = (0..3).flat_map(both).collect();
    let made = chunk(0, 0, steps(0, 5), items);
    let bytes = record::bytes(5, 6, 5);
    store.insert(&made).unwrap();
    assert_eq!(store.bytes_used(), bytes, "frames are stored once");
    assert_eq!((firsts(&store, 0), firsts(&store, 1)), (vec![0, 1, 2], vec![1, 2]));
    assert_eq!(drawn(&mut store, 1, 1), [2]);
    let key = store.newest(1, 1)[0];
    assert_eq!(store.remove(0, &store.newest(0, 9)), 3);
    let view = store.item(1, key).unwrap();
    assert_eq!(view.frame_pieces().flatten().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!((view.priority(), view.times_sampled()), (priority(1.0), 1));
    assert_eq!(store.table_counters().inserts, 6);
}

#[test]
fn queues_give_the_oldest_and_stacks_the_newest() {
    let run = |sampler, most| {
        let mut store = store_with(|table| (table.sampler, table.max_times_sampled) = (sampler, most));
        store.insert(&first_chunk()).unwrap();
        drawn(&mut store, 0, 6)
    };
    assert_eq!(run(Sampler::Fifo, 0), [0; 6]);
    assert_eq!(run(Sampler::Fifo, 1), [0, 1, 2, 3]);
    assert_eq!(run(Sampler::Fifo, 2), [0, 0, 1, 1, 2, 2]);
    assert_eq!(run(Sampler::Lifo, 0), [3; 6]);
    assert_eq!(run(Sampler::Lifo, 1), [3, 2, 1, 0]);
    assert_eq!(run(Sampler::Lifo, 3), [3, 3, 3, 2, 2, 2]);
}

#[test]
fn an_item_drawn_often_enough_goes_and_frees_its_chunk() {
    let mut store = store_with(|table| (table.sampler, table.max_times_sampled) = (Sampler::Uniform, 2));
    store.insert(&first_chunk()).unwrap();
    store.insert(&chunk(1, 5, steps(5, 5), vec![item(8, 1)])).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let draws = store.sample(0, 100, false, &mut rng).unwrap();
    assert_eq!((draws.len(), store.tables()[0].counters().used_up), (10, 5));
    assert!((0..5).all(|number| draws.iter().filter(|draw| draw.key.generation == number).count() == 2));
    assert_eq!(store.chunks(), 1, "the newest chunk of a lane stays");
    assert_eq!(store.sample(0, 1, false, &mut rng), Err(SampleError::Empty));
}

#[test]
fn draws_that_were_made_count_even_if_the_mass_runs_out() {
    let mut store = store_with(|table| table.max_times_sampled = 1);
    store
        .insert(&chunk(0, 0, steps(0, 4), vec![one_step(0, 1.0), one_step(1, 0.0), one_step(2, 2.0)]))
        .unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    assert_eq!(store.sample(0, 9, false, &mut rng).unwrap().len(), 2);
    assert_eq!(store.tables()[0].counters().samples, 2);
    assert_eq!(store.sample(0, 1, false, &mut rng), Err(SampleError::NoMass));
}

#[test]
fn the_lowest_priority_makes_room_the_oldest_of_equals_first() {
    let remover = |table: &mut TableOptions| (table.capacity, table.remover) = (3, Remover::LowestPriority);
    let mut store = store_with(remover);
    store
        .insert(&chunk(0, 0, steps(0, 4), vec![one_step(0, 2.0), one_step(1, 1.0), one_step(2, 1.0)]))
        .unwrap();
    store.insert(&chunk(1, 4, steps(4, 1), vec![one_step(3, 5.0)])).unwrap();
    assert_eq!(firsts(&store, 0), [0, 2, 3]);
    // The lowest one was raised, so another one is.
    store.update_priorities(0, &[(store.newest(0, 2)[1], priority(9.0))]);
    store.insert(&chunk(2, 5, steps(5, 2), vec![one_step(4, 0.0), one_step(5, 0.0)])).unwrap();
    assert_eq!(firsts(&store, 0), [2, 3, 5], "an item can be the lowest as soon as it comes");
}

/// A learner that always answers the same would otherwise fill the memory.
#[test]
fn the_same_priority_again_and_again_takes_no_room_and_no_time() {
    let mut store = store_with(|table| table.remover = Remover::LowestPriority);
    store.insert(&first_chunk()).unwrap();
    let keys = store.newest(0, 4);
    let start = std::time::Instant::now();
    for round in 0..20_000 {
        let values = [1.0, f64::from(round % 2), 2.0, 2.0];
        let updates: Vec<_> = keys.iter().copied().zip(values.map(priority)).collect();
        store.update_priorities(0, &updates);
    }
    assert!(store.tables()[0].lowest_len() < 100);
    // A few milliseconds; with a heap that only grows it would be minutes.
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn a_capacity_can_change_while_the_store_is_used() {
    let directory = TempDir::new().unwrap();
    let mut options = options();
    options.tables[0].capacity = 10;
    let mut store = store_in(&directory, options);
    insert_fives(&mut store, 0..4);
    assert_eq!(firsts(&store, 0), (9..19).collect::<Vec<_>>());
    store.set_capacity(0, 4).unwrap();
    assert_eq!((firsts(&store, 0), store.tables()[0].counters().evicted), ((15..19).collect(), 15));
    store.insert(&five(4)).unwrap();
    assert_eq!(firsts(&store, 0), (20..24).collect::<Vec<_>>());
    // What lies in slots beyond the capacity is saved, too.
    let mut bytes = Vec::new();
    store.save(&mut bytes).unwrap();
    let loaded = Store::load(store.options().clone(), 7, &mut &bytes[..]).unwrap();
    assert_eq!(firsts(&loaded, 0), (20..24).collect::<Vec<_>>());
    store.set_capacity(0, 100).unwrap();
    insert_fives(&mut store, 5..30);
    assert_eq!(firsts(&store, 0), (49..149).collect::<Vec<_>>());
    assert_eq!(store.tables()[0].mass(), 100.0);
    let (mut store, recovered) = reopened(store, &directory);
    assert!(recovered.is_whole());
    assert_eq!(firsts(&store, 0), (49..149).collect::<Vec<_>>());
    assert_eq!(
        store.set_capacity(0, 0).unwrap_err().to_string(),
        "capacity must be from 1 to 4294967294, got 0"
    );
    assert_eq!(store.tables()[0].options().capacity, 100);
}

#[test]
fn a_smaller_capacity_lets_the_remover_choose() {
    let run = |remover| {
        let mut store = store_with(|table| table.remover = remover);
        let items = vec![one_step(0, 3.0), one_step(1, 1.0), one_step(2, 2.0), one_step(3, 4.0)];
        store.insert(&chunk(0, 0, steps(0, 5), items)).unwrap();
        store.set_capacity(0, 2).unwrap();
        firsts(&store, 0)
    };
    assert_eq!(run(Remover::Fifo), [2, 3]);
    assert_eq!(run(Remover::Lifo), [0, 1]);
    assert_eq!(run(Remover::LowestPriority), [0, 3]);
}

#[test]
fn a_lane_whose_chunks_are_all_gone_still_refuses_duplicates_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let bytes_max = 4 * record::bytes(5, 5, 5);
    let mut store = store_in(&directory, StoreOptions { bytes_max, ..options() });
    let other = |sequence| Chunk { lane: LaneKey { actor: 2, ..LANE }, ..five(sequence) };
    store.insert(&five(0)).unwrap();
    store.insert(&five(1)).unwrap();
    for sequence in 0..9 {
        store.insert(&other(sequence)).unwrap();
    }
    for _ in 0..3 {
        let (again, recovered) = reopened(store, &directory);
        store = again;
        assert!(recovered.is_whole());
        assert!(store.insert(&five(0)).unwrap().duplicate && store.insert(&five(1)).unwrap().duplicate);
        assert!(store.insert(&other(8)).unwrap().duplicate);
    }
    // It resumes where it was, except for the frames: the item at 9 and the stacks of the next three need some.
    let inserted = store.insert(&five(2)).unwrap();
    assert_eq!((inserted.chunks_lost, inserted.items, inserted.items_without_frames), (0, 1, 4));
}

#[test]
fn a_fence_holds_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let bytes_max = 4 * record::bytes(5, 5, 5);
    let mut store = store_in(&directory, StoreOptions { bytes_max, ..options() });
    let newer = LaneKey { incarnation: 11, ..LANE };
    let other = |sequence| Chunk { lane: LaneKey { actor: 2, ..LANE }, ..five(sequence) };
    store.insert(&first_chunk()).unwrap();
    store.insert(&Chunk { lane: newer, ..first_chunk() }).unwrap();
    let fenced = InsertError::Fenced { actor: 1, incarnation: 10, newest: 11 };
    // First by a chunk, then by a mark.
    for round in 0..8 {
        store = reopened(store, &directory).0;
        assert_eq!(store.insert(&five(1)), Err(fenced.clone()));
        assert!(store.insert(&Chunk { lane: newer, ..first_chunk() }).unwrap().duplicate);
        store.insert(&other(round)).unwrap();
    }
}

#[test]
fn the_largest_priority_of_other_shards_survives_a_restart() {
    let directory = TempDir::new().unwrap();
    let mut store = store_in(&directory, options());
    store.raise_largest_priority(0, priority(20.0));
    let (store, _) = reopened(store, &directory);
    assert_eq!(store.tables()[0].largest_priority(), priority(20.0));
}

#[test]
fn another_incarnation_counts_from_nothing_and_keeps_the_items() {
    let directory = TempDir::new().unwrap();
    let mut store = store_in(&directory, options());
    insert_fives(&mut store, 0..3);
    let key = store.newest(0, 1)[0];
    drop(store);
    let storage = Storage::directory(directory.path(), SALT, false);
    let (mut store, recovered) = Store::open(options(), 8, storage).unwrap();
    assert!(recovered.is_whole());
    assert_eq!((store.counters().chunks, store.table_counters().inserts), (0, 0));
    assert!(store.item(0, key).is_none());
    assert_eq!(store.newest(0, 1)[0], ItemKey { incarnation: 8, ..key });
    assert!(store.insert(&five(2)).unwrap().duplicate);
    store.start_incarnation(9);
    assert_eq!((store.counters().duplicate_chunks, store.incarnation()), (0, 9));
    assert_eq!(firsts(&store, 0), (0..14).collect::<Vec<_>>());
}

/// A frame with the bytes of a record, at a place where one could begin, in a chunk whose own header is broken.
#[test]
fn a_frame_that_looks_like_a_record_is_not_found() {
    let open = |salt: u64| {
        let directory = TempDir::new().unwrap();
        let options = StoreOptions { frame_bytes: 1000, bytes_max: 1 << 14, ..options() };
        let mut store = store_in(&directory, options.clone());
        let mut forged = vec![0; 192];
        let header = Header { salt, number: 9, sequence: 4, steps: 1, ..bytemuck::Zeroable::zeroed() };
        record::write(&mut forged, header, &[StepRecord::new(None, 1, 0, 0)], &[], &[1]);
        let mut hostile = steps(0, 1);
        hostile[0].frame_bytes = 192;
        store.insert(&Chunk { frames: Bytes::from(forged), ..chunk(0, 0, hostile, vec![]) }).unwrap();
        drop(store);
        let path = directory.path().join("ring");
        let mut ring = std::fs::read(&path).unwrap();
        assert!(Record::find(aligned(&ring[..512]).as_ref(), SALT).is_some());
        // Bit 0 of the count of steps.
        ring[80] ^= 1;
        std::fs::write(&path, ring).unwrap();
        Store::open(options, 7, Storage::directory(directory.path(), SALT, false)).unwrap()
    };
    let (store, recovered) = open(SALT ^ 1);
    assert_eq!((store.chunks(), recovered.chunks, recovered.damaged_chunks), (0, 0, 1));
    // A writer that knows the secret could.
    assert_eq!(open(SALT).1.chunks, 1);
}

/// The same bytes in memory that records may lie in.
fn aligned(bytes: &[u8]) -> impl AsRef<[u8]> {
    struct Aligned(Vec<[u64; 8]>);
    impl AsRef<[u8]> for Aligned {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    Aligned(bytes.chunks_exact(64).map(bytemuck::pod_read_unaligned).collect())
}

#[test]
fn largest_is_the_largest_seen_by_insert_or_update() {
    let mut store = store_with(|table| table.first_priority = 0.1);
    let largest = |first| NewItem { priority: InitialPriority::Largest, ..item(first, 1) };
    store.insert(&chunk(0, 0, steps(0, 4), vec![largest(0), one_step(1, 5.0), largest(2)])).unwrap();
    let stored = |store: &Store, slot| store.item(0, key(slot, slot.into())).unwrap().priority().get();
    assert_eq!([0, 1, 2].map(|slot| stored(&store, slot)), [0.1, 5.0, 5.0]);
    store.update_priorities(0, &[(key(0, 0), priority(9.0)), (key(1, 7), priority(99.0))]);
    store.insert(&chunk(1, 4, steps(4, 1), vec![largest(3)])).unwrap();
    assert_eq!(stored(&store, 3), 9.0, "a stale update is ignored");
    store.raise_largest_priority(0, priority(20.0));
    store.raise_largest_priority(0, priority(2.0));
    assert_eq!(store.tables()[0].largest_priority(), priority(20.0));
}

#[test]
fn the_constant_is_added_before_the_exponent() {
    let mut store = store_with(|table| (table.priority_constant, table.priority_exponent) = (0.5, 2.0));
    store.insert(&chunk(0, 0, steps(0, 2), vec![item(0, 1)])).unwrap();
    assert_eq!(store.tables()[0].mass(), 2.25);
    store.set_priority_exponent(0, 1.0).unwrap();
    assert_eq!(store.tables()[0].mass(), 1.5);
    let error = OptionsError::Number { name: "priority_exponent", value: -1.0 };
    assert_eq!(store.set_priority_exponent(0, -1.0), Err(error));
    assert_eq!((store.tables()[0].mass(), store.options().tables[0].priority_exponent), (1.5, 1.0));
}

#[test]
fn nothing_to_draw_is_an_error_that_says_why() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut store = store();
    assert_eq!(store.sample(0, 1, false, &mut rng), Err(SampleError::Empty));
    store.insert(&first_chunk()).unwrap();
    let zeros: Vec<_> = (0..4).map(|slot| (key(slot, slot.into()), priority(0.0))).collect();
    assert_eq!(store.update_priorities(0, &zeros).applied, 4);
    assert_eq!(store.sample(0, 1, false, &mut rng), Err(SampleError::NoMass));
    store.update_priorities(0, &[(key(2, 2), priority(1e-300))]);
    let draws = store.sample(0, 9, true, &mut rng).unwrap();
    assert!(draws.iter().all(|draw| draw.key == key(2, 2) && draw.probability == 1.0));
}

#[test]
fn the_largest_numbers_still_give_probabilities() {
    let mut store = store_with(|table| table.priority_exponent = 3.0);
    store.insert(&first_chunk()).unwrap();
    let huge: Vec<_> = (0..4).map(|slot| (key(slot, slot.into()), priority(f64::MAX))).collect();
    store.update_priorities(0, &huge);
    let draws = store.sample(0, 100, false, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    assert!(draws.iter().all(|draw| draw.probability == 0.25));
}

#[test]
fn a_look_counts_everything_once() {
    let mut store = store();
    store
        .insert(&chunk(
            0,
            0,
            steps(0, 5),
            vec![one_step(0, 0.0), one_step(1, 0.75), one_step(2, 1.0), one_step(3, 1e9)],
        ))
        .unwrap();
    drawn(&mut store, 0, 3);
    let inspection = store.inspect(0, 2);
    assert_eq!(inspection.top.iter().map(|key| key.generation).collect::<Vec<_>>(), [3, 2]);
    let bucket = |bound: f64| inspection.priorities.bounds.iter().position(|&at| at == bound).unwrap();
    let counts = &inspection.priorities.counts;
    assert_eq!(counts.len(), inspection.priorities.bounds.len());
    assert_eq!((counts[0], counts[bucket(1.0)], counts[bucket(2.0)]), (1, 1, 1));
    assert_eq!((counts.last(), counts.iter().sum::<u64>()), (Some(&1), 4));
    // Ages 3, 2, 1 and 0; the draws all were of the largest.
    assert_eq!(inspection.ages.counts[..4], [1, 1, 2, 0]);
    assert_eq!((inspection.times_sampled.counts[0], inspection.times_sampled.counts[2]), (3, 1));
    assert_eq!(store.inspect(0, 100).top.len(), 4);
    assert_eq!(store.inspect(0, 0).top, []);
}

/// 120,000 draws of 30 items, with holes that reclaim made. 29 degrees of freedom: 58.3 is
/// the 99.9th percentile of chi-square. Stratified draws stay below it more easily still.
#[test]
fn items_are_drawn_in_proportion_to_their_weights() {
    for sampler in [Sampler::Uniform, Sampler::Proportional] {
        for stratified in [false, true] {
            let chi_square = chi_square_of_draws(sampler, stratified);
            assert!(chi_square < 58.3, "{sampler:?} {stratified} {chi_square}");
        }
    }
}

fn chi_square_of_draws(sampler: Sampler, stratified: bool) -> f64 {
    // Two lanes take turns; the ring holds the chunks of 30 items and a few more.
    let bytes_max = 18 * record::bytes(2, 2, 2);
    let tables = vec![TableOptions { sampler, ..table("main") }];
    let mut store = Store::new(StoreOptions { bytes_max, tables, ..options() }, 7).unwrap();
    for sequence in 0..40u64 {
        for lane in 0..2 {
            let first = sequence * 2;
            let items =
                (first.saturating_sub(1)..first + 1).map(|at| one_step(at, 1.0 + (at % 7) as f64)).collect();
            let mut chunk = chunk(sequence, first, steps(first, 2), items);
            chunk.lane.lane = lane;
            store.insert(&chunk).unwrap();
        }
    }
    assert!(store.tables()[0].counters().reclaimed_items > 0);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut seen = std::collections::HashMap::<ItemKey, (f64, f64)>::new();
    let rounds = 4_000;
    for _ in 0..rounds {
        for Draw { key, probability, .. } in store.sample(0, 30, stratified, &mut rng).unwrap() {
            seen.entry(key).or_insert((0.0, probability)).0 += 1.0;
        }
    }
    assert_eq!(seen.len(), store.tables()[0].len());
    assert!((28..=34).contains(&seen.len()), "{} items", seen.len());
    let draws = f64::from(rounds) * 30.0;
    let total: f64 = seen.values().map(|(_, probability)| probability).sum();
    assert!((total - 1.0).abs() < 1e-12);
    let term = |&(count, p): &(f64, f64)| (count - draws * p).powi(2) / (draws * p);
    seen.values().map(term).sum()
}

#[test]
fn options_that_cannot_work_are_refused() {
    let check = |change: fn(&mut StoreOptions), expected: OptionsError| {
        let mut options = options();
        change(&mut options);
        assert_eq!(Store::new(options, 7).err(), Some(expected));
    };
    check(|o| o.tables[0].capacity = 0, OptionsError::Capacity(0));
    check(|o| o.stack = 0, OptionsError::Stack(0));
    check(|o| o.stack = 256, OptionsError::Stack(256));
    check(|o| o.frame_bytes = 0, OptionsError::FrameBytes(0));
    check(|o| o.bytes_max = 703, OptionsError::BytesMax { given: 703, least: 704 });
    check(|o| o.tables.clear(), OptionsError::Tables(0));
    check(|o| o.tables = vec![table("a"); 5], OptionsError::Tables(5));
    check(|o| o.tables = vec![table("a"); 2], OptionsError::Name("a".into()));
    check(|o| o.tables[0].name = "a/b".into(), OptionsError::Name("a/b".into()));
    check(|o| o.tables[0].name = "a".repeat(65), OptionsError::Name("a".repeat(65)));
    let number = |name, value| OptionsError::Number { name, value };
    check(|o| o.tables[0].priority_constant = -0.5, number("priority_constant", -0.5));
    check(|o| o.tables[0].first_priority = f64::INFINITY, number("first_priority", f64::INFINITY));
    let most = usize::MAX / 2;
    check(|o| o.bytes_max = usize::MAX / 2, OptionsError::Memory { bytes: most });
}

#[test]
fn names_of_samplers_and_removers_are_read_back() {
    for sampler in Sampler::ALL {
        assert_eq!(sampler.name().parse(), Ok(sampler));
    }
    for remover in Remover::ALL {
        assert_eq!(remover.name().parse(), Ok(remover));
    }
    let error = "best".parse::<Sampler>().unwrap_err().to_string();
    assert_eq!(error, "unknown sampler \"best\", use one of: proportional, uniform, fifo, lifo");
}
