//! The least that any replay does with frames: copies them into a large memory, and out of random places of it.
//!
//! It stands beside the service. No messages, no checksums, no priorities, no other process; the frames are the same.

use std::hint::black_box;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::recording::Packed;

/// Packed frames one after the other.
pub struct Store {
    frames: Arc<Packed>,
    memory: Vec<u8>,
    /// Where each frame begins, and where the last one ends.
    starts: Vec<usize>,
    /// The frame that is written next.
    next: usize,
    /// What is read goes here.
    out: Vec<u8>,
    rng: ChaCha8Rng,
}

impl Store {
    /// A store full of so many frames: these, over and over.
    pub fn new(frames: Arc<Packed>, count: usize) -> Self {
        let (mut memory, mut starts) = (Vec::new(), vec![0]);
        for frame in frames.iter().cycle().take(count) {
            memory.extend_from_slice(frame);
            starts.push(memory.len());
        }
        Self { frames, memory, starts, next: 0, out: Vec::new(), rng: ChaCha8Rng::seed_from_u64(7) }
    }

    /// Writes the next `count` frames over the oldest ones. Gives the bytes.
    pub fn write(&mut self, count: usize) -> usize {
        let mut bytes = 0;
        for _ in 0..count {
            let (place, frame) = (self.next, &self.frames[self.next % self.frames.len()]);
            self.memory[self.starts[place]..self.starts[place + 1]].copy_from_slice(frame);
            self.next = (place + 1) % (self.starts.len() - 1);
            bytes += frame.len();
        }
        bytes
    }

    /// Reads `items` times `frames` consecutive frames. Gives the bytes.
    pub fn read(&mut self, items: usize, frames: usize) -> usize {
        self.out.clear();
        for _ in 0..items {
            let first = self.rng.random_range(0..self.starts.len() - frames);
            self.out.extend_from_slice(&self.memory[self.starts[first]..self.starts[first + frames]]);
        }
        black_box(&self.out).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_goes_round_and_what_is_read_is_counted() {
        let frames: Arc<Packed> = Arc::new(vec![Box::from([1, 2]), Box::from([3, 4])]);
        let mut store = Store::new(frames, 5);
        assert_eq!(store.memory, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]);
        assert_eq!((store.write(3), store.next), (6, 3));
        assert_eq!((store.write(4), store.next), (8, 2));
        assert_eq!(store.memory.len(), 10);
        assert_eq!(store.read(7, 5), 70);
    }
}
