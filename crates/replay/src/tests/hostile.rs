//! Records that are whole, by their checksum, and say what no writer can have said. A fuzzer found most of these.

use bytemuck::Zeroable;
use tempfile::TempDir;

use super::contents::contents;
use crate::store::record::{self, Header, ItemRecord, StepRecord};
use crate::store::{Recovered, Storage};
use crate::testing::{LaneBuilder, item, options, taken};
use crate::{LaneKey, Store, StoreOptions, Taken};

const SALT: u64 = 0x1234_5678_9abc_def1;
const RING_BYTES: usize = 8192;

fn small_options() -> StoreOptions {
    StoreOptions { bytes_max: RING_BYTES, stack: 2, ..options() }
}

/// A record in the making.
struct Forged {
    header: Header,
    steps: Vec<StepRecord>,
    items: Vec<ItemRecord>,
}

/// Three steps of an episode of lane 0, each with a key frame of one byte, and the items that they complete.
fn forged(number: u64, sequence: u64) -> Forged {
    let first_step = 3 * sequence;
    let steps = (0..3)
        .map(|at| StepRecord::new(Some(taken(first_step + at)), at as u32 + 1, (first_step + at) as u8, 0));
    let items = (0..2).map(|at| {
        let (item, first) = (2 * sequence + at, first_step + at);
        let back = u16::from(first > 0);
        ItemRecord { number: item, first, priority: 1.0, slot: item as u32, back, length: 1, table: 0 }
    });
    let previous = if sequence > 0 { number - 1 } else { 0 };
    let header = Header {
        number,
        incarnation: 1,
        sequence,
        first_step,
        previous,
        newest_item: first_step + 1,
        phase: 1,
        ..Header::zeroed()
    };
    Forged { header, steps: steps.collect(), items: items.collect() }
}

/// A store that finds these in its ring, and nothing else.
fn found(records: &[Forged]) -> (TempDir, Store, Recovered) {
    let directory = TempDir::new().unwrap();
    let open = |is_new| {
        let storage = Storage::directory(directory.path(), SALT, is_new);
        Store::open(small_options(), 7, storage).unwrap()
    };
    drop(open(true));
    let mut ring = vec![0u64; RING_BYTES / 8];
    let ring: &mut [u8] = bytemuck::cast_slice_mut(&mut ring);
    let mut place = 0;
    for Forged { header, steps, items } in records {
        let frames = vec![9; steps.len()];
        let bytes = record::bytes(steps.len(), items.len(), frames.len());
        let header = Header { salt: SALT, steps: steps.len() as u32, items: items.len() as u32, ..*header };
        record::write(&mut ring[place..place + bytes], header, steps, items, &frames);
        place += bytes;
    }
    std::fs::write(directory.path().join("ring"), ring).unwrap();
    let (store, recovered) = open(false);
    (directory, store, recovered)
}

/// Writes until the ring has come round, looking at everything all the while.
fn use_up(store: &mut Store) {
    let mut lane = LaneBuilder::new(LaneKey { actor: 9, incarnation: 1, lane: 0 });
    for number in 0..2 * RING_BYTES as u64 / 128 {
        let first = lane.next_step();
        lane.push(&[1], Some(Taken { terminated: true, ..taken(number) }));
        lane.push(&[2], None);
        store.insert(&lane.chunk([item(first, 1)])).unwrap();
        contents(store);
    }
    assert!(contents(store).values().all(|item| item.lane.actor == 9));
}

#[test]
fn a_forged_record_is_as_good_as_a_real_one() {
    let (_directory, mut store, recovered) = found(&[forged(1, 0), forged(2, 1)]);
    assert_eq!((recovered.chunks, recovered.items), (2, 4));
    use_up(&mut store);
}

#[test]
fn a_chain_does_not_branch() {
    // Two chunks say that they follow the first.
    let mut other = forged(3, 1);
    other.header.previous = 1;
    other.items.iter_mut().for_each(|item| (item.number, item.slot) = (item.number + 2, item.slot + 2));
    let (_directory, mut store, recovered) = found(&[forged(1, 0), forged(2, 1), other]);
    assert_eq!((recovered.chunks, recovered.items), (3, 5), "one item of the last has no step before it");
    use_up(&mut store);
}

#[test]
fn a_number_that_is_none_makes_a_record_unsound() {
    let spoilt = |spoil: fn(&mut Taken)| {
        let mut record = forged(1, 0);
        let mut taken = record.steps[1].taken().unwrap();
        spoil(&mut taken);
        record.steps[1] = StepRecord::new(Some(taken), 2, 1, 0);
        found(&[record]).2.chunks
    };
    assert_eq!(spoilt(|_| ()), 1);
    assert_eq!(spoilt(|taken| taken.reward = f32::NAN), 0);
    assert_eq!(spoilt(|taken| taken.log_probability = f32::NEG_INFINITY), 0);
}

#[test]
fn an_item_that_a_reader_would_refuse_is_not_taken_up() {
    // Only the lead that follows from the steps is right: every frame is a key frame. Leads whose begins are not in the
    // order of the items make the whole record unsound.
    let mut records: Vec<Forged> = (0..13).map(|sequence| forged(sequence + 1, sequence)).collect();
    for (back, items) in [(1, 26), (2, 25), (32, 24), (33, 24)] {
        records[12].items[1].back = back;
        let (_directory, store, recovered) = found(&records);
        assert_eq!(recovered.items, items);
        assert!(contents(&store).values().all(|item| item.lead <= 31));
    }
}

#[test]
fn of_two_items_for_one_slot_the_one_of_the_larger_number_counts_wherever_it_lies() {
    let mut records = [forged(1, 0), forged(2, 1)];
    (records[0].items[1].number, records[1].items[1].number) = (50, 40);
    records[1].items[1].slot = records[0].items[1].slot;
    let (_directory, store, _) = found(&records);
    let kept = contents(&store);
    assert_eq!(kept.keys().map(|key| key.1).collect::<Vec<_>>(), [0, 50]);
    let mut saved = Vec::new();
    store.save(&mut saved).unwrap();
    let loaded = Store::load(small_options(), 7, &mut saved.as_slice()).unwrap();
    assert_eq!(contents(&loaded), kept, "and it still does after a save");
}

#[test]
fn gaps_between_records_take_no_more_memory_than_the_ring_has_room_for() {
    let most = RING_BYTES / 128;
    let numbers = (0..9).map(|index| 1 + index * most as u64);
    let record = |number| Forged { header: Header { number, ..forged(1, 0).header }, ..forged(1, 0) };
    let (_directory, mut store, recovered) = found(&numbers.map(record).collect::<Vec<_>>());
    assert!(store.chunks() <= 2 * most, "{} chunks, {recovered:?}", store.chunks());
    use_up(&mut store);
}
