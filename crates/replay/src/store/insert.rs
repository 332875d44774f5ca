//! What a chunk must satisfy before any of it is stored.
//!
//! Everything is looked at first and nothing is changed, so that a chunk is applied as a whole or
//! not at all. Applying it afterwards cannot fail.

use crate::chunk::{Chunk, KEY_DISTANCE_MAX, LaneKey, NewItem, Taken};
use crate::options::StoreOptions;
use crate::store::lanes::{Cursor, LANES_MAX, Lanes};
use crate::store::log::Log;
use crate::store::phase::{Kind, Phase};
use crate::store::record::{self, NO_KEY, StepRecord};

/// Sequence and step numbers must stay below, so that adding to them cannot overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// What is to be done with a sound chunk.
pub(crate) enum Verdict {
    /// It is stored already.
    Duplicate,
    /// It is new.
    New(Accepted),
}

/// A chunk that can be stored.
pub(crate) struct Accepted {
    /// Chunks of the lane that never came.
    pub lost: u64,
    /// The chunk that it follows on without a gap, 0 if there is none.
    pub previous: u64,
    pub newest_item: u64,
    pub floor: u64,
    /// The lane's phase after it.
    pub phase: Phase,
}

/// Judges a chunk, and puts its steps as they are to be stored into `steps`.
pub(crate) fn judge(
    lanes: &Lanes,
    log: &Log,
    options: &StoreOptions,
    chunk: &Chunk,
    steps: &mut Vec<StepRecord>,
) -> Result<Verdict, InsertError> {
    check_writer(lanes, chunk.lane)?;
    let cursor = lanes.cursor(chunk.lane);
    let expected = cursor.map_or(0, |cursor| cursor.next_sequence);
    if chunk.sequence < expected {
        return Ok(Verdict::Duplicate);
    }
    let largest = chunk.sequence.max(chunk.first_step);
    if largest >= NUMBER_MAX {
        return Err(InsertError::NumberTooLarge(largest));
    }
    let bytes = record::bytes(chunk.steps.len(), chunk.items.len(), chunk.frames.len());
    let most = log.size().min(u32::MAX as usize);
    if bytes > most {
        return Err(InsertError::ChunkSize { bytes, most });
    }
    let next_step = cursor.map_or(0, |cursor| cursor.next_step);
    let lost = chunk.sequence - expected;
    let contiguous = if lost == 0 { chunk.first_step == next_step } else { chunk.first_step >= next_step };
    if !contiguous {
        return Err(InsertError::NotContiguous { expected: next_step, got: chunk.first_step });
    }
    let follows = cursor.filter(|_| lost == 0);
    let phase = match follows {
        Some(cursor) => cursor.phase,
        // Step 0 always starts an episode, whatever was lost.
        None if chunk.first_step == 0 => Phase::Between,
        None => Phase::Lost,
    };
    let since_key = match follows {
        // A chunk may have no steps, so the last one need not lie in the last chunk.
        Some(Cursor { next_step: next @ 1.., chunk, .. }) => {
            log.step(*chunk, next - 1).map_or(NO_KEY, |step| step.since_key)
        }
        _ => NO_KEY,
    };
    let phase = check_steps(options, chunk, phase, since_key, steps)?;
    let previous = follows.map_or(0, |cursor| cursor.chunk);
    let newest_item = cursor.map_or(0, |cursor| cursor.newest_item);
    check_items(options, chunk, |step| log.step(previous, step).map(StepRecord::taken), newest_item)?;
    let floor = if previous == 0 { chunk.first_step } else { follows.map_or(0, |cursor| cursor.floor) };
    Ok(Verdict::New(Accepted { lost, previous, newest_item, floor, phase }))
}

/// The writer is not fenced, and there is room for its lane once older incarnations are.
fn check_writer(lanes: &Lanes, lane: LaneKey) -> Result<(), InsertError> {
    let LaneKey { actor, incarnation, .. } = lane;
    let fenced_lanes = match lanes.writers.get(&actor) {
        Some(writer) if writer.incarnation > incarnation => {
            return Err(InsertError::Fenced { actor, incarnation, newest: writer.incarnation });
        }
        Some(writer) if writer.incarnation < incarnation => writer.cursors.len(),
        _ => 0,
    };
    if lanes.cursor(lane).is_none() && lanes.count - fenced_lanes >= LANES_MAX {
        return Err(InsertError::LanesFull { most: LANES_MAX });
    }
    Ok(())
}

/// `since_key` is the last stored step's. Gives the phase after the steps.
fn check_steps(
    options: &StoreOptions,
    chunk: &Chunk,
    phase: Phase,
    since_key: u8,
    records: &mut Vec<StepRecord>,
) -> Result<Phase, InsertError> {
    let (mut phase, mut since_key, most) = (phase, since_key, options.packed_bytes_max());
    let mut end = 0usize;
    records.clear();
    for (number, step) in (chunk.first_step..).zip(&chunk.steps) {
        let bytes = step.frame_bytes as usize;
        if bytes == 0 || bytes > most {
            return Err(InsertError::FrameSize { step: number, bytes, most });
        }
        if step.taken.is_some_and(|taken| !taken.reward.is_finite() || !taken.log_probability.is_finite()) {
            return Err(InsertError::NotFinite { step: number });
        }
        let kind = Kind::of(step.taken.as_ref());
        let since_start;
        (phase, since_start) =
            phase.advance(step.starts_episode, kind).ok_or(InsertError::OutOfEpisode { step: number })?;
        since_key = match since_key {
            _ if step.key_frame => 0,
            NO_KEY if number == 0 => return Err(InsertError::KeyFrame { step: number }),
            NO_KEY => NO_KEY,
            KEY_DISTANCE_MAX.. => return Err(InsertError::KeyFrame { step: number }),
            since => since + 1,
        };
        end += bytes;
        records.push(StepRecord::new(step.taken, end as u32, since_start, since_key));
    }
    if end != chunk.frames.len() {
        return Err(InsertError::Frames { declared: end, got: chunk.frames.len() });
    }
    Ok(phase)
}

/// `newest` is the first step of the lane's newest item.
fn check_items(
    options: &StoreOptions,
    chunk: &Chunk,
    stored: impl Fn(u64) -> Option<Option<Taken>>,
    newest: u64,
) -> Result<(), InsertError> {
    let mut newest = newest;
    for item in &chunk.items {
        let NewItem { first, length, table, .. } = *item;
        if usize::from(table) >= options.tables.len() {
            return Err(InsertError::NoSuchTable { table, tables: options.tables.len() });
        }
        if first < newest {
            return Err(InsertError::ItemOrder { first, newest });
        }
        newest = first;
        // The successor state lies at this step, which must be stored too.
        let last = first.saturating_add(u64::from(length));
        let next_step = chunk.first_step + chunk.steps.len() as u64;
        if length == 0 || last >= next_step {
            return Err(InsertError::ItemRange { first, length, next_step });
        }
        for number in first..last {
            let taken = match number.checked_sub(chunk.first_step) {
                Some(index) => chunk.steps.get(index as usize).map(|step| step.taken),
                None => stored(number),
            };
            let inside = match taken {
                // No longer stored or lost. The item will be dropped.
                None => continue,
                Some(taken) => Kind::of(taken.as_ref()),
            };
            if inside == Kind::Final || (inside == Kind::Ends && number + 1 < last) {
                return Err(InsertError::ItemCrossesEnd { first, length, step: number });
            }
        }
    }
    Ok(())
}
/// Why nothing of a chunk was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The writer was replaced by a newer start of the same actor and should stop.
    #[error("actor {actor} incarnation {incarnation} was replaced by {newest}, stop writing")]
    Fenced {
        /// The actor's index.
        actor: u32,
        /// The incarnation that wrote.
        incarnation: u64,
        /// The newest one seen.
        newest: u64,
    },
    /// The store follows as many lanes as it can.
    #[error("the replay follows {most} lanes, the most it can; use fewer lanes or more shards")]
    LanesFull {
        /// The bound.
        most: usize,
    },
    /// A sequence or step number that no writer reaches by counting.
    #[error("number {0} is too large to have been counted up to")]
    NumberTooLarge(u64),
    /// Steps are numbered without holes.
    #[error("steps must go on at {expected}, got {got}")]
    NotContiguous {
        /// The next step of the lane.
        expected: u64,
        /// The chunk's first step.
        got: u64,
    },
    /// A frame without bytes, or larger than any codec makes it.
    #[error("frame of step {step} has {bytes} bytes, must be from 1 to {most}")]
    FrameSize {
        /// Number of the step.
        step: u64,
        /// Size of its packed frame.
        bytes: usize,
        /// The largest allowed.
        most: usize,
    },
    /// A frame that changes the one before it, without a key frame near enough.
    #[error(
        "frame of step {step} must be a key frame: the first of a lane is one, and then at least every 32nd"
    )]
    KeyFrame {
        /// Number of the step.
        step: u64,
    },
    /// Frames that do not add up.
    #[error("steps declare {declared} bytes of frames, the chunk has {got}")]
    Frames {
        /// The sum of the steps' sizes.
        declared: usize,
        /// What came.
        got: usize,
    },
    /// A chunk that would not fit into the ring.
    #[error("chunk takes {bytes} bytes, the replay has room for {most}; send shorter chunks")]
    ChunkSize {
        /// Of its record.
        bytes: usize,
        /// Of the ring.
        most: usize,
    },
    /// A table that is not there.
    #[error("item goes to table {table}, there are {tables}")]
    NoSuchTable {
        /// Its index.
        table: u8,
        /// How many there are.
        tables: usize,
    },
    /// A reward or log-probability that is NaN or infinite.
    #[error("reward and log-probability of step {step} must be finite")]
    NotFinite {
        /// Number of the step.
        step: u64,
    },
    /// An episode is a start, steps, a step that ends it, and one final observation.
    #[error(
        "step {step} cannot follow the one before it; an episode's end needs a final observation, then a start"
    )]
    OutOfEpisode {
        /// Number of the step.
        step: u64,
    },
    /// Items of a lane come in order of their first step.
    #[error("item at step {first} comes after one at step {newest}, send items in order")]
    ItemOrder {
        /// First step of the item.
        first: u64,
        /// First step of the item before it.
        newest: u64,
    },
    /// An item without steps, or with steps that are still to come.
    #[error("item at step {first} of length {length} must end before step {next_step}")]
    ItemRange {
        /// First step of the item.
        first: u64,
        /// Its length.
        length: u8,
        /// The step that the lane's next chunk will start with.
        next_step: u64,
    },
    /// An item that would join two episodes.
    #[error("item at step {first} of length {length} goes past the episode's end at step {step}")]
    ItemCrossesEnd {
        /// First step of the item.
        first: u64,
        /// Its length.
        length: u8,
        /// The step that ends the episode.
        step: u64,
    },
}
