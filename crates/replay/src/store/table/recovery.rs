//! Recovers the items of a table from the slots of a former process.

use bytemuck::Zeroable;
use value::priority::Priority;

use super::{ItemNode, NONE, Origin, Table};
use crate::store::slot::Slot;

/// The state of an item by its slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ItemState {
    Stored,
    Removed,
    /// The slot is damaged, or older than the ring.
    Unknown,
}

impl Table {
    /// Treats all slots as vacant until [`Table::recover_item`] recovers their items.
    pub(crate) fn start_recovery(&mut self) {
        let slots: &[Slot] = bytemuck::cast_slice(&self.slots);
        let used = slots.iter().rposition(|slot| *slot != Slot::zeroed()).map_or(0, |last| last + 1);
        self.fresh = used as u32;
    }

    /// How many slots name an item with a number below this that was not recovered.
    pub(crate) fn count_unrecovered(&self, below: u64) -> u64 {
        let known = |slot: Slot| slot.is_valid() && !slot.is_vacant() && slot != Slot::zeroed();
        let lost =
            |slot: &u32| known(self.slot(*slot)) && self.number(*slot) < below && !self.is_recovered(*slot);
        (0..self.fresh).filter(lost).count() as u64
    }

    /// Whether an item can be recovered: its slot must be vacant, and all recovered items must be older.
    pub(crate) fn can_recover(&self, slot: u32, number: u64) -> bool {
        !self.is_recovered(slot) && (self.newest == NONE || self.number(self.newest) < number)
    }

    /// Whether an item was recovered into a slot.
    fn is_recovered(&self, slot: u32) -> bool {
        self.nodes.get(slot as usize).is_some_and(|place| place.chunk != 0)
    }

    /// The state of an item of the ring, by its slot.
    pub(crate) fn item_state(&self, slot: u32, number: u64) -> ItemState {
        match self.slot(slot) {
            content if content == Slot::zeroed() || !content.is_valid() => ItemState::Unknown,
            content if content.number < number => ItemState::Unknown,
            content if content.number == number && !content.is_vacant() => ItemState::Stored,
            _ => ItemState::Removed,
        }
    }

    /// Recovers an item, with the priority of its slot or, if that was lost, with `lost`, its initial priority. Call in
    /// order of the numbers of the items.
    pub(crate) fn recover_item(&mut self, slot: u32, number: u64, origin: Origin, lost: Option<Priority>) {
        let Slot { priority, times_sampled, .. } = self.slot(slot);
        let kept = || (Priority::try_new(priority).expect("checked with the slot"), times_sampled);
        let (priority, times_sampled) = lost.map_or_else(kept, |priority| (priority, 0));
        self.fresh = self.fresh.max(slot + 1);
        self.raise_largest_priority(priority);
        self.insert_at(slot, number, origin, priority, times_sampled);
    }

    /// Marks a slot as vacant if the newest item that the ring has for it was not recovered. Otherwise the next
    /// recovery would try again, with other contents of the ring.
    pub(crate) fn vacate_unrecovered(&mut self, slot: u32, number: u64) {
        if !self.is_recovered(slot) {
            self.fresh = self.fresh.max(slot + 1);
            self.write_slot(slot, Slot::vacant(number));
        }
    }

    /// Call after the last [`Table::recover_item`]: marks all other slots as vacant. `free` is the order in which
    /// vacant slots will be used, last first, if known. Returns false, with nothing but the vacant slots written, if
    /// `free` does not match them.
    pub(crate) fn finish_recovery(&mut self, free: Option<Vec<u32>>) -> bool {
        let mut vacant = vec![true; self.fresh as usize];
        self.by_age().collect::<Vec<_>>().into_iter().for_each(|slot| vacant[slot as usize] = false);
        let mut listed: Vec<u32> = (0..self.fresh).rev().filter(|&slot| vacant[slot as usize]).collect();
        let newest = self.next_number.saturating_sub(1);
        for &slot in &listed {
            let known = Some(self.slot(slot)).filter(Slot::is_valid).map_or(newest, |slot| slot.number);
            self.write_slot(slot, Slot::vacant(known.min(newest)));
        }
        if let Some(free) = free {
            let mut sorted = free.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            if sorted != listed {
                return false;
            }
            listed = free;
        }
        self.free = listed;
        self.nodes.resize(self.fresh as usize, ItemNode::VACANT);
        self.rebuild();
        true
    }
}
