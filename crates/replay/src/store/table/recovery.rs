//! How a table takes up the items that a former process left in its slots.

use bytemuck::Zeroable;
use value::priority::Priority;

use super::{NONE, Origin, Place, Table};
use crate::store::slot::Slot;

/// What became of an item, as far as its slot knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Kept,
    Gone,
    /// The slot is damaged, or older than the ring.
    Unknown,
}

impl Table {
    /// Everything is taken for vacant from here on, until [`Table::readmit`] takes an item up again.
    pub(crate) fn begin_recovery(&mut self) {
        let slots: &[Slot] = bytemuck::cast_slice(&self.slots);
        let used = slots.iter().rposition(|slot| *slot != Slot::zeroed()).map_or(0, |last| last + 1);
        self.fresh = used as u32;
    }

    /// How many slots have an item, of a number below this, that was not taken up again.
    pub(crate) fn unclaimed(&self, below: u64) -> u64 {
        let known = |slot: Slot| slot.is_sound() && !slot.is_vacant() && slot != Slot::zeroed();
        let lost =
            |slot: &u32| known(self.slot(*slot)) && self.number(*slot) < below && !self.is_taken(*slot);
        (0..self.fresh).filter(lost).count() as u64
    }

    /// Whether an item can be taken up: into a slot of its own, and after all that are older.
    pub(crate) fn can_readmit(&self, slot: u32, number: u64) -> bool {
        !self.is_taken(slot) && (self.newest == NONE || self.number(self.newest) < number)
    }

    /// Whether an item was taken up into a slot already.
    fn is_taken(&self, slot: u32) -> bool {
        self.places.get(slot as usize).is_some_and(|place| place.chunk != 0)
    }

    /// What a slot says of the item that the ring has for it.
    pub(crate) fn fate(&self, slot: u32, number: u64) -> Fate {
        match self.slot(slot) {
            content if content == Slot::zeroed() || !content.is_sound() => Fate::Unknown,
            content if content.number < number => Fate::Unknown,
            content if content.number == number && !content.is_vacant() => Fate::Kept,
            _ => Fate::Gone,
        }
    }

    /// Takes an item of a former life up again, with what its slot says or, if that is lost, with its first
    /// priority. Items come in order of their numbers.
    pub(crate) fn readmit(&mut self, slot: u32, number: u64, origin: Origin, lost: Option<Priority>) {
        let Slot { priority, times_sampled, .. } = self.slot(slot);
        let kept = || (Priority::try_new(priority).expect("checked with the slot"), times_sampled);
        let (priority, times_sampled) = lost.map_or_else(kept, |priority| (priority, 0));
        self.fresh = self.fresh.max(slot + 1);
        self.raise_largest_priority(priority);
        self.settle(slot, number, origin, priority, times_sampled);
    }

    /// If the newest item that the ring has for a slot was not taken up, it has left: the next recovery shall not try
    /// again, when the ring may be another.
    pub(crate) fn give_up(&mut self, slot: u32, number: u64) {
        if !self.is_taken(slot) {
            self.fresh = self.fresh.max(slot + 1);
            self.write_slot(slot, Slot::vacant(number));
        }
    }

    /// After the last [`Table::readmit`]: what was not taken up is vacant. `free` is the order in which vacant
    /// slots are used, the last first, if it is known.
    pub(crate) fn close_gaps(&mut self, free: Option<Vec<u32>>) -> bool {
        let mut vacant = vec![true; self.fresh as usize];
        self.by_age().collect::<Vec<_>>().into_iter().for_each(|slot| vacant[slot as usize] = false);
        let mut listed: Vec<u32> = (0..self.fresh).rev().filter(|&slot| vacant[slot as usize]).collect();
        let newest = self.next_number.saturating_sub(1);
        for &slot in &listed {
            let known = Some(self.slot(slot)).filter(Slot::is_sound).map_or(newest, |slot| slot.number);
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
        self.places.resize(self.fresh as usize, Place { chunk: 0, at: 0, older: NONE, newer: NONE });
        self.rebuild();
        true
    }
}
