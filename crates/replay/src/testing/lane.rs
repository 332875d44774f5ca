//! One lane's chunks, in order.

use std::mem;
use std::ops::Range;

use crate::codec::{Codec, Encoder};
use crate::{Chunk, LaneKey, NewItem, Step, Taken};

/// The writer of one lane: collects steps and cuts them into numbered chunks.
///
/// ```
/// use replay::testing::{LaneBuilder, one_step, options, taken};
///
/// let mut store = replay::Store::new(options(), 1).unwrap();
/// let mut lane = LaneBuilder::new(replay::LaneKey { actor: 0, incarnation: 1, lane: 0 });
/// for number in 0..5 {
///     lane.push(&[number as u8], Some(taken(number)));
/// }
/// let chunk = lane.chunk(lane.completed().map(|first| one_step(first, 1.0)));
/// assert_eq!(store.insert(&chunk).unwrap().items, 4);
/// ```
pub struct LaneBuilder {
    key: LaneKey,
    /// Without one, frames of any size are stored as they are.
    encoder: Option<Encoder>,
    sequence: u64,
    next_step: u64,
    starts_episode: bool,
    /// The steps of the next chunk and their packed frames.
    steps: Vec<Step>,
    frames: Vec<u8>,
}

impl LaneBuilder {
    /// A new lane whose frames are not packed: each is a key frame and may have any size.
    pub fn new(key: LaneKey) -> Self {
        let (steps, frames) = (Vec::new(), Vec::new());
        Self { key, encoder: None, sequence: 0, next_step: 0, starts_episode: true, steps, frames }
    }

    /// A new lane that packs frames of one size.
    pub fn packed(key: LaneKey, codec: Codec, frame_bytes: usize) -> Self {
        Self { encoder: Some(Encoder::new(codec, frame_bytes)), ..Self::new(key) }
    }

    /// Moves a lane to a later chunk and step. From step 1 on this is in the middle of an episode.
    pub fn at(self, sequence: u64, next_step: u64) -> Self {
        Self { sequence, next_step, starts_episode: next_step == 0, ..self }
    }

    /// Whose chunks these are.
    pub fn key(&self) -> LaneKey {
        self.key
    }

    /// Number of the step that is pushed next.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Adds a step to the next chunk. `None` marks the final observation of an episode; the step after it starts the
    /// next episode.
    pub fn push(&mut self, frame: &[u8], taken: Option<Taken>) {
        let before = self.frames.len();
        let key_frame = match &mut self.encoder {
            Some(encoder) => encoder.encode_into(frame, &mut self.frames),
            None => {
                self.frames.extend_from_slice(frame);
                true
            }
        };
        let frame_bytes = (self.frames.len() - before) as u32;
        let starts_episode = mem::replace(&mut self.starts_episode, taken.is_none());
        self.steps.push(Step { frame_bytes, key_frame, starts_episode, taken });
        self.next_step += 1;
    }

    /// First steps of the one-step transitions that the next chunk completes, including the one from the last step of
    /// the chunk before. Does not know where episodes end.
    pub fn completed(&self) -> Range<u64> {
        self.first_step().saturating_sub(1)..self.next_step.saturating_sub(1)
    }

    /// The next chunk: all steps pushed since the last one, and these items.
    pub fn chunk(&mut self, items: impl IntoIterator<Item = NewItem>) -> Chunk {
        let (first_step, sequence) = (self.first_step(), self.sequence);
        self.sequence += 1;
        let (steps, frames) = (mem::take(&mut self.steps), mem::take(&mut self.frames).into());
        Chunk { lane: self.key, sequence, first_step, steps, frames, items: items.into_iter().collect() }
    }

    fn first_step(&self) -> u64 {
        self.next_step - self.steps.len() as u64
    }
}
