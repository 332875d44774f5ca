//! A store from what its former life left behind.
//!
//! The ring is the truth: every record that is whole counts, in order of its number. What a record says of its
//! lane moves the lane's cursor; an item of it is there if its slot says so. A slot that is damaged, or older
//! than the ring (after a loss of power), costs the item its newest priority and nothing else.

use std::collections::HashMap;

use value::priority::Priority;

use crate::chunk::KEY_DISTANCE_MAX;
use crate::outcome::{Counters, TableCounters};
use crate::store::Store;
use crate::store::phase::Kind;
use crate::store::reclaim::for_needed;
use crate::store::record::{ItemRecord, Record, StepRecord};
use crate::store::state::State;
use crate::store::table::{Fate, Origin};

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Chunks taken up again.
    pub chunks: u64,
    /// Items taken up again.
    pub items: u64,
    /// Chunks that should have been there and were not, or not whole.
    pub damaged_chunks: u64,
    /// Items whose newest priority was lost.
    pub damaged_priorities: u64,
    /// Cursors of lanes that could not be read.
    pub damaged_lanes: u64,
    /// Items lost because they needed a damaged chunk.
    pub lost_items: u64,
    /// The totals could not be read.
    pub damaged_state: bool,
}

impl Recovered {
    /// Whether everything is as it was left.
    pub fn is_whole(&self) -> bool {
        let Self { damaged_chunks, damaged_priorities, damaged_lanes, lost_items, damaged_state, .. } = *self;
        (damaged_chunks, damaged_priorities, damaged_lanes, lost_items, damaged_state) == (0, 0, 0, 0, false)
    }
}

impl Store {
    /// Takes up what the ring holds, slots and marks included.
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
            table.begin_recovery();
        }
        let doubtful = self.doubtful();
        for number in self.log.numbers() {
            let Some(record) = self.log.record(number) else { continue };
            let (lane, header) = (record.lane(), *record.header());
            let count = record.items().len();
            recovered.chunks += 1;
            self.lanes.take_up(lane, &header);
            if number > state.newest {
                self.count_record(number);
            }
            for at in 0..count {
                let item = self.log.record(number).expect("it was there").items()[at];
                self.readmit(number, at as u32, &item, &doubtful, &mut recovered);
            }
        }
        recovered.damaged_lanes = self.lanes.recover();
        for table in 0..self.tables.len() {
            recovered.lost_items += self.tables[table].unclaimed(state.tables[table].next_number);
            for (&(_, slot), &number) in doubtful.iter().filter(|((of, _), _)| usize::from(*of) == table) {
                self.tables[table].give_up(slot, number);
            }
            self.tables[table].close_gaps(None);
            self.shrink_to_capacity(table);
        }
        self.settle();
        recovered
    }

    /// Counts from 0 again, as a new incarnation does whose former life may have counted further.
    pub fn begin_anew(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
        self.counters = Counters::default();
        self.tables.iter_mut().for_each(|table| table.counters = TableCounters::default());
        self.write_state();
    }

    /// For each slot that knows less than the ring, the newest item that the ring has for it: the one that counts.
    fn doubtful(&self) -> HashMap<(u8, u32), u64> {
        let mut doubtful = HashMap::new();
        for record in self.log.numbers().filter_map(|number| self.log.record(number)) {
            for item in record.items().iter().filter(|item| self.is_known(item)) {
                let table = &self.tables[usize::from(item.table)];
                if table.fate(item.slot, item.number) == Fate::Unknown {
                    let newest = doubtful.entry((item.table, item.slot)).or_insert(item.number);
                    *newest = item.number.max(*newest);
                }
            }
        }
        doubtful
    }

    /// Whether an item's table and slot are there at all.
    fn is_known(&self, item: &ItemRecord) -> bool {
        self.tables.get(usize::from(item.table)).is_some_and(|table| (item.slot as usize) < table.slots_len())
    }

    fn readmit(
        &mut self,
        chunk: u64,
        at: u32,
        item: &ItemRecord,
        doubtful: &HashMap<(u8, u32), u64>,
        recovered: &mut Recovered,
    ) {
        if !self.is_known(item) {
            return;
        }
        let table = usize::from(item.table);
        self.tables[table].next_number = self.tables[table].next_number.max(item.number + 1);
        let newer = doubtful.get(&(item.table, item.slot)).is_some_and(|&newest| newest != item.number);
        let lost = match self.tables[table].fate(item.slot, item.number) {
            _ if newer => return,
            Fate::Gone => return,
            Fate::Kept => None,
            Fate::Unknown => {
                Some(Priority::try_new(item.priority).expect("records with others are not sound"))
            }
        };
        if !self.is_complete(chunk, item) || !self.tables[table].can_readmit(item.slot, item.number) {
            // A slot that knows of the item is counted with those that nobody claims. Of one that does not, the item
            // has gone with its chunks, unless one of those is damaged.
            recovered.lost_items += u64::from(lost.is_some() && recovered.damaged_chunks > 0);
            return;
        }
        recovered.damaged_priorities += u64::from(lost.is_some());
        self.tables[table].readmit(item.slot, item.number, Origin { chunk, at }, lost);
        for_needed(&mut self.log, chunk, item, |needed| *needed += 1);
        recovered.items += 1;
    }

    /// Whether all that an item needs is there, and is what an item is made of.
    fn is_complete(&self, chunk: u64, item: &ItemRecord) -> bool {
        let kind = |step: u64| self.log.step(chunk, step).map(StepRecord::kind);
        let inside = |step: u64| match kind(step) {
            Some(Kind::Acts) => true,
            Some(Kind::Ends) => step + 1 == item.last(),
            _ => false,
        };
        let before = self.log.step(chunk, item.first).map(|step| usize::from(step.since_start));
        let before = before.map(|since| since.min(self.options.stack - 1));
        self.log.step(chunk, item.from()).is_some_and(|step| step.since_key == 0)
            && self.log.step(chunk, item.last()).is_some()
            && before.is_some_and(|before| {
                let lead = usize::from(item.back).checked_sub(before);
                lead.is_some_and(|lead| lead <= KEY_DISTANCE_MAX.into())
            })
            && (item.first..item.last()).all(inside)
    }

    /// Counts a chunk that was stored just before the end of the former life.
    fn count_record(&mut self, number: u64) {
        let record: Record<'_> = self.log.record(number).expect("it was there");
        self.counters.chunks += 1;
        self.counters.steps += record.steps().len() as u64;
        self.counters.actions += record.steps().iter().filter(|step| step.taken().is_some()).count() as u64;
        for item in record.items() {
            if let Some(table) = self.tables.get_mut(usize::from(item.table)) {
                table.counters.inserts += 1;
                table.next_number = table.next_number.max(item.number + 1);
            }
        }
    }
}
