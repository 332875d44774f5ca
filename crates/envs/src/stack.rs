//! The last few frames as one observation: a single frame does not show which way things move.

use serde::{Deserialize, Serialize};

/// The last `k` frames, oldest first, in one piece of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameStack {
    frame_bytes: usize,
    frames: Vec<u8>,
}

impl FrameStack {
    /// A stack of `k` frames of `frame_bytes` bytes, all zero until [`reset`](FrameStack::reset).
    ///
    /// # Panics
    ///
    /// If either is 0.
    pub fn new(k: usize, frame_bytes: usize) -> FrameStack {
        assert!(k > 0 && frame_bytes > 0, "a stack holds at least one frame of at least one byte");
        FrameStack { frame_bytes, frames: vec![0; k * frame_bytes] }
    }

    /// Starts an episode: its first frame, `k` times.
    pub fn reset(&mut self, first: &[u8]) {
        for frame in self.frames.chunks_exact_mut(self.frame_bytes) {
            frame.copy_from_slice(first);
        }
    }

    /// Adds the newest frame and drops the oldest. Moving the others costs less than a microsecond for Atari.
    pub fn push(&mut self, frame: &[u8]) {
        self.frames.copy_within(self.frame_bytes.., 0);
        let newest = self.frames.len() - self.frame_bytes;
        self.frames[newest..].copy_from_slice(frame);
    }

    /// The frames, oldest first.
    pub fn as_slice(&self) -> &[u8] {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_episode_starts_with_its_first_frame_repeated() {
        let mut stack = FrameStack::new(3, 2);
        stack.push(&[9, 9]);
        stack.reset(&[1, 2]);
        assert_eq!(stack.as_slice(), [1, 2, 1, 2, 1, 2]);
    }

    proptest! {
        #[test]
        fn holds_the_last_k_frames_in_order(
            k in 1usize..6,
            frames in prop::collection::vec(any::<[u8; 3]>(), 1..20),
        ) {
            let mut stack = FrameStack::new(k, 3);
            stack.reset(&frames[0]);
            let mut seen = vec![frames[0]; k];
            for frame in &frames[1..] {
                stack.push(frame);
                seen.push(*frame);
            }
            prop_assert_eq!(stack.as_slice(), seen[seen.len() - k..].concat());
        }

        #[test]
        fn survives_serialization(frames in prop::collection::vec(any::<[u8; 3]>(), 1..9)) {
            let mut stack = FrameStack::new(4, 3);
            for frame in &frames {
                stack.push(frame);
            }
            let bytes = postcard::to_stdvec(&stack).unwrap();
            prop_assert_eq!(postcard::from_bytes::<FrameStack>(&bytes).unwrap(), stack);
        }
    }
}
