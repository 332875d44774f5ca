//! Small stories about one table, each named by what it claims.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::options;
use super::writer::{final_observation, item, priority, step};
use crate::lane::LANES_MAX;
use crate::{
    Chunk, Draw, InitialPriority, InsertError, ItemKey, LaneKey, NewItem, OptionsError, SampleError, Sampler,
    Step, Table, TableOptions,
};

const LANE: LaneKey = LaneKey { actor: 1, incarnation: 10, lane: 0 };

fn table() -> Table {
    Table::new(options()).unwrap()
}

fn key(slot: u32, generation: u64) -> ItemKey {
    ItemKey { incarnation: 7, slot, generation }
}

/// Steps `first..first + count` of one endless episode.
fn steps(first: u64, count: u64) -> Vec<Step> {
    (first..first + count).map(|number| step(number, number == 0, None)).collect()
}

fn chunk(sequence: u64, first_step: u64, steps: Vec<Step>, items: Vec<NewItem>) -> Chunk {
    Chunk { lane: LANE, sequence, first_step, steps, items }
}

/// Five steps and the one-step items that they complete.
fn first_chunk() -> Chunk {
    chunk(0, 0, steps(0, 5), (0..4).map(|first| item(first, 1)).collect())
}

fn frames_of(table: &Table, key: ItemKey) -> Vec<u8> {
    table.item(key).unwrap().frames().flatten().copied().collect()
}

#[test]
fn a_state_at_an_episodes_start_repeats_the_first_frame() {
    let mut table = table();
    table.insert(first_chunk()).unwrap();
    let view = table.item(key(1, 1)).unwrap();
    assert_eq!(frames_of(&table, key(1, 1)), [0, 1, 2]);
    assert!(view.state().eq([0, 0, 0, 1]));
    assert!(view.next_state().eq([0, 0, 1, 2]));
    assert_eq!(view.steps().map(|taken| taken.action).collect::<Vec<_>>(), [1]);
    assert_eq!(view.lane(), LANE);
    assert_eq!(view.key(), key(1, 1));
    assert_eq!(view.age_inserts(), 2);
}

#[test]
fn an_n_step_item_spans_chunks_and_stops_at_the_final_observation() {
    let mut table = table();
    table.insert(chunk(0, 0, steps(0, 6), vec![])).unwrap();
    let rest = vec![step(6, false, Some(false)), final_observation(7)];
    table.insert(chunk(1, 6, rest, vec![item(4, 3)])).unwrap();
    let view = table.item(key(0, 0)).unwrap();
    assert_eq!(frames_of(&table, key(0, 0)), [1, 2, 3, 4, 5, 6, 7]);
    assert!(view.state().eq([0, 1, 2, 3]));
    assert!(view.next_state().eq([3, 4, 5, 6]));
    assert!(view.steps().map(|taken| taken.truncated).eq([false, false, true]));
}

#[test]
fn a_stack_never_reaches_into_the_episode_before() {
    let mut table = table();
    let mut two = vec![step(0, true, None), step(1, false, Some(true)), final_observation(2)];
    two.extend([step(3, true, None), step(4, false, None)]);
    table.insert(chunk(0, 0, two, vec![item(3, 1)])).unwrap();
    assert_eq!(frames_of(&table, key(0, 0)), [3, 4]);
}

#[test]
fn a_chunk_sent_twice_is_stored_once() {
    let mut table = table();
    assert!(!table.insert(first_chunk()).unwrap().duplicate);
    assert!(table.insert(first_chunk()).unwrap().duplicate);
    assert_eq!((table.len(), table.counters().duplicate_chunks), (4, 1));
}

#[test]
fn a_gap_is_counted_and_never_linked_across() {
    let mut table = table();
    table.insert(first_chunk()).unwrap();
    // Chunks 1 and 2 with steps 5 to 9 are lost. Items at 4 and 10 would need their frames.
    let items = vec![item(4, 6), item(10, 1), item(12, 1), item(13, 1)];
    let inserted = table.insert(chunk(3, 10, steps(10, 6), items)).unwrap();
    assert_eq!((inserted.chunks_lost, inserted.items, inserted.items_without_frames), (2, 1, 3));
    assert_eq!(frames_of(&table, key(4, 4)), [10, 11, 12, 13, 14]);
    assert_eq!(table.counters().lost_chunks, 2);
    // The lost chunk turning up late is too late.
    assert!(table.insert(chunk(1, 5, steps(5, 5), vec![])).unwrap().duplicate);
}

#[test]
fn a_newer_incarnation_fences_older_ones_of_its_actor_only() {
    let mut table = table();
    let other = LaneKey { actor: 2, ..LANE };
    table.insert(first_chunk()).unwrap();
    table.insert(Chunk { lane: other, ..first_chunk() }).unwrap();
    let newer = LaneKey { incarnation: 11, lane: 5, ..LANE };
    table.insert(Chunk { lane: newer, ..first_chunk() }).unwrap();
    let fenced = InsertError::Fenced { actor: 1, incarnation: 10, newest: 11 };
    assert_eq!(table.insert(chunk(1, 5, steps(5, 1), vec![])), Err(fenced));
    table.insert(Chunk { lane: other, ..chunk(1, 5, steps(5, 1), vec![item(4, 1)]) }).unwrap();
    assert_eq!(table.len(), 13, "what the older incarnation wrote stays");
}

#[test]
fn whatever_is_wrong_with_a_chunk_nothing_of_it_is_stored() {
    let mut table = table();
    table.insert(first_chunk()).unwrap();
    let mut before = Vec::new();
    table.save(&mut before).unwrap();
    let mut refuse = |chunk: Chunk, expected: InsertError| {
        assert_eq!(table.insert(chunk), Err(expected));
        let mut after = Vec::new();
        table.save(&mut after).unwrap();
        assert_eq!(before, after);
    };
    let good = |items: Vec<NewItem>| chunk(1, 5, steps(5, 2), items);
    let with = |change: fn(&mut Step)| {
        let mut chunk = good(vec![item(4, 1)]);
        change(&mut chunk.steps[1]);
        chunk
    };

    let late = chunk(1, 6, steps(6, 2), vec![]);
    refuse(late, InsertError::NotContiguous { expected: 5, got: 6 });
    let back = chunk(2, 4, steps(4, 2), vec![]);
    refuse(back, InsertError::NotContiguous { expected: 5, got: 4 });
    refuse(chunk(u64::MAX, 9, steps(9, 1), vec![]), InsertError::NumberTooLarge(u64::MAX));
    refuse(chunk(2, u64::MAX, steps(5, 1), vec![]), InsertError::NumberTooLarge(u64::MAX));
    refuse(with(|step| step.frame = Box::new([])), InsertError::FrameSize { step: 6, bytes: 0, most: 72 });
    refuse(with(|step| step.frame = [0; 73].into()), InsertError::FrameSize { step: 6, bytes: 73, most: 72 });
    refuse(with(|step| step.taken.as_mut().unwrap().reward = f32::NAN), InsertError::NotFinite { step: 6 });
    let infinite = |step: &mut Step| step.taken.as_mut().unwrap().log_probability = f32::NEG_INFINITY;
    refuse(with(infinite), InsertError::NotFinite { step: 6 });
    refuse(with(|step| step.starts_episode = true), InsertError::OutOfEpisode { step: 6 });
    refuse(with(|step| step.taken = None), InsertError::OutOfEpisode { step: 6 });
    refuse(good(vec![item(5, 1), item(4, 1)]), InsertError::ItemOrder { first: 4, newest: 5 });
    refuse(good(vec![item(2, 1)]), InsertError::ItemOrder { first: 2, newest: 3 });
    let range = |first, length| InsertError::ItemRange { first, length, next_step: 7 };
    refuse(good(vec![item(6, 1)]), range(6, 1));
    refuse(good(vec![item(4, 3)]), range(4, 3));
    refuse(good(vec![item(4, 0)]), range(4, 0));
    refuse(good(vec![item(u64::MAX, 255)]), range(u64::MAX, 255));

    let mut ends = vec![step(5, false, Some(true)), final_observation(6), step(7, true, None)];
    ends.push(step(8, false, None));
    let across = |first, length| chunk(1, 5, ends.clone(), vec![item(first, length)]);
    refuse(across(4, 3), InsertError::ItemCrossesEnd { first: 4, length: 3, step: 5 });
    refuse(across(6, 1), InsertError::ItemCrossesEnd { first: 6, length: 1, step: 6 });
    assert!(table.insert(across(4, 2)).is_ok());
}

#[test]
fn the_first_step_of_a_lane_starts_an_episode() {
    let late = chunk(0, 0, vec![step(0, false, None)], vec![]);
    assert_eq!(table().insert(late), Err(InsertError::OutOfEpisode { step: 0 }));
    let lost = chunk(4, 0, vec![step(0, false, None)], vec![]);
    assert_eq!(table().insert(lost), Err(InsertError::OutOfEpisode { step: 0 }));
}

#[test]
fn a_full_table_keeps_the_newest_items_and_forgets_frames_with_them() {
    let mut table = Table::new(TableOptions { capacity: 8, ..options() }).unwrap();
    table.insert(first_chunk()).unwrap();
    for sequence in 1..100 {
        let first = sequence * 5;
        let items = (first - 1..first + 4).map(|first| item(first, 1)).collect();
        table.insert(chunk(sequence, first, steps(first, 5), items)).unwrap();
    }
    assert_eq!((table.len(), table.counters().evicted), (8, 499 - 8));
    assert!(table.item(key(0, 0)).is_none(), "an old key does not mean its successor");
    assert!(table.item(key(2, 498)).is_some());
    // Eight items, three frames before them and the newest one after.
    assert_eq!((table.steps_stored(), table.frame_bytes_used()), (12, 12));
}

#[test]
fn steps_without_items_are_bounded() {
    let mut table = Table::new(TableOptions { capacity: 1, ..options() }).unwrap();
    for sequence in 0..300 {
        table.insert(chunk(sequence, sequence * 10, steps(sequence * 10, 10), vec![])).unwrap();
    }
    assert_eq!(table.steps_stored(), table.options().steps_max());
    assert_eq!(table.options().steps_max(), 1028);
}

#[test]
fn lanes_are_bounded_and_a_restarted_actor_gives_its_back() {
    let mut table = table();
    let lane = |incarnation, lane| Chunk {
        lane: LaneKey { actor: 1, incarnation, lane },
        ..chunk(0, 0, vec![], vec![])
    };
    for number in 0..LANES_MAX as u32 {
        table.insert(lane(10, number)).unwrap();
    }
    let full = InsertError::LanesFull { most: LANES_MAX };
    assert_eq!(table.insert(lane(10, LANES_MAX as u32)), Err(full.clone()));
    let other = Chunk { lane: LaneKey { actor: 2, ..LANE }, ..first_chunk() };
    assert_eq!(table.insert(other.clone()), Err(full));
    assert!(table.insert(lane(11, 0)).is_ok());
    assert!(table.insert(other).is_ok());
}

#[test]
fn largest_is_the_largest_seen_by_insert_or_update() {
    let mut table = Table::new(TableOptions { first_priority: 0.1, ..options() }).unwrap();
    let largest = |first| NewItem { first, length: 1, priority: InitialPriority::Largest };
    let of = |first, p| NewItem { first, length: 1, priority: InitialPriority::Of(priority(p)) };
    table.insert(chunk(0, 0, steps(0, 4), vec![largest(0), of(1, 5.0), largest(2)])).unwrap();
    let stored = |table: &Table, slot| table.item(key(slot, slot.into())).unwrap().priority().get();
    assert_eq!([0, 1, 2].map(|slot| stored(&table, slot)), [0.1, 5.0, 5.0]);
    table.update_priorities(&[(key(0, 0), priority(9.0)), (key(1, 7), priority(99.0))]);
    table.insert(chunk(1, 4, steps(4, 1), vec![largest(3)])).unwrap();
    assert_eq!(stored(&table, 3), 9.0, "a stale update has no say");
    table.raise_largest_priority(priority(20.0));
    table.raise_largest_priority(priority(2.0));
    assert_eq!(table.largest_priority(), priority(20.0));
}

#[test]
fn the_constant_is_added_before_the_exponent() {
    let options = TableOptions { priority_constant: 0.5, priority_exponent: 2.0, ..options() };
    let mut table = Table::new(options).unwrap();
    table.insert(chunk(0, 0, steps(0, 2), vec![item(0, 1)])).unwrap();
    assert_eq!(table.mass(), 2.25);
    table.set_priority_exponent(1.0).unwrap();
    assert_eq!(table.mass(), 1.5);
    let error = OptionsError::Number { name: "priority_exponent", value: -1.0 };
    assert_eq!(table.set_priority_exponent(-1.0), Err(error));
    assert_eq!(table.mass(), 1.5);
}

#[test]
fn nothing_to_draw_is_an_error_that_says_why() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut table = table();
    assert_eq!(table.sample(1, false, &mut rng), Err(SampleError::Empty));
    table.insert(first_chunk()).unwrap();
    let zeros: Vec<_> = (0..4).map(|slot| (key(slot, slot.into()), priority(0.0))).collect();
    assert_eq!(table.update_priorities(&zeros).applied, 4);
    assert_eq!(table.sample(1, false, &mut rng), Err(SampleError::NoMass));
    table.update_priorities(&[(key(2, 2), priority(1e-300))]);
    let draws = table.sample(9, true, &mut rng).unwrap();
    assert!(draws.iter().all(|draw| draw.key == key(2, 2) && draw.probability == 1.0));
}

#[test]
fn the_largest_numbers_still_give_probabilities() {
    let mut table = Table::new(TableOptions { priority_exponent: 3.0, ..options() }).unwrap();
    table.insert(first_chunk()).unwrap();
    let huge: Vec<_> = (0..4).map(|slot| (key(slot, slot.into()), priority(f64::MAX))).collect();
    table.update_priorities(&huge);
    let draws = table.sample(100, false, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    assert!(draws.iter().all(|draw| draw.probability == 0.25));
}

/// 120,000 draws of 30 items, with holes that byte reclaim made. 29 degrees of freedom: 58.3 is
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
    // Two lanes take turns; the ring holds the frames of 30 items and a few more.
    let options = TableOptions { sampler, bytes_max: 72 * 5, ..options() };
    let mut table = Table::new(options).unwrap();
    for sequence in 0..40u64 {
        for lane in 0..2 {
            let first = sequence * 2;
            let new = |first: u64| NewItem {
                first,
                length: 1,
                priority: InitialPriority::Of(priority(1.0 + (first % 7) as f64)),
            };
            let items = (first.saturating_sub(1)..first + 1).map(new).collect();
            let mut chunk = chunk(sequence, first, steps(first, 2), items);
            chunk.steps.iter_mut().for_each(|step| step.frame = [1; 9].into());
            chunk.lane.lane = lane;
            table.insert(chunk).unwrap();
        }
    }
    assert!(table.counters().reclaimed_items > 0);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut seen = std::collections::HashMap::<ItemKey, (f64, f64)>::new();
    let rounds = 4_000;
    for _ in 0..rounds {
        for Draw { key, probability, .. } in table.sample(30, stratified, &mut rng).unwrap() {
            seen.entry(key).or_insert((0.0, probability)).0 += 1.0;
        }
    }
    assert_eq!(seen.len(), table.len());
    assert!((28..=34).contains(&table.len()), "{} items", table.len());
    let draws = f64::from(rounds) * 30.0;
    let total: f64 = seen.values().map(|(_, probability)| probability).sum();
    assert!((total - 1.0).abs() < 1e-12);
    let term = |&(count, p): &(f64, f64)| (count - draws * p).powi(2) / (draws * p);
    seen.values().map(term).sum()
}

#[test]
fn options_that_cannot_work_are_refused() {
    let check = |change: fn(&mut TableOptions), expected: OptionsError| {
        let mut options = options();
        change(&mut options);
        assert_eq!(Table::new(options).err(), Some(expected));
    };
    check(|o| o.capacity = 0, OptionsError::Capacity(0));
    check(|o| o.stack = 0, OptionsError::Stack(0));
    check(|o| o.stack = 256, OptionsError::Stack(256));
    check(|o| o.frame_bytes = 0, OptionsError::FrameBytes(0));
    check(|o| o.bytes_max = 359, OptionsError::BytesMax { given: 359, least: 360 });
    let number = |name, value| OptionsError::Number { name, value };
    check(|o| o.priority_constant = -0.5, number("priority_constant", -0.5));
    check(|o| o.first_priority = f64::INFINITY, number("first_priority", f64::INFINITY));
    let most = usize::MAX / 2;
    check(|o| o.bytes_max = usize::MAX / 2, OptionsError::Memory { bytes: most });
}
