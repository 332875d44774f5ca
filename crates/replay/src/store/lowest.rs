//! Which item has the lowest priority, under constant change.
//!
//! A heap that is never searched: a new priority is a new entry, and an entry whose item is gone or has
//! another priority by now is passed over when it comes up. When most entries are of that kind, they all go.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use value::priority::Priority;

#[derive(Clone, Copy, PartialEq)]
struct Entry {
    priority: f64,
    number: u64,
    slot: u32,
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.total_cmp(&other.priority).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The items of a table by priority, the lowest first, the oldest of equals first.
#[derive(Default)]
pub(crate) struct Lowest {
    heap: BinaryHeap<Reverse<Entry>>,
}

impl Lowest {
    pub fn push(&mut self, slot: u32, number: u64, priority: Priority) {
        self.heap.push(Reverse(Entry { priority: priority.get(), number, slot }));
    }

    /// Takes out the lowest item for which `holds` says that its slot has this number and this priority.
    pub fn pop(&mut self, holds: impl Fn(u32, u64, f64) -> bool) -> Option<u32> {
        loop {
            let Reverse(Entry { priority, number, slot }) = self.heap.pop()?;
            if holds(slot, number, priority) {
                return Some(slot);
            }
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Drops the entries that no longer hold, once they are the most. An item whose priority came back to what it
    /// had been has several that do.
    pub fn tidy(&mut self, live: usize, holds: impl Fn(u32, u64, f64) -> bool) {
        if self.heap.len() > 2 * live + 64 {
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|Reverse(entry)| holds(entry.slot, entry.number, entry.priority));
            entries.sort_unstable();
            entries.dedup();
            self.heap = entries.into();
        }
    }
}
