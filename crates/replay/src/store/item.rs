//! Read access to an item.

use value::priority::Priority;

use crate::chunk::{LaneKey, Taken};
use crate::key::ItemKey;
use crate::store::log::Log;
use crate::store::record::{ItemRecord, Record};

/// One item, borrowed from its store. Copies and decodes nothing.
#[derive(Clone, Copy)]
pub struct ItemView<'a> {
    pub(crate) key: ItemKey,
    pub(crate) log: &'a Log,
    /// The chunk that completed it.
    pub(crate) chunk: u64,
    /// The first chunk that it needs.
    pub(crate) first_chunk: u64,
    pub(crate) record: &'a ItemRecord,
    pub(crate) stack: usize,
    pub(crate) priority: Priority,
    pub(crate) times_sampled: u32,
    pub(crate) age_inserts: u64,
}

impl<'a> ItemView<'a> {
    /// The item's steps, oldest first, in contiguous pieces: each a record and the range of its steps.
    fn pieces(&self) -> impl Iterator<Item = (Record<'a>, std::ops::Range<usize>)> + Clone + use<'a> {
        let (log, from, last) = (self.log, self.record.from(), self.record.last());
        let next = move |&chunk: &u64| {
            log.count_walked(1);
            let entry = log.entry(chunk)?;
            (entry.end() <= last && entry.next != 0).then_some(entry.next)
        };
        std::iter::successors(Some(self.first_chunk), next).map(move |chunk| {
            let record = log.record(chunk).expect("an item does not outlive its chunks");
            let first_step = record.header().first_step;
            let start = from.saturating_sub(first_step) as usize;
            let end = ((last + 1 - first_step) as usize).min(record.steps().len());
            (record, start..end)
        })
    }

    /// The packed frames, oldest first, in as few contiguous pieces as possible: [`Self::lead`] frames that serve only
    /// to decode the others, then those of state, steps and next state.
    pub fn frame_pieces(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.pieces().map(|(record, steps)| record.frames(steps))
    }

    /// The same frames one by one, and whether each is a key frame.
    pub fn frames(&self) -> impl Iterator<Item = (&'a [u8], bool)> + Clone + use<'a> {
        self.pieces().flat_map(|(record, steps)| {
            steps.map(move |step| (record.frames(step..step + 1), record.steps()[step].since_key == 0))
        })
    }

    /// How many of the first [`Self::frames`] serve only to decode the others.
    pub fn lead(&self) -> usize {
        usize::from(self.record.back) - self.before()
    }

    /// For each of the `stack` frames of the state, oldest first, its index among the frames after the lead.
    /// Before the start of the episode its first frame repeats.
    pub fn state(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        stack_at(self.before(), self.stack)
    }

    /// The same for the state after the last action.
    pub fn next_state(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        stack_at(self.before() + self.length(), self.stack)
    }

    /// The [`Self::length`] actions and their results.
    pub fn steps(&self) -> impl Iterator<Item = Taken> + Clone + use<'a> {
        let (first, last) = (self.record.first, self.record.last());
        self.pieces().flat_map(move |(record, steps)| {
            let first_step = record.header().first_step;
            let index = |step: u64| (step.saturating_sub(first_step) as usize).clamp(steps.start, steps.end);
            let own = &record.steps()[index(first)..index(last)];
            own.iter().map(|step| step.taken().expect("insert refuses items with a final observation inside"))
        })
    }

    /// The priority last assigned, without constant and exponent.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    pub fn key(&self) -> ItemKey {
        self.key
    }

    pub fn lane(&self) -> LaneKey {
        self.log.record(self.chunk).expect("an item does not outlive its chunks").lane()
    }

    /// Number in the lane of the item's first step.
    pub fn first_step(&self) -> u64 {
        self.record.first
    }

    /// Number of actions between state and next state.
    pub fn length(&self) -> usize {
        usize::from(self.record.length)
    }

    /// How often the item was sampled.
    pub fn times_sampled(&self) -> u32 {
        self.times_sampled
    }

    /// How many items were inserted into the table after it.
    pub fn age_inserts(&self) -> u64 {
        self.age_inserts
    }

    /// How many distinct frames the state has before its newest one.
    fn before(&self) -> usize {
        let mut ahead = usize::from(self.record.back);
        let step = self.pieces().find_map(|(record, steps)| {
            let at = steps.start + ahead;
            ahead = ahead.saturating_sub(steps.len());
            steps.contains(&at).then(|| record.steps()[at])
        });
        let since_start = step.expect("an item does not outlive its steps").since_start;
        (self.stack - 1).min(usize::from(since_start))
    }
}

/// Indices of a stack whose newest frame has index `newest`. Frame 0 repeats where the stack reaches back before it.
fn stack_at(newest: usize, stack: usize) -> impl ExactSizeIterator<Item = usize> {
    (0..stack).map(move |position| (newest + position + 1).saturating_sub(stack))
}

#[cfg(test)]
mod tests {
    use super::*;

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
