//! Recovers a store from the memory of a former process.
//!
//! The ring is the source of truth: every intact record counts, in order of its number. Each record advances the cursor
//! of its lane. An item of a record is stored if its slot says so. If the slot is damaged, or older than the ring
//! (after a power loss), the item loses its newest priority and nothing else.

use std::collections::HashMap;

use value::priority::Priority;

use crate::outcome::{Counters, TableCounters};
use crate::store::Store;
use crate::store::reclaim::count_for;
use crate::store::record::{ItemRecord, Record};
use crate::store::state::State;
use crate::store::table::{ItemState, Origin};
use crate::store::window::Carrier;

/// What was recovered, and what was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub chunks: u64,
    pub items: u64,
    /// Chunks that were missing or damaged.
    pub damaged_chunks: u64,
    /// Items whose newest priority was lost. They have their initial one.
    pub damaged_priorities: u64,
    /// Lanes whose cursor was damaged.
    pub damaged_lanes: u64,
    /// Items lost because they needed a damaged chunk.
    pub lost_items: u64,
    /// The counters could not be read and start at 0.
    pub damaged_state: bool,
    /// A flush to disk failed in a former process, so changes may be lost although nothing looks damaged.
    pub failed_flush: bool,
}

impl Recovered {
    /// Whether nothing was lost.
    pub fn is_whole(&self) -> bool {
        let Self { damaged_chunks, damaged_priorities, damaged_lanes, lost_items, .. } = *self;
        (damaged_chunks, damaged_priorities, damaged_lanes, lost_items) == (0, 0, 0, 0)
            && !self.damaged_state
            && !self.failed_flush
    }
}

impl Store {
    /// Recovers the contents of ring, slots and marks.
    pub(super) fn recover(&mut self, state: Option<State>, damaged_chunks: u64) -> Recovered {
        let damaged_state = state.is_none();
        let state = state.unwrap_or_default();
        let mut recovered = Recovered { damaged_chunks, damaged_state, ..Recovered::default() };
        self.counters = state.counters;
        for (table, state) in self.tables.iter_mut().zip(&state.tables) {
            table.next_number = state.next_number;
            table.counters = state.counters;
            if let Ok(largest) = Priority::try_new(state.largest_priority) {
                table.raise_largest_priority(largest);
            }
            table.start_recovery();
        }
        let unknown = self.unknown();
        for number in self.log.numbers() {
            let Some(record) = self.log.record(number) else { continue };
            let (lane, header) = (record.lane(), *record.header());
            let count = record.items().len();
            recovered.chunks += 1;
            let before = self.lanes.cursor(lane).map_or(0, |cursor| cursor.chunk);
            let previous = self.log.entry(number).map_or(0, |entry| entry.previous);
            if let Some(&ItemRecord { first: first_item, .. }) = record.items().first() {
                let (first_step, steps) = (header.first_step, record.steps());
                let carrier = Carrier { number, previous, first_step, steps, first_item };
                self.window.fill(&self.log, &self.options, &carrier);
            }
            self.lanes.recover_chunk(lane, &header);
            self.log.set_before(number, before);
            if number > state.newest {
                self.count_record(number);
            }
            for at in 0..count {
                let item = self.log.record(number).expect("the record was found above").items()[at];
                let origin = self.origin(number, at as u32, &item);
                self.recover_item(origin, &item, &unknown, &mut recovered);
            }
        }
        recovered.damaged_lanes = self.lanes.recover();
        for table in 0..self.tables.len() {
            recovered.lost_items += self.tables[table].count_unrecovered(state.tables[table].next_number);
            for (&(_, slot), &number) in unknown.iter().filter(|((of, _), _)| usize::from(*of) == table) {
                self.tables[table].vacate_unrecovered(slot, number);
            }
            self.tables[table].finish_recovery(None);
            self.shrink_to_capacity(table);
        }
        self.commit();
        recovered
    }

    /// Starts a new incarnation: all counters are 0, and former keys become invalid. Needed when data was lost, since
    /// the former process may have counted further and given out keys that would be given out again.
    pub fn start_incarnation(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
        self.counters = Counters::default();
        self.tables.iter_mut().for_each(|table| table.counters = TableCounters::default());
        self.write_state();
    }

    /// For each slot that is damaged or older than the ring, the newest item that the ring has for it. That item
    /// counts.
    fn unknown(&self) -> HashMap<(u8, u32), u64> {
        let mut unknown = HashMap::new();
        for record in self.log.numbers().filter_map(|number| self.log.record(number)) {
            for item in record.items().iter().filter(|item| self.has_slot(item)) {
                let table = &self.tables[usize::from(item.table)];
                if table.item_state(item.slot, item.number) == ItemState::Unknown {
                    let newest = unknown.entry((item.table, item.slot)).or_insert(item.number);
                    *newest = item.number.max(*newest);
                }
            }
        }
        unknown
    }

    /// Whether an item's table and slot exist.
    fn has_slot(&self, item: &ItemRecord) -> bool {
        self.tables.get(usize::from(item.table)).is_some_and(|table| (item.slot as usize) < table.slots_len())
    }

    /// Recovers an item, unless it has no origin.
    fn recover_item(
        &mut self,
        origin: Option<Origin>,
        item: &ItemRecord,
        unknown: &HashMap<(u8, u32), u64>,
        recovered: &mut Recovered,
    ) {
        if !self.has_slot(item) {
            return;
        }
        let table = &mut self.tables[usize::from(item.table)];
        table.next_number = table.next_number.max(item.number + 1);
        let newer = unknown.get(&(item.table, item.slot)).is_some_and(|&newest| newest != item.number);
        let lost = match table.item_state(item.slot, item.number) {
            _ if newer => return,
            ItemState::Removed => return,
            ItemState::Stored => None,
            ItemState::Unknown => Some(Priority::try_new(item.priority).expect("checked with the record")),
        };
        let origin = origin.filter(|_| table.can_recover(item.slot, item.number));
        let Some(origin) = origin else {
            // An item that its slot still names is counted by `count_unrecovered`. Otherwise the item was reclaimed
            // with its chunks, unless some chunk is damaged.
            recovered.lost_items += u64::from(lost.is_some() && recovered.damaged_chunks > 0);
            return;
        };
        recovered.damaged_priorities += u64::from(lost.is_some());
        table.recover_item(item.slot, item.number, origin, lost);
        count_for(&mut self.log, origin);
        recovered.items += 1;
    }

    /// Where an item of the chunk in the window is, if all steps that it needs are stored and form a valid item.
    fn origin(&self, chunk: u64, at: u32, item: &ItemRecord) -> Option<Origin> {
        let first_step = self.log.entry(chunk)?.first_step;
        let lead = self.window.lead(&self.options, item.first)?;
        let valid = lead.back == item.back
            && item.length <= self.options.max_length
            && item.last() >= first_step
            && self.window.holds(item.last())
            && self.window.crossed_end(item.first, item.last()).is_none();
        let span = u32::try_from(chunk - lead.chunk).ok()?;
        valid.then_some(Origin { chunk, at, span })
    }

    /// Counts a chunk that was stored after the state was last written.
    fn count_record(&mut self, number: u64) {
        let record: Record<'_> = self.log.record(number).expect("the record was found above");
        self.counters.chunks += 1;
        self.counters.steps += record.steps().len() as u64;
        self.counters.agent_steps +=
            record.steps().iter().filter(|step| step.taken().is_some()).count() as u64;
        for item in record.items() {
            if let Some(table) = self.tables.get_mut(usize::from(item.table)) {
                table.counters.inserts += 1;
                table.next_number = table.next_number.max(item.number + 1);
            }
        }
    }
}
