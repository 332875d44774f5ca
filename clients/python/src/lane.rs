//! One environment's steps and items, packed and not sent yet.

use proto::StoreSpec;
use proto::limits::{CHUNK_ITEMS_MAX, INSERT_BYTES_MAX};
use pyo3::PyResult;
use replay::codec::{Codec, Encoder};
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, Taken};

use crate::error::invalid;
use crate::lease::{Lease, Mark};

/// Steps of an item.
pub const LENGTH_MAX: u64 = 255;

/// Items that the last frame of an episode may complete.
pub const ITEMS_AT_ONCE: usize = CHUNK_ITEMS_MAX / 2;

/// What is not sent yet, and where the lane stands.
pub struct Lane {
    key: LaneKey,
    codec: Codec,
    frame_bytes: usize,
    encoder: Encoder,
    chunk_steps: usize,
    steps: Vec<Step>,
    frames: Vec<u8>,
    items: Vec<NewItem>,
    sequence: u64,
    next_step: u64,
    episode: Episode,
    /// Items come in order of their first steps.
    last_first: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Episode {
    /// The next step begins one.
    Between { first: u64 },
    /// Its first step.
    Goes { first: u64 },
    /// The last step ended it; its last frame must follow.
    Ended { first: u64 },
}

/// An episode on its way into a lane.
pub struct Whole<'a> {
    frames: &'a [u8],
    taken: &'a [Taken],
    priorities: &'a [InitialPriority],
    tables: &'a [u8],
    length: u64,
    /// Frames and items that are in.
    step: usize,
    item: usize,
}

impl<'a> Whole<'a> {
    /// One frame more than steps, and a priority for each step. Items have `length` steps, fewer at the end.
    pub fn new(
        frames: &'a [u8],
        taken: &'a [Taken],
        priorities: &'a [InitialPriority],
        tables: &'a [u8],
        length: u64,
    ) -> Self {
        Self { frames, taken, priorities, tables, length, step: 0, item: 0 }
    }

    /// Packs frames until the lane has a chunk to send, and says whether all are in.
    pub fn pack(&mut self, lane: &mut Lane) -> bool {
        let total = self.taken.len();
        while self.step <= total {
            if lane.is_full() {
                return false;
            }
            let frame = &self.frames[self.step * lane.frame_bytes..][..lane.frame_bytes];
            lane.push(frame, self.taken.get(self.step).copied());
            // All items that this frame completes.
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

/// Where a lane stood.
pub struct Start {
    sequence: u64,
    next_step: u64,
    steps: usize,
    frames: usize,
    items: usize,
    last_first: u64,
}

impl Lane {
    /// A lane that goes on where its lease says.
    pub fn new(lease: &Lease, spec: &StoreSpec, chunk_steps: usize) -> Self {
        let Mark { sequence, next_step } = lease.from;
        Self {
            key: lease.key,
            codec: spec.codec,
            frame_bytes: spec.options.frame_bytes,
            encoder: Encoder::new(spec.codec, spec.options.frame_bytes),
            chunk_steps,
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

    /// Steps that are not sent.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Where the next writer of the lane goes on.
    pub fn mark(&self) -> Mark {
        Mark { sequence: self.sequence, next_step: self.next_step }
    }

    pub fn start(&self) -> Start {
        Start {
            sequence: self.sequence,
            next_step: self.next_step,
            steps: self.steps.len(),
            frames: self.frames.len(),
            items: self.items.len(),
            last_first: self.last_first,
        }
    }

    /// Takes back what came after. If some of it was sent, the rest is lost on the way.
    pub fn undo(&mut self, start: &Start) {
        if self.sequence != start.sequence {
            return self.abandon();
        }
        self.steps.truncate(start.steps);
        self.frames.truncate(start.frames);
        self.items.truncate(start.items);
        (self.next_step, self.last_first) = (start.next_step, start.last_first);
        self.episode = Episode::Between { first: self.next_step };
        self.encoder = Encoder::new(self.codec, self.frame_bytes);
    }

    /// Whether what there is must be sent before another frame, which may be large and complete many items.
    pub fn is_full(&self) -> bool {
        self.steps.len() >= self.chunk_steps
            || self.items.len() + ITEMS_AT_ONCE > CHUNK_ITEMS_MAX
            || self.frames.len() > INSERT_BYTES_MAX / 4
    }

    pub fn may_begin(&self) -> PyResult<()> {
        match self.episode {
            Episode::Between { .. } => Ok(()),
            _ => Err(invalid("an episode is under way: end() it first, or abandon() it")),
        }
    }

    pub fn may_act(&self) -> PyResult<()> {
        match self.episode {
            Episode::Ended { .. } => Err(invalid("the episode has ended: its last frame goes with end()")),
            _ => Ok(()),
        }
    }

    pub fn may_end(&self) -> PyResult<()> {
        match self.episode {
            Episode::Ended { .. } => Ok(()),
            _ => {
                Err(invalid("no step has ended the episode: the last append() says terminated or truncated"))
            }
        }
    }

    pub fn push(&mut self, frame: &[u8], taken: Option<Taken>) {
        let before = self.frames.len();
        let key_frame = self.encoder.encode_into(frame, &mut self.frames);
        let frame_bytes = (self.frames.len() - before) as u32;
        let (starts_episode, first) = match self.episode {
            Episode::Between { .. } => (true, self.next_step),
            Episode::Goes { first } | Episode::Ended { first } => (false, first),
        };
        self.episode = match taken {
            None => Episode::Between { first },
            Some(taken) if taken.ends_episode() => Episode::Ended { first },
            Some(_) => Episode::Goes { first },
        };
        self.steps.push(Step { frame_bytes, key_frame, starts_episode, taken });
        self.next_step += 1;
    }

    pub fn item(&mut self, length: u64, priority: InitialPriority, table: u8) -> PyResult<()> {
        let (Episode::Between { first } | Episode::Goes { first } | Episode::Ended { first }) = self.episode;
        if self.steps.is_empty() {
            return Err(invalid("an item is made before flush(), while its last frame is still here"));
        }
        let steps = self.next_step - 1 - first;
        if length == 0 || length > steps.min(LENGTH_MAX) {
            let most = steps.min(LENGTH_MAX);
            return Err(invalid(format!(
                "length is {length}, but there are {most} steps before the last frame"
            )));
        }
        let first = self.next_step - 1 - length;
        if first < self.last_first {
            return Err(invalid(
                "items come in the order of their first steps: an earlier item begins later",
            ));
        }
        if self.items.len() == CHUNK_ITEMS_MAX {
            return Err(invalid(format!("{} items since the last step that was sent", self.items.len())));
        }
        self.last_first = first;
        self.items.push(NewItem { first, length: length as u8, priority, table });
        Ok(())
    }

    /// Drops what was not sent, as if it had been lost on the way: anything may follow.
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
