//! A way to know that an item is what the writers sent.

use super::writer::Played;
pub use crate::testing::contents::{Item, contents};

impl Item {
    /// The item without its mutable fields.
    pub fn what(&self) -> Item {
        Item { priority: 0.0, times_sampled: 0, ..self.clone() }
    }

    /// Number of the step that its frames begin with.
    pub fn from(&self) -> u64 {
        self.first + self.length as u64 + 1 - self.frames.len() as u64
    }

    /// Panics unless it is made of what its lane's writer played.
    pub fn check(&self, played: &[Played]) {
        let played = &played[self.from() as usize..];
        let frames = played.iter().map(|played| (played.frame.clone(), played.step.key_frame));
        assert!(self.frames.iter().cloned().eq(frames.take(self.frames.len())));
        assert!(self.frames[0].1);
        let before = self.frames.len() - self.length - 1;
        let taken = played[before..].iter().map(|played| played.step.taken);
        assert!(self.steps.iter().copied().map(Some).eq(taken.take(self.length)));
        let stack = &played[self.lead + 1..=before];
        assert!(
            !stack.iter().any(|played| played.step.starts_episode),
            "a stack reaches into the episode before"
        );
    }
}
