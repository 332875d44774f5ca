//! The byte ring that holds all packed frames.
//!
//! One allocation, made once, so the byte cap cannot be exceeded. Frames go in at the head and out
//! at the tail, strictly in that order. A frame is never split: if it does not fit before the end
//! it goes to the beginning, and the bytes it skipped come back when the tail passes them. Where a
//! frame goes depends only on the head and on its length, which is why a save needs the first
//! frame's place and the lengths, and nothing else.
//!
//! This is the part that later moves into a memory-mapped file; positions are offsets for that
//! reason.

use crate::OptionsError;

pub(crate) struct ByteRing {
    bytes: Box<[u8]>,
    head: usize,
    tail: usize,
    /// Where the tail turns back to 0, while the head already has.
    lap_end: Option<usize>,
    /// Bytes of live frames, without what was skipped.
    used: usize,
}

impl ByteRing {
    /// A ring of `size` bytes. The memory is the system's until it is written to.
    pub fn new(size: usize) -> Result<Self, OptionsError> {
        reserve(size)?;
        Ok(Self { bytes: vec![0; size].into(), head: 0, tail: 0, lap_end: None, used: 0 })
    }

    /// Where a frame of `length` bytes can go now, or `None` if older ones must go first.
    pub fn place(&self, length: usize) -> Option<usize> {
        let end = self.bytes.len();
        if self.used == 0 {
            (length <= end).then_some(0)
        } else if self.lap_end.is_some() {
            (self.head + length <= self.tail).then_some(self.head)
        } else if self.head + length <= end {
            Some(self.head)
        } else {
            (length <= self.tail).then_some(0)
        }
    }

    /// Takes a place that [`Self::place`] gave, or any place in an empty ring, to be filled.
    pub fn take(&mut self, place: usize, length: usize) -> &mut [u8] {
        debug_assert!(length > 0, "a frame without bytes could not be told from no frame");
        if self.used == 0 {
            self.tail = place;
        } else if place != self.head {
            self.lap_end = Some(self.head);
        }
        self.head = place + length;
        self.used += length;
        &mut self.bytes[place..place + length]
    }

    /// Gives back the oldest frame's bytes.
    pub fn release_oldest(&mut self, length: usize) {
        debug_assert!(length <= self.used);
        self.used -= length;
        self.tail += length;
        if self.lap_end == Some(self.tail) {
            self.tail = 0;
            self.lap_end = None;
        }
        if self.used == 0 {
            (self.head, self.tail, self.lap_end) = (0, 0, None);
        }
    }

    /// The frame at a place.
    pub fn get(&self, place: usize, length: usize) -> &[u8] {
        &self.bytes[place..place + length]
    }

    pub fn used(&self) -> usize {
        self.used
    }

    /// Where the oldest frame lies.
    pub fn tail(&self) -> usize {
        self.tail
    }

    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// Asks for memory and gives it back, so that a size out of reach is an error and not an abort.
pub(crate) fn reserve(bytes: usize) -> Result<(), OptionsError> {
    let mut trial = Vec::<u8>::new();
    trial.try_reserve_exact(bytes).map_err(|_| OptionsError::Memory { bytes })?;
    // Without this the optimiser may drop an allocation that nobody looks at.
    std::hint::black_box(&mut trial);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// A map of who owns each byte: live frames never overlap, nothing is reclaimed while the
        /// place decided by head and length alone is free.
        #[test]
        fn frames_never_overlap_and_leave_in_order(
            size in 10usize..60,
            lengths in prop::collection::vec(1usize..10, 1..300),
        ) {
            let mut ring = ByteRing::new(size).unwrap();
            let mut live: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
            let mut head = 0;
            for (number, length) in lengths.into_iter().enumerate() {
                let place = loop {
                    let start = match live.len() {
                        0 => 0,
                        _ if head + length <= size => head,
                        _ => 0,
                    };
                    let taken = live.iter().any(|(at, frame)| {
                        start < at + frame.len() && *at < start + length
                    });
                    prop_assert_eq!(ring.place(length), (!taken).then_some(start));
                    if !taken {
                        break start;
                    }
                    let (_, oldest) = live.pop_front().unwrap();
                    ring.release_oldest(oldest.len());
                };
                let frame = vec![number as u8; length];
                ring.take(place, length).copy_from_slice(&frame);
                live.push_back((place, frame));
                head = place + length;
                for (at, frame) in &live {
                    prop_assert_eq!(ring.get(*at, frame.len()), &frame[..]);
                }
                prop_assert_eq!(ring.used(), live.iter().map(|(_, f)| f.len()).sum::<usize>());
                prop_assert_eq!(ring.tail(), live[0].0);
            }
        }
    }

    #[test]
    fn a_size_out_of_reach_is_an_error() {
        assert!(matches!(ByteRing::new(usize::MAX / 2), Err(OptionsError::Memory { .. })));
    }
}
