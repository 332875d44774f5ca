//! Validates a chunk before any of it is stored.
//!
//! Validation changes nothing, and storing a valid chunk cannot fail. So a chunk is stored as a whole or not at all.

use crate::chunk::{Chunk, KEY_DISTANCE_MAX, LaneKey, NewItem};
use crate::options::StoreOptions;
use crate::store::duplicate;
use crate::store::lanes::{LANES_MAX, Lanes};
use crate::store::log::Log;
use crate::store::phase::{Phase, StepKind};
use crate::store::record::{self, NO_KEY, StepRecord};
use crate::store::window::{Carrier, Window};

/// Sequence and step numbers must be below this, so that adding to them cannot overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// The most chunks of a lane that may be missing before a chunk. A lane that sends a thousand chunks a second to a shard
/// that loses them all gets there in 50 days. Without a bound a few chunks could use up the numbers of their lane.
pub(crate) const GAP_MAX: u64 = 1 << 32;
/// The most steps of a missing chunk, as on the wire.
const MISSING_STEPS_MAX: u64 = 1024;

/// The result for a valid chunk.
pub(crate) enum Validation {
    /// The chunk was stored before, with the same content if that is still in the ring.
    Duplicate,
    New(Accepted),
}

/// What the store needs to store a new chunk.
pub(crate) struct Accepted {
    /// Chunks of the lane missing before this one.
    pub lost: u64,
    /// The chunk that it follows without a gap, or 0.
    pub previous: u64,
    pub newest_item: u64,
    pub floor: u64,
    /// The lane's phase after the chunk.
    pub phase: Phase,
}

/// Validates a chunk. Fills `steps` with the records of its steps, and `window` with the steps that its items may need.
pub(crate) fn validate(
    lanes: &Lanes,
    log: &Log,
    options: &StoreOptions,
    chunk: &Chunk,
    steps: &mut Vec<StepRecord>,
    window: &mut Window,
) -> Result<Validation, InsertError> {
    check_writer(lanes, chunk.lane)?;
    if chunk.steps.is_empty() {
        return Err(InsertError::NoSteps);
    }
    let cursor = lanes.cursor(chunk.lane);
    let expected = cursor.map_or(0, |cursor| cursor.next_sequence);
    if chunk.sequence < expected {
        duplicate::check(log, cursor.map_or(0, |cursor| cursor.chunk), expected, chunk)?;
        return Ok(Validation::Duplicate);
    }
    let lost = check_numbers(chunk, expected)?;
    let bytes = record::bytes(chunk.steps.len(), chunk.items.len(), chunk.frames.len());
    let most = log.size().min(u32::MAX as usize);
    if bytes > most {
        return Err(InsertError::ChunkSize { bytes, most });
    }
    let next_step = cursor.map_or(0, |cursor| cursor.next_step);
    let skipped = chunk.first_step.checked_sub(next_step);
    if skipped.is_none_or(|skipped| skipped > lost * MISSING_STEPS_MAX) {
        return Err(InsertError::NotContiguous { expected: next_step, got: chunk.first_step });
    }
    let follows = cursor.filter(|_| lost == 0);
    let phase = match follows {
        Some(cursor) => cursor.phase,
        // Step 0 always starts an episode, whatever was lost.
        None if chunk.first_step == 0 => Phase::Between,
        None => Phase::Lost,
    };
    let last = follows.and_then(|cursor| log.record(cursor.chunk)?.steps().last());
    let since_key = last.map_or(NO_KEY, |step| step.since_key);
    let phase = check_steps(options, chunk, phase, since_key, steps)?;
    let previous = follows.map_or(0, |cursor| cursor.chunk);
    let newest_item = cursor.map_or(0, |cursor| cursor.newest_item);
    check_ranges(options, chunk, newest_item)?;
    if let Some(&NewItem { first: first_item, .. }) = chunk.items.first() {
        let (number, first_step) = (log.next_number(), chunk.first_step);
        window.fill(log, options, &Carrier { number, previous, first_step, steps, first_item });
        check_episodes(chunk, window)?;
    }
    let floor = if previous == 0 { chunk.first_step } else { follows.map_or(0, |cursor| cursor.floor) };
    Ok(Validation::New(Accepted { lost, previous, newest_item, floor, phase }))
}

/// Checks that the numbers of a chunk and those after it are in range. Returns how many chunks are missing before it.
fn check_numbers(chunk: &Chunk, expected: u64) -> Result<u64, InsertError> {
    let end = chunk.first_step.saturating_add(chunk.steps.len() as u64);
    let largest = chunk.sequence.max(end);
    if largest >= NUMBER_MAX {
        return Err(InsertError::NumberTooLarge(largest));
    }
    let missing = chunk.sequence - expected;
    if missing > GAP_MAX {
        return Err(InsertError::Gap { sequence: chunk.sequence, missing, most: GAP_MAX });
    }
    Ok(missing)
}

/// Checks that the writer is not fenced, and that there is room for its lane once older incarnations are fenced.
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

/// Checks the steps and returns the phase after them. `since_key` is that of the last stored step.
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
        let kind = StepKind::of(step.taken.as_ref());
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

/// Checks the tables, the order and the ranges of the items. `newest` is the first step of the lane's newest item.
fn check_ranges(options: &StoreOptions, chunk: &Chunk, newest: u64) -> Result<(), InsertError> {
    let mut newest = newest;
    let next_step = chunk.first_step + chunk.steps.len() as u64;
    for &NewItem { first, length, table, .. } in &chunk.items {
        if usize::from(table) >= options.tables.len() {
            return Err(InsertError::NoSuchTable { table, tables: options.tables.len() });
        }
        if first < newest {
            return Err(InsertError::ItemOrder { first, newest });
        }
        newest = first;
        if length > options.max_length {
            return Err(InsertError::ItemLength { first, length, most: options.max_length });
        }
        // The step of the next state, which must be stored too.
        let last = first.saturating_add(u64::from(length));
        if length == 0 || last >= next_step {
            return Err(InsertError::ItemRange { first, length, next_step });
        }
        if last < chunk.first_step {
            return Err(InsertError::ItemOfEarlierChunk { first, length, first_step: chunk.first_step });
        }
    }
    Ok(())
}

/// Checks that no item extends past the end of its episode. Steps that are not stored are no concern: the store drops
/// their items.
fn check_episodes(chunk: &Chunk, window: &Window) -> Result<(), InsertError> {
    for &NewItem { first, length, .. } in &chunk.items {
        if let Some(step) = window.crossed_end(first, first + u64::from(length)) {
            return Err(InsertError::ItemCrossesEnd { first, length, step });
        }
    }
    Ok(())
}

/// Why a chunk was refused. Nothing of it was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// A newer incarnation of the actor has replaced the writer.
    #[error("actor {actor} incarnation {incarnation} was replaced by {newest}: stop the older one")]
    Fenced { actor: u32, incarnation: u64, newest: u64 },
    #[error("the replay already has {most} lanes, the maximum: use fewer lanes or more shards")]
    LanesFull { most: usize },
    /// A sequence or step number that counting cannot have reached.
    #[error("sequence or step number {0} is out of range: count from 0")]
    NumberTooLarge(u64),
    /// A sequence number with two contents.
    #[error(
        "chunk {sequence} of lane {lane} was stored before with other content: send a chunk again as it was, and never \
         use its number for another"
    )]
    Conflict { lane: u32, sequence: u64 },
    /// A chunk so old that finding the stored one would take too long.
    #[error(
        "chunk {sequence} is more than {most} chunks behind the lane's next one, {expected}: send chunks in order, and \
         again only if they were not acknowledged"
    )]
    TooFarBehind { sequence: u64, expected: u64, most: u64 },
    /// Too many chunks of the lane are missing.
    #[error(
        "chunk {sequence} of the lane follows {missing} missing chunks, at most {most} may be missing: restart the actor"
    )]
    Gap { sequence: u64, missing: u64, most: u64 },
    /// Steps are numbered without gaps.
    #[error("the next step of the lane must have number {expected}, got {got}: number steps without gaps")]
    NotContiguous { expected: u64, got: u64 },
    /// A frame without bytes, or larger than any codec can produce.
    #[error("the frame of step {step} has {bytes} bytes, must be 1 to {most}")]
    FrameSize { step: u64, bytes: usize, most: usize },
    /// A frame that is no key frame, with none close enough before it.
    #[error(
        "the frame of step {step} must be a key frame: the first frame of a lane must be one, and at least every 32nd \
         after it"
    )]
    KeyFrame { step: u64 },
    #[error("the steps declare {declared} bytes of frames, but the chunk has {got}")]
    Frames { declared: usize, got: usize },
    /// The chunk is larger than the ring.
    #[error("the chunk takes {bytes} bytes, but the whole replay has {most}: send shorter chunks")]
    ChunkSize { bytes: usize, most: usize },
    #[error("a chunk must have at least one step")]
    NoSteps,
    #[error("an item is for table {table}, but the replay has {tables} tables")]
    NoSuchTable { table: u8, tables: usize },
    #[error("reward and log-probability of step {step} must be finite")]
    NotFinite { step: u64 },
    /// An episode is a first step, more steps, a step that ends it, and one final observation.
    #[error(
        "step {step} cannot follow the step before it: the end of an episode is followed by a final observation, then \
         a first step"
    )]
    OutOfEpisode { step: u64 },
    /// Items of a lane come in order of their first step.
    #[error(
        "the item at step {first} comes after one at step {newest}: send items in order of their first step"
    )]
    ItemOrder {
        first: u64,
        /// First step of the item before it.
        newest: u64,
    },
    /// An item without steps, or with future steps.
    #[error("the item at step {first} of length {length} must have steps, and end before step {next_step}")]
    ItemRange {
        first: u64,
        length: u8,
        /// The first step of the lane's next chunk.
        next_step: u64,
    },
    /// An item longer than the configuration allows.
    #[error("the item at step {first} has {length} steps, but the replay allows {most}: raise max_length")]
    ItemLength { first: u64, length: u8, most: u8 },
    /// An item that an earlier chunk completed.
    #[error(
        "the item at step {first} of length {length} ends before its chunk, which begins at step {first_step}: send each \
         item with its last step"
    )]
    ItemOfEarlierChunk { first: u64, length: u8, first_step: u64 },
    /// An item across two episodes.
    #[error(
        "the item at step {first} of length {length} extends past the episode's end at step {step}: keep items inside one episode"
    )]
    ItemCrossesEnd {
        first: u64,
        length: u8,
        /// The step that ends the episode.
        step: u64,
    },
}
