//! Eviction and reclaiming: the remover of a table evicts items, and chunks are reclaimed when no item needs them or
//! the ring is full.
//!
//! Every chunk counts the items that need it and no chunk before it. An item leaves with the first chunk that it needs, so
//! that is all that counts when the chunk is the oldest. Whether it can be reclaimed is known in constant time, and so
//! is the first of its items: they are in a row, since the items of a lane come in order and need steps in that order.

use crate::store::Store;
use crate::store::log::{Entry, Log};
use crate::store::table::{Origin, Table};

/// The most chunks that one change reclaims because no item needs them. An insert adds one, so this catches up with a
/// chunk that was needed for long, without holding up the callers.
const UNNEEDED_MAX: usize = 4096;

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

    /// Counts the items just stored for the first chunk that each needs.
    pub(super) fn count_needed(&mut self) {
        for item in &self.items {
            let table = &self.tables[usize::from(item.table)];
            if table.holds(item.slot, item.number) {
                count_for(&mut self.log, table.origin(item.slot));
            }
        }
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
        let first = self.tables[table].origin(slot).first_chunk();
        self.log.entry_mut(first).expect("an item does not outlive its chunks").needed -= 1;
        self.tables[table].remove(slot);
    }

    /// Reclaims the oldest chunk, and removes the items that need it.
    pub(super) fn reclaim_oldest(&mut self) {
        let Some(oldest) = self.log.oldest() else { return };
        let entry = *self.log.entry(oldest).expect("it is the oldest");
        if entry.needed > 0 {
            self.reclaim_items(oldest, entry);
        }
        if let Some(record) = self.log.record(oldest) {
            self.lanes.persist_cursor(record.lane(), oldest);
        }
        self.log.drop_oldest();
    }

    /// Removes the items that need the oldest chunk. The first of them is in the chunk that its entry names, and they are
    /// in a row: no other item is visited.
    fn reclaim_items(&mut self, oldest: u64, entry: Entry) {
        let mut chunk = entry.first_carrier;
        while let Some(record) = self.log.record(chunk) {
            self.log.count_walked(1);
            let items = record.items();
            let own = items.partition_point(|item| item.from() < entry.first_step)
                ..items.partition_point(|item| item.from() < entry.end());
            for at in own {
                let item = self.log.record(chunk).expect("the record is still stored").items()[at];
                self.log.count_walked(1);
                let table = usize::from(item.table);
                let held = |table: &Table| table.holds(item.slot, item.number);
                if self.tables.get(table).is_some_and(held) {
                    self.remove_item(table, item.slot);
                    self.tables[table].counters.reclaimed_items += 1;
                }
            }
            if self.log.entry(oldest).is_none_or(|entry| entry.needed == 0) {
                return;
            }
            chunk = self.log.entry(chunk).map_or(0, |entry| entry.next);
        }
    }

    /// Reclaims the oldest chunks as long as neither a stored nor a future item needs them, [`UNNEEDED_MAX`] at most.
    pub(super) fn reclaim_unneeded(&mut self) {
        for _ in 0..UNNEEDED_MAX {
            let Some(oldest) = self.log.oldest() else { break };
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

/// Counts an item for the first chunk that it needs.
pub(super) fn count_for(log: &mut Log, origin: Origin) {
    let first = log.entry_mut(origin.first_chunk()).expect("an item does not outlive its chunks");
    if first.needed == 0 {
        first.first_carrier = origin.chunk;
    }
    first.needed += 1;
}
