//! A chunk as it lies in the ring: header, steps, items, frames, each in one piece.
//!
//! ```text
//! | Header 96 B | StepRecord 32 B × steps | ItemRecord 32 B × items | packed frames | zeros up to 64 B |
//! ```
//!
//! All numbers are little-endian. The checksum covers all but the salt, so a record is whole or
//! it is none. The salt in front is a secret of the store: nobody who sends frames can put something into
//! one that would be taken for a record when the ring is searched.

use bytemuck::{Pod, Zeroable};

use crate::chunk::{LaneKey, Taken, WeightsVersion};
use crate::store::phase::{Kind, Phase};

#[cfg(target_endian = "big")]
compile_error!("the files of a store are little-endian and used as they are");

/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 64;
/// Salt, number and checksum. The number is covered all the same, the salt is known.
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
    /// Of the whole record.
    pub bytes: u32,
    pub actor: u32,
    pub lane: u32,
    pub incarnation: u64,
    pub sequence: u64,
    pub first_step: u64,
    /// Number of the chunk that this one follows on without a gap, 0 if there is none.
    pub previous: u64,
    /// First step of the lane's newest item, after this chunk.
    pub newest_item: u64,
    /// Items to come may need steps from here on.
    pub floor: u64,
    pub steps: u32,
    pub items: u32,
    /// Where the lane's episode stands after this chunk.
    pub phase: u8,
    pub phase_steps: u8,
    pub zero: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct StepRecord {
    weights_number: u64,
    /// Where the frame ends, from the first frame's beginning.
    pub frame_end: u32,
    reward: f32,
    log_probability: f32,
    weights_incarnation: u32,
    action: u16,
    /// Steps since the episode began, stopping at 255. If the beginning was lost, 255.
    pub since_start: u8,
    /// Frames since the key frame, 0 for one, [`NO_KEY`] if it was lost.
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

    /// What was done, or `None` on a final observation.
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

    pub fn kind(&self) -> Kind {
        match self.flags {
            flags if flags & FINAL != 0 => Kind::Final,
            flags if flags & (TERMINATED | TRUNCATED) != 0 => Kind::Ends,
            _ => Kind::Acts,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct ItemRecord {
    /// How many items had been inserted into its table before it; its key's generation.
    pub number: u64,
    /// Number in the lane of its first step.
    pub first: u64,
    /// As it was given.
    pub priority: f64,
    /// Where it lies in its table.
    pub slot: u32,
    /// Steps before `first` that are needed: the rest of the stack, and back to a key frame.
    pub back: u16,
    pub length: u8,
    pub table: u8,
}

impl ItemRecord {
    /// The first step that it needs.
    pub fn from(&self) -> u64 {
        self.first - u64::from(self.back)
    }

    /// The last step that it needs, the one of its successor state.
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

/// Fills `place`, which must be as large as [`bytes`] says. The record counts from the moment when
/// its header is written, which is last.
pub(crate) fn write(
    place: &mut [u8],
    header: Header,
    steps: &[StepRecord],
    items: &[ItemRecord],
    frames: &[u8],
) {
    let (head, body) = place.split_at_mut(HEADER);
    // Whatever was here is none any more, even if its header would survive.
    head.fill(0);
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    let (steps_place, body) = body.split_at_mut(size_of_val(steps));
    steps_place.copy_from_slice(bytemuck::cast_slice(steps));
    let (items_place, body) = body.split_at_mut(size_of_val(items));
    items_place.copy_from_slice(bytemuck::cast_slice(items));
    let (frames_place, rest) = body.split_at_mut(frames.len());
    frames_place.copy_from_slice(frames);
    rest.fill(0);
    let mut header = Header { bytes: place.len() as u32, checksum: 0, ..header };
    place[BEFORE_CHECKSUM..HEADER].copy_from_slice(&bytemuck::bytes_of(&header)[BEFORE_CHECKSUM..]);
    header.checksum = checksum(header.number, place);
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    place[..HEADER].copy_from_slice(bytemuck::bytes_of(&header));
}

fn checksum(number: u64, place: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &place[BEFORE_CHECKSUM..])
}

/// A record where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    place: &'a [u8],
}

/// Where a step lies in its record.
pub(crate) fn step_offset(step: usize) -> usize {
    HEADER + step * STEP
}

/// Where an item lies in a record of so many steps.
pub(crate) fn item_offset(steps: usize, item: usize) -> usize {
    step_offset(steps) + item * ITEM
}

impl<'a> Record<'a> {
    /// A record that is known to be sound.
    pub fn trusted(place: &'a [u8]) -> Self {
        Self { place }
    }

    /// Looks for a record at the beginning of `memory`, which starts at a multiple of [`ALIGNMENT`].
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
        let place = &memory[..length];
        if checksum(header.number, place) != header.checksum {
            return None;
        }
        let record = Record { place };
        record.is_sound().then_some(record)
    }

    /// What the rest of the crate relies on, whoever has written the record.
    fn is_sound(&self) -> bool {
        let header = self.header();
        let room = self.place.len() - self.frames_start();
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
        let in_order = self.items().windows(2).all(|pair| pair[0].first <= pair[1].first);
        header.first_step < crate::store::insert::NUMBER_MAX
            && header.sequence < crate::store::insert::NUMBER_MAX
            && header.number < crate::store::insert::NUMBER_MAX
            && header.previous < header.number
            && Phase::from_bytes(header.phase, header.phase_steps).is_some()
            && in_order
            && self.items().iter().all(item_sound)
    }

    pub fn header(&self) -> &'a Header {
        bytemuck::from_bytes(&self.place[..HEADER])
    }

    pub fn lane(&self) -> LaneKey {
        let Header { actor, incarnation, lane, .. } = *self.header();
        LaneKey { actor, incarnation, lane }
    }

    pub fn steps(&self) -> &'a [StepRecord] {
        let end = step_offset(self.header().steps as usize);
        bytemuck::cast_slice(&self.place[HEADER..end])
    }

    pub fn items(&self) -> &'a [ItemRecord] {
        let (steps, items) = (self.header().steps as usize, self.header().items as usize);
        let (start, end) = (item_offset(steps, 0), item_offset(steps, items));
        bytemuck::cast_slice(&self.place[start..end])
    }

    /// The packed frames of some of the steps, in one piece.
    pub fn frames(&self, steps: std::ops::Range<usize>) -> &'a [u8] {
        let records = self.steps();
        let start = steps.start.checked_sub(1).map_or(0, |before| records[before].frame_end);
        let end = steps.end.checked_sub(1).map_or(0, |last| records[last].frame_end);
        let frames = self.frames_start();
        &self.place[frames + start as usize..frames + end as usize]
    }

    /// The whole of it, as it lies there.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.place
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
