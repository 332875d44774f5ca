//! What leaves, and when: items by their table's remover, chunks when no item needs them or the ring is full.
//!
//! Every chunk counts the items that need a step of it, its own records included, so whether one can go is known at
//! once.

use crate::store::Store;
use crate::store::log::Log;
use crate::store::record::ItemRecord;
use crate::store::table::{Origin, Table};

impl Store {
    /// Lets the oldest chunks go until so many bytes fit, and says where.
    pub(super) fn make_room(&mut self, bytes: usize) -> usize {
        let mut reclaimed = false;
        loop {
            if let Some(place) = self.log.place(bytes) {
                if reclaimed {
                    self.write_state();
                }
                return place;
            }
            self.reclaim_oldest();
            reclaimed = true;
        }
    }

    /// The items just stored need their chunks.
    pub(super) fn count_needed(&mut self) {
        let number = self.log.next_number() - 1;
        let items = std::mem::take(&mut self.items);
        for item in
            items.iter().filter(|item| self.tables[usize::from(item.table)].holds(item.slot, item.number))
        {
            for_needed(&mut self.log, number, item, |needed| *needed += 1);
        }
        self.items = items;
    }

    /// Lets the remover take what is too much.
    pub(super) fn shrink_to_capacity(&mut self, table: usize) {
        while self.tables[table].len() > self.tables[table].options().capacity {
            let Some(slot) = self.tables[table].least() else { break };
            self.vacate(table, slot);
            self.tables[table].counters.evicted += 1;
        }
    }

    pub(super) fn vacate(&mut self, table: usize, slot: u32) {
        let Origin { chunk, at } = self.tables[table].origin(slot);
        let item = self.log.record(chunk).expect("an item does not outlive its chunks").items()[at as usize];
        for_needed(&mut self.log, chunk, &item, |needed| *needed -= 1);
        self.tables[table].vacate(slot);
    }

    /// Forgets the oldest chunk and the items that need it.
    pub(super) fn reclaim_oldest(&mut self) {
        let Some(oldest) = self.log.oldest() else { return };
        let entry = *self.log.entry(oldest).expect("it is the oldest");
        if entry.needed > 0 {
            self.reclaim_items(oldest, entry.end());
        }
        if let Some(record) = self.log.record(oldest) {
            self.lanes.forget_chunk(record.lane(), oldest);
        }
        self.log.drop_oldest();
    }

    /// Forgets the items that need a chunk: its own, and some of those that follow on it.
    fn reclaim_items(&mut self, oldest: u64, end: u64) {
        let mut chunk = oldest;
        while let Some(record) = self.log.record(chunk) {
            for at in 0..record.items().len() {
                if self.log.entry(oldest).is_none_or(|entry| entry.needed == 0) {
                    return;
                }
                let item = self.log.record(chunk).expect("nothing has gone").items()[at];
                let table = usize::from(item.table);
                let held = |table: &Table| table.holds(item.slot, item.number);
                if item.from() < end && self.tables.get(table).is_some_and(held) {
                    self.vacate(table, item.slot);
                    self.tables[table].counters.reclaimed_items += 1;
                }
            }
            chunk = self.log.entry(chunk).map_or(0, |entry| entry.next);
        }
    }

    /// Forgets the oldest chunks as long as no item needs them or may come to.
    pub(super) fn reclaim_unneeded(&mut self) {
        while let Some(oldest) = self.log.oldest() {
            let entry = self.log.entry(oldest).expect("it is the oldest");
            if entry.needed > 0 || self.is_awaited(oldest) {
                break;
            }
            self.reclaim_oldest();
        }
    }

    /// Whether an item to come may need a step of this chunk.
    fn is_awaited(&self, number: u64) -> bool {
        let Some(record) = self.log.record(number) else { return false };
        let Some(cursor) = self.lanes.cursor(record.lane()) else { return false };
        let header = record.header();
        let end = header.first_step + u64::from(header.steps);
        // A chunk of an older chain ends before the first step of the newest one, which the floor is not below.
        cursor.chunk != 0 && (cursor.chunk == number || end > cursor.floor)
    }
}

/// Changes, for each chunk that an item needs, how many items need it.
pub(super) fn for_needed(log: &mut Log, chunk: u64, item: &ItemRecord, change: impl Fn(&mut u32)) {
    let mut chunk = chunk;
    let origin = chunk;
    while let Some(entry) = log.entry_mut(chunk) {
        // The first one has the item's own record.
        if chunk == origin || entry.first_step <= item.last() {
            change(&mut entry.needed);
        }
        if entry.first_step <= item.from() {
            break;
        }
        chunk = entry.previous;
    }
}
