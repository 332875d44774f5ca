//! An item as it is stored, and as it is looked at.

use serde::{Deserialize, Serialize};
use value::priority::Priority;

use crate::chunk::{LaneKey, Taken};
use crate::key::ItemKey;
use crate::lane::Segment;
use crate::ring::ByteRing;

/// An item as it is stored: 40 bytes. Frames and steps are in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ItemRecord {
    /// How many items had been inserted before it; its key's generation.
    pub number: u64,
    pub first: u64,
    pub priority: Priority,
    pub segment: u32,
    pub times_sampled: u32,
    /// 0 marks a vacant slot.
    pub length: u8,
}

impl ItemRecord {
    pub fn is_live(&self) -> bool {
        self.length > 0
    }
}

/// One item, borrowed from its table. Nothing is copied or unpacked.
#[derive(Clone, Copy)]
pub struct ItemView<'a> {
    pub(crate) key: ItemKey,
    pub(crate) record: &'a ItemRecord,
    pub(crate) segment: &'a Segment,
    pub(crate) ring: &'a ByteRing,
    pub(crate) stack: usize,
    /// Items inserted into the table so far.
    pub(crate) inserts: u64,
}

impl<'a> ItemView<'a> {
    /// The distinct packed frames of state, steps and next state, oldest first: from 2 up to
    /// `stack + length` of them.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let first = self.index(self.record.first) - self.before();
        let last = self.index(self.record.first) + self.length();
        let ring = self.ring;
        let steps = self.segment.steps.range(first..=last);
        steps.map(move |step| ring.get(step.place, step.length as usize))
    }

    /// For each of the `stack` frames of the state, oldest first, its index in [`Self::frames`].
    /// Before the start of the episode its first frame repeats.
    pub fn state(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        stack_at(self.before(), self.stack)
    }

    /// The same for the state after the last action.
    pub fn next_state(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        stack_at(self.before() + self.length(), self.stack)
    }

    /// What was done, step by step: [`Self::length`] of them.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Taken> + Clone + use<'a> {
        let first = self.index(self.record.first);
        let steps = self.segment.steps.range(first..first + self.length());
        steps.map(|step| step.taken().expect("insert refuses items with a final observation inside"))
    }

    /// The priority as it was given, before constant and exponent.
    pub fn priority(&self) -> Priority {
        self.record.priority
    }

    /// The item's name.
    pub fn key(&self) -> ItemKey {
        self.key
    }

    /// Which lane it came from.
    pub fn lane(&self) -> LaneKey {
        self.segment.lane
    }

    /// Number in the lane of its first step.
    pub fn first_step(&self) -> u64 {
        self.record.first
    }

    /// Number of actions between state and next state.
    pub fn length(&self) -> usize {
        usize::from(self.record.length)
    }

    /// How often it has been drawn.
    pub fn times_sampled(&self) -> u32 {
        self.record.times_sampled
    }

    /// How many items have been inserted after it.
    pub fn age_inserts(&self) -> u64 {
        self.inserts - 1 - self.record.number
    }

    fn index(&self, step: u64) -> usize {
        (step - self.segment.first_step) as usize
    }

    /// Frames of the state before its newest one.
    fn before(&self) -> usize {
        let start = self.segment.window_start(self.record.first, self.stack);
        (self.record.first - start.expect("an item does not outlive its frames")) as usize
    }
}

/// Indices of a stack whose newest frame has index `newest`, frame 0 standing in for what lies
/// before it.
pub fn stack_at(newest: usize, stack: usize) -> impl ExactSizeIterator<Item = usize> {
    (0..stack).map(move |position| (newest + position + 1).saturating_sub(stack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_record_is_small() {
        assert_eq!(size_of::<ItemRecord>(), 40);
    }

    #[test]
    fn a_stack_repeats_the_episodes_first_frame() {
        let check = |newest, expected: [usize; 4]| {
            assert!(stack_at(newest, 4).eq(expected), "{newest}");
        };
        check(0, [0, 0, 0, 0]);
        check(1, [0, 0, 0, 1]);
        check(3, [0, 1, 2, 3]);
        check(5, [2, 3, 4, 5]);
    }
}
