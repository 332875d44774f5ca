//! Chunks that are sent again: a duplicate is acknowledged only if it repeats what is stored.
//!
//! A writer that lost its connection resends the same bytes. A chunk with a known sequence number and other content is
//! another chunk: acknowledging it would lose it without a trace. Once the stored chunk has left the ring, nothing is
//! left to compare with.

use crate::chunk::{Chunk, Step};
use crate::store::insert::InsertError;
use crate::store::log::Log;
use crate::store::record::{Record, StepRecord};

/// How many chunks of its lane a chunk that is sent again may lie behind the newest. A writer resends what was in
/// flight: an actor two chunks of a lane, a Python writer 16. Bounds the work of finding the stored one.
pub(crate) const DUPLICATE_DISTANCE_MAX: u64 = 256;

/// Checks a chunk below the lane's next sequence number, `expected`. `newest` is the lane's newest chunk, or 0.
pub(crate) fn check(log: &Log, newest: u64, expected: u64, chunk: &Chunk) -> Result<(), InsertError> {
    let sequence = chunk.sequence;
    let mut number = newest;
    for _ in 0..=DUPLICATE_DISTANCE_MAX {
        // No longer in the ring, or a gap that was counted as lost.
        let Some(record) = log.record(number).filter(|record| record.header().sequence >= sequence) else {
            return Ok(());
        };
        if record.header().sequence == sequence {
            let lane = chunk.lane.lane;
            return if repeats(chunk, &record) {
                Ok(())
            } else {
                Err(InsertError::Conflict { lane, sequence })
            };
        }
        number = log.entry(number).map_or(0, |entry| entry.before);
    }
    Err(InsertError::TooFarBehind { sequence, expected, most: DUPLICATE_DISTANCE_MAX })
}

/// Whether a chunk is the stored one. Priorities are not compared: the store has the value that "the largest" had. Items
/// whose frames were missing are not in the record.
fn repeats(chunk: &Chunk, record: &Record<'_>) -> bool {
    let (header, stored) = (record.header(), record.steps());
    header.first_step == chunk.first_step
        && stored.len() == chunk.steps.len()
        && record.frames(0..stored.len()) == &chunk.frames[..]
        && same_steps(&chunk.steps, stored)
        && has_items(chunk, record)
}

fn same_steps(steps: &[Step], stored: &[StepRecord]) -> bool {
    let mut end = 0u64;
    steps.iter().zip(stored).all(|(step, stored)| {
        end += u64::from(step.frame_bytes);
        u64::from(stored.frame_end) == end
            && (stored.since_key == 0) == step.key_frame
            && (stored.since_start == 0) == step.starts_episode
            && stored.taken() == step.taken
    })
}

fn has_items(chunk: &Chunk, record: &Record<'_>) -> bool {
    let mut items = chunk.items.iter();
    record.items().iter().all(|stored| {
        let key = (stored.first, stored.length, stored.table);
        items.any(|item| (item.first, item.length, item.table) == key)
    })
}
