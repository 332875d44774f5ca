//! What a chunk must satisfy before any of it is stored.
//!
//! Everything is looked at first and nothing is changed, so that a chunk is applied as a whole or
//! not at all. Applying it afterwards cannot fail.

use crate::chunk::{Chunk, LaneKey, NewItem, Taken};
use crate::lane::{Cursor, Kind, LANES_MAX, Lanes, Phase, Segment};
use crate::options::TableOptions;

/// Sequence and step numbers must stay below, so that adding to them cannot overflow.
const NUMBER_MAX: u64 = 1 << 62;

/// What is to be done with a sound chunk.
pub(crate) enum Verdict {
    /// It is stored already.
    Duplicate,
    /// It follows what is stored.
    Continues(Cursor),
    /// It is the first of its lane, or chunks before it were lost: it gets a segment of its own.
    Begins { lost: u64, phase: Phase, previous: Option<Cursor> },
}

/// Judges a chunk.
pub(crate) fn judge(lanes: &Lanes, options: &TableOptions, chunk: &Chunk) -> Result<Verdict, InsertError> {
    check_writer(lanes, chunk.lane)?;
    let cursor = lanes.cursor(chunk.lane).copied();
    let expected = cursor.map_or(0, |cursor| cursor.next_sequence);
    if chunk.sequence < expected {
        return Ok(Verdict::Duplicate);
    }
    let largest = chunk.sequence.max(chunk.first_step);
    if largest >= NUMBER_MAX {
        return Err(InsertError::NumberTooLarge(largest));
    }

    let next_step = cursor.map_or(0, |cursor| cursor.next_step);
    let lost = chunk.sequence - expected;
    let contiguous = if lost == 0 { chunk.first_step == next_step } else { chunk.first_step >= next_step };
    if !contiguous {
        return Err(InsertError::NotContiguous { expected: next_step, got: chunk.first_step });
    }
    let (verdict, phase, segment) = match cursor {
        Some(cursor) if lost == 0 => {
            (Verdict::Continues(cursor), cursor.phase, Some(lanes.segment(cursor.segment)))
        }
        previous => {
            // Step 0 always starts an episode, whatever was lost.
            let phase = if chunk.first_step == 0 { Phase::Between } else { Phase::Lost };
            (Verdict::Begins { lost, phase, previous }, phase, None)
        }
    };
    check_steps(options, chunk, phase)?;
    check_items(chunk, segment, cursor.map_or(0, |cursor| cursor.newest_item))?;
    Ok(verdict)
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

fn check_steps(options: &TableOptions, chunk: &Chunk, phase: Phase) -> Result<(), InsertError> {
    let (mut phase, most) = (phase, options.packed_bytes_max());
    for (number, step) in (chunk.first_step..).zip(&chunk.steps) {
        let bytes = step.frame.len();
        if bytes == 0 || bytes > most {
            return Err(InsertError::FrameSize { step: number, bytes, most });
        }
        if step.taken.is_some_and(|taken| !taken.reward.is_finite() || !taken.log_probability.is_finite()) {
            return Err(InsertError::NotFinite { step: number });
        }
        let kind = Kind::of(step.taken.as_ref());
        (phase, _) =
            phase.advance(step.starts_episode, kind).ok_or(InsertError::OutOfEpisode { step: number })?;
    }
    Ok(())
}

/// `newest` is the first step of the lane's newest item.
fn check_items(chunk: &Chunk, segment: Option<&Segment>, newest: u64) -> Result<(), InsertError> {
    let mut newest = newest;
    for item in &chunk.items {
        let NewItem { first, length, .. } = *item;
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
            let inside = match taken(chunk, segment, number) {
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

/// What was done at a step of the chunk or of what is stored of its lane.
fn taken(chunk: &Chunk, segment: Option<&Segment>, number: u64) -> Option<Option<Taken>> {
    match number.checked_sub(chunk.first_step) {
        Some(index) => chunk.steps.get(index as usize).map(|step| step.taken),
        None => segment?.step(number).map(|record| record.taken()),
    }
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
    /// The table follows as many lanes as it can.
    #[error("table follows {most} lanes, the most it can; use fewer lanes or more shards")]
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
