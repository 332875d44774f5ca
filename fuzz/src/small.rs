//! A store of a few kilobytes, writers for it, and what must hold of it however it came about.

use replay::codec::Codec;
use replay::store::Storage;
pub use replay::testing::contents::contents;
use replay::{
    Chunk, InitialPriority, InsertError, LaneKey, NewItem, Remover, Sampler, Store, StoreOptions,
    TableOptions, Taken, testing,
};

pub const FRAME_BYTES: usize = 16;
pub const STACK: usize = 2;
pub const RING_BYTES: usize = 4096;
pub const INCARNATION: u32 = 7;
/// Items of each table.
pub const CAPACITIES: [usize; 2] = [12, 6];

/// Two tables over a ring that a dozen chunks fill.
pub fn options() -> StoreOptions {
    let main = TableOptions {
        capacity: CAPACITIES[0],
        priority_exponent: 0.6,
        priority_constant: 0.01,
        ..testing::table("main")
    };
    let other = TableOptions {
        name: "other".into(),
        capacity: CAPACITIES[1],
        sampler: Sampler::Uniform,
        remover: Remover::LowestPriority,
        max_times_sampled: 3,
        ..main
    };
    StoreOptions {
        bytes_max: RING_BYTES,
        stack: STACK,
        frame_bytes: FRAME_BYTES,
        max_length: 255,
        tables: vec![main, other],
    }
}

/// A writer of one lane. Episodes have seven steps and a final observation.
pub struct FuzzLane {
    lane: testing::LaneBuilder,
    next_item: u64,
}

const EPISODE: u64 = 8;

impl FuzzLane {
    pub fn new(actor: u32, incarnation: u64, lane: u32) -> Self {
        let key = LaneKey { actor, incarnation, lane };
        Self { lane: testing::LaneBuilder::packed(key, Codec::Delta, FRAME_BYTES), next_item: 0 }
    }

    /// So many more steps, and the items that they complete.
    pub fn chunk(&mut self, steps: u64) -> Chunk {
        (0..steps).for_each(|_| self.step());
        let items = self.items();
        self.lane.chunk(items)
    }

    fn step(&mut self) {
        let number = self.lane.next_step();
        let frame: [u8; FRAME_BYTES] = std::array::from_fn(|at| ((number + at as u64) / 5) as u8);
        let at = number % EPISODE;
        let ends = at == EPISODE - 2;
        let taken = Taken {
            action: (number % 4) as u16,
            terminated: ends && number.is_multiple_of(3),
            truncated: ends && !number.is_multiple_of(3),
            life_lost: at == 3,
            log_probability: -0.5,
            ..testing::taken(number)
        };
        self.lane.push(&frame, (at < EPISODE - 1).then_some(taken));
    }

    fn items(&mut self) -> Vec<NewItem> {
        let mut items = Vec::new();
        for first in self.next_item.. {
            let at = first % EPISODE;
            let length = if at < EPISODE - 2 && first.is_multiple_of(3) { 2 } else { 1 };
            if first + length >= self.lane.next_step() {
                break;
            }
            self.next_item += 1;
            let priority = match first % 4 {
                0 => InitialPriority::Largest,
                rest => InitialPriority::Of(testing::priority(rest as f64 / 2.0)),
            };
            let tables =
                if first.is_multiple_of(5) { 0..2 } else { (first % 2) as u8..(first % 2) as u8 + 1 };
            if at < EPISODE - 1 {
                items.extend(tables.map(|table| NewItem { first, length: length as u8, priority, table }));
            }
        }
        items
    }
}

/// Fills a store from three lanes until it is full, or nearly.
pub fn fill(store: &mut Store, chunks: u64) {
    let mut lanes = [FuzzLane::new(0, 1, 0), FuzzLane::new(0, 1, 1), FuzzLane::new(1, 3, 0)];
    for number in 0..chunks {
        let lane = &mut lanes[(number % 7 % 3) as usize];
        store.insert(&lane.chunk(1 + number % 5)).expect("what a lane makes is sound");
    }
}

/// Numbers from 2⁶² on are refused, and no lane counts that far. From right below it a store of ours would, and
/// then not know its own records.
pub fn counts_can_grow(data: &[u8]) -> bool {
    let words = data.array_windows().map(|word| u64::from_le_bytes(*word));
    let mut near = words.filter(|word| ((1 << 62) - 4096..1 << 62).contains(word));
    near.next().is_none()
}

/// The bytes of a whole store.
pub fn saved(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(&mut bytes).expect("memory takes anything");
    bytes
}

/// Looks at a store, saves and loads it, draws from it, gives new priorities, and writes until nothing is left of what
/// it held.
pub fn put_to_use(store: &mut Store) {
    let before = contents(store);
    let again = Store::restore(store.incarnation(), Storage::in_memory(), &mut saved(store).as_slice());
    let (again, recovered) = again.expect("what was saved can be restored");
    assert!(recovered.is_whole(), "{recovered:?}");
    assert_eq!(contents(&again), before);
    for table in 0..store.tables().len() {
        draw_and_update(store, table);
        contents(store);
    }
    let mut lane = newcomer(store);
    let most = 2 * store.options().bytes_max / 256;
    for _ in 0..most {
        store.insert(&lane.chunk(4)).expect("a lane that is not fenced continues");
    }
    let left = contents(store);
    assert!(!left.is_empty(), "new items are kept");
    assert!(left.values().all(|item| item.lane == lane.lane.key()), "what is old has left");
}

fn draw_and_update(store: &mut Store, table: usize) {
    let mut drawn = Vec::new();
    let drawing = store.sample_at(table, &[0.0, 0.3, 0.7, 1.0 - f64::EPSILON], |draw, view| {
        assert!(draw.probability > 0.0 && draw.probability <= 1.0 + 1e-9);
        // This draw is counted once it is taken.
        assert_eq!(draw.times_sampled, view.times_sampled().saturating_add(1));
        assert_eq!(view.frames().count(), view.lead() + view.next_state().last().unwrap_or(0) + 1);
        drawn.push(draw.key);
    });
    assert_eq!(drawing.is_err(), drawn.is_empty());
    let updates: Vec<_> = drawn.iter().map(|&key| (key, testing::priority(2.0))).collect();
    let updated = store.update_priorities(table, &updates);
    assert_eq!(updated.applied + updated.stale, updates.len() as u64);
    let removed = store.remove(table, &drawn[..drawn.len().min(1)]);
    assert!(removed <= 1);
}

/// A lane of an actor that the store does not know, or knows nothing newer of.
fn newcomer(store: &mut Store) -> FuzzLane {
    for actor in 1000.. {
        let mut lane = FuzzLane::new(actor, u64::MAX, 0);
        match store.insert(&lane.chunk(4)) {
            Ok(inserted) if !inserted.duplicate && inserted.chunks_lost == 0 => return lane,
            Ok(_)
            | Err(
                InsertError::Gap { .. }
                | InsertError::NotContiguous { .. }
                | InsertError::OutOfEpisode { .. },
            ) => {}
            Err(error) => panic!("a new lane is refused: {error}"),
        }
    }
    unreachable!("there are more actors than lanes in a ring")
}
