//! The item of lowest priority, while priorities keep changing.
//!
//! A heap with lazy deletion: each new priority adds an entry. An entry whose item was removed or has another priority
//! by now is skipped when it reaches the top. When most entries are outdated, all of those are dropped.

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

/// The items of a table by priority, lowest first. Among equal priorities, the oldest first.
#[derive(Default)]
pub(crate) struct Lowest {
    heap: BinaryHeap<Reverse<Entry>>,
}

impl Lowest {
    pub fn push(&mut self, slot: u32, number: u64, priority: Priority) {
        self.heap.push(Reverse(Entry { priority: priority.get(), number, slot }));
    }

    /// Removes the lowest entry that is current and returns its slot. `holds` tells whether a slot has this number and
    /// priority.
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

    /// Drops outdated entries once they are the majority. Also drops duplicates: an item whose priority returned to an
    /// earlier value has several current entries.
    pub fn compact(&mut self, live: usize, holds: impl Fn(u32, u64, f64) -> bool) {
        if self.heap.len() > 2 * live + 64 {
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|Reverse(entry)| holds(entry.slot, entry.number, entry.priority));
            entries.sort_unstable();
            entries.dedup();
            self.heap = entries.into();
        }
    }
}
