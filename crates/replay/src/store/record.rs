//! The record of a chunk in the ring: header, steps, items, frames, each contiguous.
//!
//! ```text
//! | Header 96 B | StepRecord 32 B × steps | ItemRecord 32 B × items | packed frames | zeros up to 64 B |
//! ```
//!
//! All numbers are little-endian. The checksum covers everything except the salt, so a record is either intact or
//! invalid. The salt is a secret of the store: without it, no sender can craft a frame that recovery would mistake for
//! a record.

use bytemuck::{Pod, Zeroable};

use crate::chunk::{LaneKey, Taken, WeightsVersion};
use crate::store::phase::{Phase, StepKind};

#[cfg(target_endian = "big")]
compile_error!("a store uses its files in memory, and they are little-endian");

/// Offsets of records are multiples of this.
pub(crate) const ALIGNMENT: usize = 64;
/// Bytes of salt, number and checksum. The checksum covers the number separately; the salt is compared.
const BEFORE_CHECKSUM: usize = 20;
/// [`StepRecord::since_key`] of a frame whose key frame was lost.
pub(crate) const NO_KEY: u8 = u8::MAX;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct Header {
    pub salt: u64,
    /// Number of the chunk in this store, from 1.
    pub number: u64,
    pub checksum: u32,
    /// Size of the whole record.
    pub bytes: u32,
    pub actor: u32,
    pub lane: u32,
    pub incarnation: u64,
    pub sequence: u64,
    pub first_step: u64,
    /// Number of the chunk that this one follows without a gap, or 0.
    pub previous: u64,
    /// First step of the lane's newest item, after this chunk.
    pub newest_item: u64,
    /// Future items may need steps from here on.
    pub floor: u64,
    pub steps: u32,
    pub items: u32,
    /// The lane's [`Phase`] after this chunk.
    pub phase: u8,
    pub phase_steps: u8,
    pub zero: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct StepRecord {
    weights_number: u64,
    /// End of the frame, relative to the start of the first frame.
    pub frame_end: u32,
    reward: f32,
    log_probability: f32,
    weights_incarnation: u32,
    action: u16,
    /// Steps since the start of the episode, at most 255. 255 if the start was lost.
    pub since_start: u8,
    /// Distance from the key frame, 0 for a key frame itself, [`NO_KEY`] if it was lost.
    pub since_key: u8,
    flags: u8,
    zero: [u8; 3],
}

const TERMINATED: u8 = 1;
const TRUNCATED: u8 = 2;
const LIFE_LOST: u8 = 4;
const FINAL: u8 = 8;

impl StepRecord {
    pub fn new(taken: Option<Taken>, frame_end: u32, since_start: u8, since_key: u8) -> Self {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let mut record = Self { frame_end, since_start, since_key, flags: FINAL, ..Self::zeroed() };
        if let Some(taken) = taken {
            record.action = taken.action;
            record.reward = taken.reward;
            record.log_probability = taken.log_probability;
            record.weights_incarnation = taken.weights.incarnation;
            record.weights_number = taken.weights.number;
            record.flags = flag(taken.terminated, TERMINATED)
                | flag(taken.truncated, TRUNCATED)
                | flag(taken.life_lost, LIFE_LOST);
        }
        record
    }

    /// The action taken, or `None` for a final observation.
    pub fn taken(&self) -> Option<Taken> {
        (self.flags & FINAL == 0).then_some(Taken {
            action: self.action,
            reward: self.reward,
            terminated: self.flags & TERMINATED != 0,
            truncated: self.flags & TRUNCATED != 0,
            life_lost: self.flags & LIFE_LOST != 0,
            log_probability: self.log_probability,
            weights: WeightsVersion { incarnation: self.weights_incarnation, number: self.weights_number },
        })
    }

    pub fn kind(&self) -> StepKind {
        match self.flags {
            flags if flags & FINAL != 0 => StepKind::Final,
            flags if flags & (TERMINATED | TRUNCATED) != 0 => StepKind::Ends,
            _ => StepKind::Acts,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct ItemRecord {
    /// How many items were inserted into its table before it; the generation of its key.
    pub number: u64,
    /// Number in the lane of its first step.
    pub first: u64,
    pub priority: f64,
    /// Index of the item in its table.
    pub slot: u32,
    /// How many steps before `first` the item needs: the rest of the stack, back to a key frame.
    pub back: u16,
    pub length: u8,
    pub table: u8,
}

impl ItemRecord {
    /// The first step that the item needs.
    pub fn from(&self) -> u64 {
        self.first - u64::from(self.back)
    }

    /// The last step that the item needs, that of its next state.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.length)
    }
}

const HEADER: usize = size_of::<Header>();
const STEP: usize = size_of::<StepRecord>();
const ITEM: usize = size_of::<ItemRecord>();

/// Bytes of a record.
pub(crate) fn bytes(steps: usize, items: usize, frame_bytes: usize) -> usize {
    let content = HEADER + steps * STEP + items * ITEM + frame_bytes;
    content.next_multiple_of(ALIGNMENT)
}

/// Writes a record into `target`, whose size must be as computed by [`bytes`]. The header is written last and makes the
/// record valid.
pub(crate) fn write(
    target: &mut [u8],
    header: Header,
    steps: &[StepRecord],
    items: &[ItemRecord],
    frames: &[u8],
) {
    let (head, body) = target.split_at_mut(HEADER);
    // Invalidates the former record before its body is overwritten.
    head.fill(0);
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    let (steps_place, body) = body.split_at_mut(size_of_val(steps));
    steps_place.copy_from_slice(bytemuck::cast_slice(steps));
    let (items_place, body) = body.split_at_mut(size_of_val(items));
    items_place.copy_from_slice(bytemuck::cast_slice(items));
    let (frames_place, rest) = body.split_at_mut(frames.len());
    frames_place.copy_from_slice(frames);
    rest.fill(0);
    let mut header = Header { bytes: target.len() as u32, checksum: 0, ..header };
    target[BEFORE_CHECKSUM..HEADER].copy_from_slice(&bytemuck::bytes_of(&header)[BEFORE_CHECKSUM..]);
    header.checksum = checksum(header.number, target);
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    target[..HEADER].copy_from_slice(bytemuck::bytes_of(&header));
}

fn checksum(number: u64, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &record[BEFORE_CHECKSUM..])
}

/// An intact record in the ring.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    memory: &'a [u8],
}

/// Offset of a step in its record.
pub(crate) fn step_offset(step: usize) -> usize {
    HEADER + step * STEP
}

/// Offset of an item in a record of `steps` steps.
pub(crate) fn item_offset(steps: usize, item: usize) -> usize {
    step_offset(steps) + item * ITEM
}

impl<'a> Record<'a> {
    /// A record that is known to be intact.
    pub fn trusted(memory: &'a [u8]) -> Self {
        Self { memory }
    }

    /// The record at the start of `memory`, if there is an intact one. `memory` must be aligned to [`ALIGNMENT`].
    pub fn find(memory: &'a [u8], salt: u64) -> Option<Self> {
        let head = memory.get(..HEADER)?;
        let header: &Header = bytemuck::from_bytes(head);
        if header.salt != salt || header.number == 0 {
            return None;
        }
        let (steps, items) = (header.steps as usize, header.items as usize);
        let least = HEADER + steps * STEP + items * ITEM;
        let length = header.bytes as usize;
        if length < least || !length.is_multiple_of(ALIGNMENT) || length > memory.len() {
            return None;
        }
        let memory = &memory[..length];
        if checksum(header.number, memory) != header.checksum {
            return None;
        }
        let record = Record { memory };
        record.is_valid().then_some(record)
    }

    /// Checks the invariants that the rest of the crate relies on. The checksum alone does not prove who wrote the
    /// record.
    fn is_valid(&self) -> bool {
        let header = self.header();
        let room = self.memory.len() - self.frames_start();
        let mut end = 0;
        for step in self.steps() {
            let finite = step.reward.is_finite() && step.log_probability.is_finite();
            if step.frame_end <= end || step.frame_end as usize > room || !finite {
                return false;
            }
            end = step.frame_end;
        }
        let next_step = header.first_step.saturating_add(header.steps.into());
        let item_sound = |item: &ItemRecord| {
            item.length > 0
                && item.number < crate::store::insert::NUMBER_MAX
                && item.first < crate::store::insert::NUMBER_MAX
                && u64::from(item.back) <= item.first
                && item.last() < next_step
                && value::priority::Priority::try_new(item.priority).is_ok()
        };
        let in_order =
            |pair: &[ItemRecord]| pair[0].first <= pair[1].first && pair[0].from() <= pair[1].from();
        header.steps > 0
            && header.first_step < crate::store::insert::NUMBER_MAX
            && header.sequence < crate::store::insert::NUMBER_MAX
            && header.number < crate::store::insert::NUMBER_MAX
            && header.previous < header.number
            && Phase::from_bytes(header.phase, header.phase_steps).is_some()
            && self.items().iter().all(item_sound)
            && self.items().windows(2).all(in_order)
    }

    pub fn header(&self) -> &'a Header {
        bytemuck::from_bytes(&self.memory[..HEADER])
    }

    pub fn lane(&self) -> LaneKey {
        let Header { actor, incarnation, lane, .. } = *self.header();
        LaneKey { actor, incarnation, lane }
    }

    pub fn steps(&self) -> &'a [StepRecord] {
        let end = step_offset(self.header().steps as usize);
        bytemuck::cast_slice(&self.memory[HEADER..end])
    }

    pub fn items(&self) -> &'a [ItemRecord] {
        let (steps, items) = (self.header().steps as usize, self.header().items as usize);
        let (start, end) = (item_offset(steps, 0), item_offset(steps, items));
        bytemuck::cast_slice(&self.memory[start..end])
    }

    /// The packed frames of a range of steps.
    pub fn frames(&self, steps: std::ops::Range<usize>) -> &'a [u8] {
        let records = self.steps();
        let start = steps.start.checked_sub(1).map_or(0, |before| records[before].frame_end);
        let end = steps.end.checked_sub(1).map_or(0, |last| records[last].frame_end);
        let frames = self.frames_start();
        &self.memory[frames + start as usize..frames + end as usize]
    }

    pub fn as_bytes(&self) -> &'a [u8] {
        self.memory
    }

    fn frames_start(&self) -> usize {
        HEADER + self.header().steps as usize * STEP + self.header().items as usize * ITEM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_format() {
        assert_eq!((HEADER, STEP, ITEM), (96, 32, 32));
    }
}
