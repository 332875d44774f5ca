//! Eviction and reclaiming: the remover of a table evicts items, and chunks are reclaimed when no item needs them or
//! the ring is full.
//!
//! Every chunk counts the items that need a step of it or have their record in it. So whether it can be reclaimed is
//! known in constant time.

use crate::store::Store;
use crate::store::log::Log;
use crate::store::record::ItemRecord;
use crate::store::table::{Origin, Table};

impl Store {
    /// Reclaims the oldest chunks until a record of this size fits, and returns its offset.
    pub(super) fn make_room(&mut self, bytes: usize) -> usize {
        let mut reclaimed = false;
        loop {
            if let Some(offset) = self.log.free_offset(bytes) {
                if reclaimed {
                    self.write_state();
                }
                return offset;
            }
            self.reclaim_oldest();
            reclaimed = true;
        }
    }

    /// Counts the items just stored in all chunks that they need.
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

    /// Evicts items until the table is within its capacity.
    pub(super) fn shrink_to_capacity(&mut self, table: usize) {
        while self.tables[table].len() > self.tables[table].options().capacity {
            let Some(slot) = self.tables[table].next_victim() else { break };
            self.remove_item(table, slot);
            self.tables[table].counters.evicted += 1;
        }
    }

    pub(super) fn remove_item(&mut self, table: usize, slot: u32) {
        let Origin { chunk, at } = self.tables[table].origin(slot);
        let item = self.log.record(chunk).expect("an item does not outlive its chunks").items()[at as usize];
        for_needed(&mut self.log, chunk, &item, |needed| *needed -= 1);
        self.tables[table].remove(slot);
    }

    /// Reclaims the oldest chunk, and removes the items that need it.
    pub(super) fn reclaim_oldest(&mut self) {
        let Some(oldest) = self.log.oldest() else { return };
        let entry = *self.log.entry(oldest).expect("it is the oldest");
        if entry.needed > 0 {
            self.reclaim_items(oldest, entry.end());
        }
        if let Some(record) = self.log.record(oldest) {
            self.lanes.persist_cursor(record.lane(), oldest);
        }
        self.log.drop_oldest();
    }

    /// Removes the items that need the oldest chunk: those recorded in it, and some recorded in the chunks after it.
    fn reclaim_items(&mut self, oldest: u64, end: u64) {
        let mut chunk = oldest;
        while let Some(record) = self.log.record(chunk) {
            for at in 0..record.items().len() {
                if self.log.entry(oldest).is_none_or(|entry| entry.needed == 0) {
                    return;
                }
                let item = self.log.record(chunk).expect("the record is still stored").items()[at];
                let table = usize::from(item.table);
                let held = |table: &Table| table.holds(item.slot, item.number);
                if item.from() < end && self.tables.get(table).is_some_and(held) {
                    self.remove_item(table, item.slot);
                    self.tables[table].counters.reclaimed_items += 1;
                }
            }
            chunk = self.log.entry(chunk).map_or(0, |entry| entry.next);
        }
    }

    /// Reclaims the oldest chunks as long as neither a stored nor a future item needs them.
    pub(super) fn reclaim_unneeded(&mut self) {
        while let Some(oldest) = self.log.oldest() {
            let entry = self.log.entry(oldest).expect("it is the oldest");
            if entry.needed > 0 || self.may_be_needed(oldest) {
                break;
            }
            self.reclaim_oldest();
        }
    }

    /// Whether a future item may need a step of this chunk.
    fn may_be_needed(&self, number: u64) -> bool {
        let Some(record) = self.log.record(number) else { return false };
        let Some(cursor) = self.lanes.cursor(record.lane()) else { return false };
        let header = record.header();
        let end = header.first_step + u64::from(header.steps);
        // A chunk of an older chain ends before the newest chain begins, and the floor is never before that.
        cursor.chunk != 0 && (cursor.chunk == number || end > cursor.floor)
    }
}

/// Applies a change to the `needed` counter of each chunk that an item needs.
pub(super) fn for_needed(log: &mut Log, chunk: u64, item: &ItemRecord, change: impl Fn(&mut u32)) {
    let mut chunk = chunk;
    let origin = chunk;
    while let Some(entry) = log.entry_mut(chunk) {
        // The chunk with the item's own record counts even if the item needs none of its steps.
        if chunk == origin || entry.first_step <= item.last() {
            change(&mut entry.needed);
        }
        if entry.first_step <= item.from() {
            break;
        }
        chunk = entry.previous;
    }
}
