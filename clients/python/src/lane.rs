//! One environment's steps and items that are compressed but not sent yet.

use proto::StoreSpec;
use proto::limits::{CHUNK_ITEMS_MAX, INSERT_BYTES_MAX};
use pyo3::PyResult;
use replay::codec::{Codec, Encoder};
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, Taken};

use crate::error::invalid;
use crate::lease::{LanePosition, Lease};

/// Maximum items that one frame may complete.
pub const ITEMS_AT_ONCE: usize = CHUNK_ITEMS_MAX / 2;

/// The unsent steps and items of a lane, and the lane's position.
pub struct Lane {
    key: LaneKey,
    codec: Codec,
    frame_bytes: usize,
    encoder: Encoder,
    chunk_steps: usize,
    /// Maximum steps of an item.
    max_length: u64,
    steps: Vec<Step>,
    frames: Vec<u8>,
    items: Vec<NewItem>,
    sequence: u64,
    next_step: u64,
    episode: Episode,
    /// First step of the newest item: items must be in the order of their first steps.
    last_first: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Episode {
    /// The next step begins an episode.
    Between { first: u64 },
    /// An episode that began with step `first` is open.
    Open { first: u64 },
    /// The last step ended the episode; its last frame must follow.
    Ended { first: u64 },
}

/// Packs a whole episode into a lane, chunk by chunk.
pub struct EpisodePacker<'a> {
    frames: &'a [u8],
    taken: &'a [Taken],
    priorities: &'a [InitialPriority],
    tables: &'a [u8],
    length: u64,
    /// Number of frames and items already packed.
    step: usize,
    item: usize,
}

impl<'a> EpisodePacker<'a> {
    /// `frames` has one frame more than `taken`, and `priorities` one entry per step. Items have `length` steps, fewer
    /// at the end of the episode.
    pub fn new(
        frames: &'a [u8],
        taken: &'a [Taken],
        priorities: &'a [InitialPriority],
        tables: &'a [u8],
        length: u64,
    ) -> Self {
        Self { frames, taken, priorities, tables, length, step: 0, item: 0 }
    }

    /// Packs frames until the lane must send a chunk. True if the episode is complete.
    pub fn pack(&mut self, lane: &mut Lane) -> bool {
        let total = self.taken.len();
        while self.step <= total {
            if lane.is_full() {
                return false;
            }
            let frame = &self.frames[self.step * lane.frame_bytes..][..lane.frame_bytes];
            lane.push(frame, self.taken.get(self.step).copied());
            // Add all items that this frame completes.
            while self.item < total && (self.item + self.length as usize).min(total) <= self.step {
                let length = (self.length as usize).min(total - self.item) as u8;
                let first = lane.next_step - 1 - (self.step - self.item) as u64;
                let priority = self.priorities[self.item];
                lane.items.extend(self.tables.iter().map(|&table| NewItem {
                    first,
                    length,
                    priority,
                    table,
                }));
                lane.last_first = first;
                self.item += 1;
            }
            self.step += 1;
        }
        true
    }
}

/// A lane's position to which [`Lane::rollback`] returns.
pub struct Savepoint {
    sequence: u64,
    next_step: u64,
    steps: usize,
    frames: usize,
    items: usize,
    last_first: u64,
}

impl Lane {
    /// A lane that continues at the position of its lease.
    pub fn new(lease: &Lease, spec: &StoreSpec, chunk_steps: usize) -> Self {
        let LanePosition { sequence, next_step } = lease.from;
        Self {
            key: lease.key,
            codec: spec.codec,
            frame_bytes: spec.options.frame_bytes,
            encoder: Encoder::new(spec.codec, spec.options.frame_bytes),
            chunk_steps,
            max_length: spec.options.max_length.into(),
            steps: Vec::new(),
            frames: Vec::new(),
            items: Vec::new(),
            sequence,
            next_step,
            episode: Episode::Between { first: next_step },
            last_first: 0,
        }
    }

    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Number of unsent steps.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The position at which the next writer of the lane continues.
    pub fn position(&self) -> LanePosition {
        LanePosition { sequence: self.sequence, next_step: self.next_step }
    }

    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            sequence: self.sequence,
            next_step: self.next_step,
            steps: self.steps.len(),
            frames: self.frames.len(),
            items: self.items.len(),
            last_first: self.last_first,
        }
    }

    /// Removes everything added since the savepoint. If a part has already been sent, the rest is abandoned.
    pub fn rollback(&mut self, savepoint: &Savepoint) {
        if self.sequence != savepoint.sequence {
            return self.abandon();
        }
        self.steps.truncate(savepoint.steps);
        self.frames.truncate(savepoint.frames);
        self.items.truncate(savepoint.items);
        (self.next_step, self.last_first) = (savepoint.next_step, savepoint.last_first);
        self.episode = Episode::Between { first: self.next_step };
        self.encoder = Encoder::new(self.codec, self.frame_bytes);
    }

    /// Whether the chunk must be sent before another frame is added, which may be large and complete many items.
    pub fn is_full(&self) -> bool {
        self.steps.len() >= self.chunk_steps
            || self.items.len() + ITEMS_AT_ONCE > CHUNK_ITEMS_MAX
            || self.frames.len() > INSERT_BYTES_MAX / 4
    }

    pub fn may_begin(&self) -> PyResult<()> {
        match self.episode {
            Episode::Between { .. } => Ok(()),
            _ => Err(invalid("an episode is open: call end() or abandon() first")),
        }
    }

    pub fn may_act(&self) -> PyResult<()> {
        match self.episode {
            Episode::Ended { .. } => Err(invalid("the episode has ended: pass its last frame to end()")),
            _ => Ok(()),
        }
    }

    pub fn may_end(&self) -> PyResult<()> {
        match self.episode {
            Episode::Ended { .. } => Ok(()),
            _ => Err(invalid(
                "no step has ended the episode: set terminated or truncated in its last append()",
            )),
        }
    }

    pub fn push(&mut self, frame: &[u8], taken: Option<Taken>) {
        let before = self.frames.len();
        let key_frame = self.encoder.encode_into(frame, &mut self.frames);
        let frame_bytes = (self.frames.len() - before) as u32;
        let (starts_episode, first) = match self.episode {
            Episode::Between { .. } => (true, self.next_step),
            Episode::Open { first } | Episode::Ended { first } => (false, first),
        };
        self.episode = match taken {
            None => Episode::Between { first },
            Some(taken) if taken.ends_episode() => Episode::Ended { first },
            Some(_) => Episode::Open { first },
        };
        self.steps.push(Step { frame_bytes, key_frame, starts_episode, taken });
        self.next_step += 1;
    }

    /// Checks the length of items against the shard's configuration.
    pub fn check_length(&self, length: u64) -> PyResult<()> {
        if (1..=self.max_length).contains(&length) {
            return Ok(());
        }
        Err(invalid(format!(
            "length is {length}, must be 1 to {}, the max_length with which the shard was created",
            self.max_length
        )))
    }

    pub fn item(&mut self, length: u64, priority: InitialPriority, table: u8) -> PyResult<()> {
        let (Episode::Between { first } | Episode::Open { first } | Episode::Ended { first }) = self.episode;
        if self.steps.is_empty() {
            return Err(invalid("add items before flush(), while their last frame is not sent yet"));
        }
        let steps = self.next_step - 1 - first;
        self.check_length(length)?;
        if length > steps {
            return Err(invalid(format!(
                "length is {length}, but there are {steps} steps before the last frame"
            )));
        }
        let first = self.next_step - 1 - length;
        if first < self.last_first {
            return Err(invalid(
                "items must be in the order of their first steps: an earlier item begins later",
            ));
        }
        if self.items.len() == CHUNK_ITEMS_MAX {
            return Err(invalid(format!(
                "{} items since the last sent step, which is the maximum",
                self.items.len()
            )));
        }
        self.last_first = first;
        self.items.push(NewItem { first, length: length as u8, priority, table });
        Ok(())
    }

    /// Drops everything unsent. The shard sees a gap in the lane, after which any step may follow.
    pub fn abandon(&mut self) {
        if self.steps.is_empty() && matches!(self.episode, Episode::Between { .. }) {
            return;
        }
        self.take();
        self.encoder = Encoder::new(self.codec, self.frame_bytes);
        self.episode = Episode::Between { first: self.next_step };
    }

    pub fn take(&mut self) -> Chunk {
        let steps = std::mem::take(&mut self.steps);
        let first_step = self.next_step - steps.len() as u64;
        let sequence = self.sequence;
        self.sequence += 1;
        let frames = std::mem::take(&mut self.frames).into();
        let items = std::mem::take(&mut self.items);
        Chunk { lane: self.key, sequence, first_step, steps, frames, items }
    }
}
