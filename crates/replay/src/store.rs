//! The store: inserts chunks, samples items, updates priorities.
//!
//! **Layout.** A chunk is in the ring as received, steps and packed frames together (`record`). An item is an entry in
//! the record of the chunk that completed it, and a slot in its [`Table`]. Both are in `memory`, which may be a file.
//! Then everything acknowledged survives the process, however it dies.
//!
//! **Removal.** When a table is full, its remover selects the item to evict. When the ring is full, the oldest chunk is
//! reclaimed, together with the items that need a step of it. After each change, the oldest chunks that are not needed
//! are reclaimed too: no item refers to them, and no future item can. (Items of a lane come in order, so a future item
//! needs nothing before the newest item's window.) A chunk that an idle lane might still need delays this until the
//! ring is full.
//!
//! **Bounds.** `bytes_max` bounds the chunks, `capacity` the items, a constant the lanes. Of a lane without chunks only
//! the cursor remains, until a newer incarnation of its actor appears.
//!
//! **Order of writes.** A process may die between any two instructions. `insert` writes in this order: (1) persist the
//! lane cursor of the oldest chunk and exclude the chunk in the state page, (2) update the slots of the new items, (3)
//! overwrite the old chunk, (4) write the last word of the new chunk's header. Recovery accepts a chunk only if that
//! word is valid.

pub(crate) mod duplicate;
pub mod flush_marker;
pub(crate) mod insert;
pub(crate) mod item;
pub(crate) mod lanes;
pub(crate) mod log;
pub(crate) mod lowest;
pub(crate) mod memory;
pub(crate) mod phase;
pub(crate) mod record;
pub(crate) mod slot;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod window;

mod reclaim;
mod recover;
pub mod reliability;
mod sample;
mod save;
mod storage;
mod surcharge;

pub mod directory;
pub mod inspect;

pub use recover::Recovered;
pub use save::{LoadError, SnapshotWriter};
pub use storage::{Storage, StorageError, ZerosProgress};

use bytemuck::Zeroable;
use value::priority::Priority;

use crate::chunk::{Chunk, InitialPriority, NewItem};
use crate::key::ItemKey;
use crate::options::{OptionsError, StoreOptions};
use crate::outcome::{Counters, Inserted, TableCounters, Updated};
use insert::{Accepted, InsertError, Validation, validate};
use item::ItemView;
use lanes::Lanes;
use log::Log;
use record::{Header, ItemRecord, StepRecord};
use slot::SLOT;
use state::{State, StatePage, TableState};
use surcharge::UnpaidSteps;
use table::{Origin, Table};
use window::{Lead, Window};

/// One replay shard's contents.
pub struct Store {
    options: StoreOptions,
    incarnation: u32,
    storage: Storage,
    log: Log,
    lanes: Lanes,
    tables: Vec<Table>,
    pub(crate) counters: Counters,
    state: StatePage,
    /// Scratch space of `insert`, kept to avoid allocating.
    steps: Vec<StepRecord>,
    items: Vec<ItemRecord>,
    window: Window,
    unpaid: UnpaidSteps,
}

/// Names of the files of a store.
const RING: &str = "ring";
const MARKS: &str = "marks";
const STATE: &str = "state";

fn slots_file(table: usize) -> String {
    format!("table-{table}")
}

impl Store {
    /// An empty store in the memory of the process. `incarnation` is part of every key.
    pub fn new(options: StoreOptions, incarnation: u32) -> Result<Store, OptionsError> {
        match Self::open(options, incarnation, Storage::in_memory()) {
            Ok((store, _)) => Ok(store),
            Err(StorageError::Options(error)) => Err(error),
            Err(StorageError::Io { bytes, .. }) => Err(OptionsError::Memory { bytes }),
        }
    }

    /// Recovers the store at `storage`, or creates an empty one.
    pub fn open(
        options: StoreOptions,
        incarnation: u32,
        storage: Storage,
    ) -> Result<(Store, Recovered), StorageError> {
        options.check()?;
        let log_memory = storage.memory(RING, options.bytes_max)?;
        let lanes = Lanes::new(storage.memory(MARKS, Lanes::MARKS_BYTES)?);
        let state = StatePage::new(storage.memory(STATE, StatePage::BYTES)?);
        let table = |(index, table): (usize, &crate::TableOptions)| {
            let slots =
                storage.memory_at_least(&slots_file(index), Table::slots_bytes(table.capacity), SLOT)?;
            Ok::<_, StorageError>(Table::new(table.clone(), slots)?)
        };
        let tables = options.tables.iter().enumerate().map(table).collect::<Result<Vec<_>, _>>()?;
        let found = state.read().map(|state| state.of_incarnation(incarnation));
        let is_new = storage.is_new();
        let salt = storage.salt();
        let (oldest, newest, lost) =
            found.map_or((0, 0, 0), |state| (state.oldest, state.newest, state.lost));
        let (log, damaged) = if is_new {
            (Log::new(log_memory, salt), 0)
        } else {
            Log::recover(log_memory, salt, oldest, newest, lost)
        };
        let counters = Counters::default();
        let (steps, items, window) = (Vec::new(), Vec::new(), Window::default());
        let mut store = Store {
            options,
            incarnation,
            storage,
            log,
            lanes,
            tables,
            counters,
            state,
            steps,
            items,
            window,
            unpaid: UnpaidSteps::default(),
        };
        let recovered = if is_new { Recovered::default() } else { store.recover(found, damaged) };
        store.write_state();
        Ok((store, recovered))
    }

    /// Stores a chunk, all of it or nothing.
    ///
    /// A chunk that was stored before is dropped and reported as a duplicate, unless it differs from the stored one. A gap
    /// in the sequence numbers is counted, and no item spans it. Steps that no item pays for are counted in
    /// [`Counters::surcharge`]. An item whose frames are no longer stored is dropped and counted. Any other error refuses
    /// the whole chunk. Takes constant time per step and item of the chunk and per chunk and item that it displaces, plus
    /// the reach of its items (`window`), plus the sampler's time.
    pub fn insert(&mut self, chunk: &Chunk) -> Result<Inserted, InsertError> {
        let verdict =
            validate(&self.lanes, &self.log, &self.options, chunk, &mut self.steps, &mut self.window)?;
        let Validation::New(accepted) = verdict else {
            self.counters.duplicate_chunks += 1;
            self.write_state();
            return Ok(Inserted { duplicate: true, ..Inserted::default() });
        };
        let bytes = record::bytes(chunk.steps.len(), chunk.items.len(), chunk.frames.len());
        let offset = self.make_room(bytes);
        // After room was made, which may have dropped the lane's newest chunk.
        let before = self.lanes.cursor(chunk.lane).map_or(0, |cursor| cursor.chunk);
        self.window.drop_until(self.log.numbers().start);
        let previous = self.log.entry(accepted.previous).map_or(0, |_| accepted.previous);
        let (newest_item, floor) = self.insert_items(chunk, &accepted, previous);
        let (phase, phase_steps) = accepted.phase.to_bytes();
        let header = Header {
            actor: chunk.lane.actor,
            lane: chunk.lane.lane,
            incarnation: chunk.lane.incarnation,
            sequence: chunk.sequence,
            first_step: chunk.first_step,
            previous,
            newest_item,
            floor,
            steps: self.steps.len() as u32,
            items: self.items.len() as u32,
            phase,
            phase_steps,
            ..Header::zeroed()
        };
        let number = self.log.append(offset, bytes, header, &self.steps, &self.items, &chunk.frames);
        self.log.set_before(number, before);
        self.lanes.advance(chunk.lane, &Header { number, ..header });
        self.count_needed();
        let (kept, lost) = (self.items.len() as u64, accepted.lost);
        let inserted = Inserted {
            duplicate: false,
            items: kept,
            items_without_frames: chunk.items.len() as u64 - kept,
            chunks_lost: lost,
        };
        self.counters.chunks += 1;
        // The only total that grows by a number that a writer states: it must stay one that the state may hold.
        self.counters.lost_chunks = (self.counters.lost_chunks + lost).min(insert::NUMBER_MAX - 1);
        self.counters.steps += chunk.steps.len() as u64;
        self.counters.agent_steps += chunk.steps.iter().filter(|step| step.taken.is_some()).count() as u64;
        self.counters.items_without_frames += inserted.items_without_frames;
        let steps = chunk.steps.len() as u64;
        self.counters.surcharge += self.unpaid.charge(steps, kept, self.options.max_length);
        self.commit();
        Ok(inserted)
    }

    /// Assigns new priorities. Items that are no longer stored are ignored and counted. Of several updates of one item
    /// the last wins.
    pub fn update_priorities(&mut self, table: usize, updates: &[(ItemKey, Priority)]) -> Updated {
        let incarnation = self.incarnation;
        let table = &mut self.tables[table];
        let mut updated = Updated::default();
        for &(key, priority) in updates {
            let Some(slot) = table.find(incarnation, key) else {
                updated.stale += 1;
                continue;
            };
            table.raise_largest_priority(priority);
            table.set_priority(slot, priority);
            updated.applied += 1;
        }
        table.counters.updates += updated.applied;
        table.counters.stale_updates += updated.stale;
        self.commit();
        updated
    }

    /// Removes items that cannot be used, such as those whose frames cannot be decoded. Returns how many were still
    /// stored.
    pub fn remove(&mut self, table: usize, keys: &[ItemKey]) -> u64 {
        let mut removed = 0;
        for &key in keys {
            let Some(slot) = self.tables[table].find(self.incarnation, key) else { continue };
            self.remove_item(table, slot);
            removed += 1;
        }
        self.tables[table].counters.removed_items += removed;
        self.commit();
        removed
    }

    /// Raises the value of [`InitialPriority::Largest`] to at least this, the maximum of other shards.
    pub fn raise_largest_priority(&mut self, table: usize, priority: Priority) {
        self.tables[table].raise_largest_priority(priority);
        self.write_state();
    }

    /// Changes the exponent of a table's weights, in O(capacity).
    pub fn set_priority_exponent(&mut self, table: usize, exponent: f64) -> Result<(), OptionsError> {
        self.tables[table].set_exponent(exponent)?;
        self.options.tables[table].priority_exponent = exponent;
        Ok(())
    }

    /// Changes the capacity of a table. If it shrinks below the number of items, the remover selects which are evicted.
    pub fn set_capacity(&mut self, table: usize, capacity: usize) -> Result<(), StorageError> {
        let changed = crate::TableOptions { capacity, ..self.tables[table].options().clone() };
        changed.check()?;
        Table::check_memory(capacity)?;
        let slots = match capacity > self.tables[table].slots_len() {
            true => Some(self.storage.larger(
                &slots_file(table),
                self.tables[table].memory(),
                Table::slots_bytes(capacity),
            )?),
            false => None,
        };
        self.tables[table].set_capacity(capacity, slots);
        self.options.tables[table].capacity = capacity;
        self.shrink_to_capacity(table);
        self.commit();
        Ok(())
    }

    /// A view of an item, or `None` if it is no longer stored.
    pub fn item(&self, table: usize, key: ItemKey) -> Option<ItemView<'_>> {
        let slot = self.tables[table].find(self.incarnation, key)?;
        Some(self.view(table, slot))
    }

    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Part of every key.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The tables, in the order of the options.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Bytes of all chunks stored, never more than `bytes_max`.
    pub fn bytes_used(&self) -> usize {
        self.log.used()
    }

    /// Number of stored chunks.
    pub fn chunks(&self) -> usize {
        let numbers = self.log.numbers();
        (numbers.end - numbers.start) as usize
    }

    /// Numbers of the chunks stored.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.log.numbers()
    }

    /// How many steps, chunks and items were visited so far by look-ups along chains of chunks.
    #[cfg(any(test, feature = "testing"))]
    pub fn walked(&self) -> u64 {
        self.log.walked()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What counts against the allowance: the inserts of all tables, and the surcharge for steps without items.
    pub fn inserts_charged(&self) -> u64 {
        self.table_counters().inserts.saturating_add(self.counters.surcharge)
    }

    /// The sum of the counters of all tables.
    pub fn table_counters(&self) -> TableCounters {
        let mut total = TableCounters::default();
        self.tables.iter().for_each(|table| total += table.counters());
        total
    }

    /// Flushes everything to disk, if the store has files.
    pub fn sync(&self) -> std::io::Result<()> {
        self.storage.sync()
    }

    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    fn view(&self, table: usize, slot: u32) -> ItemView<'_> {
        let from = &self.tables[table];
        let origin = from.origin(slot);
        let Origin { chunk, at, .. } = origin;
        let record = self.log.record(chunk).expect("an item does not outlive its chunks");
        let generation = from.number(slot);
        ItemView {
            key: ItemKey { incarnation: self.incarnation, slot, generation },
            log: &self.log,
            chunk,
            first_chunk: origin.first_chunk(),
            record: &record.items()[at as usize],
            stack: self.options.stack,
            priority: from.priority(slot),
            times_sampled: from.times_sampled(slot),
            age_inserts: from.next_number - 1 - generation,
        }
    }

    /// Inserts the chunk's items into their tables, and collects their records for the ring in `items`. Returns the
    /// lane's newest item, and the first step that a future item may need.
    fn insert_items(&mut self, chunk: &Chunk, accepted: &Accepted, previous: u64) -> (u64, u64) {
        let number = self.log.next_number();
        let (mut newest_item, mut floor) = (accepted.newest_item, accepted.floor);
        if previous == 0 {
            floor = floor.max(chunk.first_step);
        }
        self.items.clear();
        for &NewItem { first, length, priority, table } in &chunk.items {
            newest_item = first;
            let Some(Lead { back, chunk: first_chunk }) = self.window.lead(&self.options, first) else {
                continue;
            };
            floor = first - u64::from(back);
            let index = usize::from(table);
            if let Some(victim) = self.tables[index].victim() {
                // An item of this chunk is not yet counted in `needed`, see `count_needed`.
                if self.tables[index].origin(victim).chunk == number {
                    self.tables[index].remove(victim);
                } else {
                    self.remove_item(index, victim);
                }
                self.tables[index].counters.evicted += 1;
            }
            let into = &mut self.tables[index];
            let priority = match priority {
                InitialPriority::Of(priority) => priority,
                InitialPriority::Largest => into.largest_priority,
            };
            into.raise_largest_priority(priority);
            // The entries of more chunks than this would not fit into the memory of any machine.
            let span = u32::try_from(number - first_chunk).expect("fewer than 2^32 chunks are stored");
            let origin = Origin { chunk: number, at: self.items.len() as u32, span };
            let generation = into.next_number;
            let slot = into.push(origin, priority, 0);
            into.counters.inserts += 1;
            let priority = priority.get();
            self.items.push(ItemRecord { number: generation, first, priority, slot, back, length, table });
        }
        (newest_item, floor)
    }

    /// Completes a change: reclaims chunks that are not needed, updates the samplers, and writes the state for
    /// recovery.
    fn commit(&mut self) {
        self.reclaim_unneeded();
        self.tables.iter_mut().for_each(Table::apply_changes);
        self.write_state();
    }

    fn write_state(&mut self) {
        let mut tables = [TableState::default(); crate::options::TABLES_MAX];
        for (state, table) in tables.iter_mut().zip(&self.tables) {
            *state = TableState {
                next_number: table.next_number,
                largest_priority: table.largest_priority.get(),
                counters: table.counters,
            };
        }
        let numbers = self.log.numbers();
        let (oldest, newest, lost, counters) =
            (numbers.start, numbers.end - 1, self.log.lost(), self.counters);
        let incarnation = self.incarnation.into();
        self.state.write(State { incarnation, oldest, newest, lost, counters, tables, ..State::default() });
    }
}
