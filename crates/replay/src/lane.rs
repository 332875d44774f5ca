//! A lane's steps and where its writer stands.
//!
//! Steps of a lane are numbered without holes, but chunks can be lost, so what is stored of a lane
//! is one or more [`Segment`]s, each an unbroken stretch. Only the newest segment of a lane can
//! grow (it is *open*); nothing ever refers from one segment to another. The [`Cursor`] is all
//! that must outlive the steps: it alone decides whether the next chunk is new and follows on.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::chunk::{LaneKey, Step, Taken, WeightsVersion};

/// How many lanes a table follows at most. A cursor with its open segment takes less than 250 bytes,
/// so this is 16 MB, and far more lanes than one shard can serve.
pub(crate) const LANES_MAX: usize = 1 << 16;

/// A step as it is stored: 40 bytes beside its frame.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepRecord {
    /// Where the frame lies in the ring. Follows from the lengths, so it is not saved.
    #[serde(skip)]
    pub place: usize,
    weights_number: u64,
    pub length: u32,
    reward: f32,
    log_probability: f32,
    weights_incarnation: u32,
    action: u16,
    /// Steps since the episode began, stopping at 255. If the beginning was lost, 255.
    pub since_start: u8,
    flags: u8,
}

const TERMINATED: u8 = 1;
const TRUNCATED: u8 = 2;
const LIFE_LOST: u8 = 4;
const FINAL: u8 = 8;

impl StepRecord {
    pub fn new(step: &Step, since_start: u8, place: usize) -> Self {
        let length = step.frame.len() as u32;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        match step.taken {
            Some(taken) => Self {
                place,
                length,
                since_start,
                action: taken.action,
                reward: taken.reward,
                log_probability: taken.log_probability,
                weights_incarnation: taken.weights.incarnation,
                weights_number: taken.weights.number,
                flags: flag(taken.terminated, TERMINATED)
                    | flag(taken.truncated, TRUNCATED)
                    | flag(taken.life_lost, LIFE_LOST),
            },
            None => Self {
                place,
                length,
                since_start,
                action: 0,
                reward: 0.0,
                log_probability: 0.0,
                weights_incarnation: 0,
                weights_number: 0,
                flags: FINAL,
            },
        }
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
        Kind::of(self.taken().as_ref())
    }
}

/// What a step is to its episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Acts,
    Ends,
    Final,
}

impl Kind {
    pub fn of(taken: Option<&Taken>) -> Self {
        match taken {
            None => Kind::Final,
            Some(taken) if taken.ends_episode() => Kind::Ends,
            Some(_) => Kind::Acts,
        }
    }
}

/// Where in an episode a lane is, after its last step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// The next step starts an episode.
    Between,
    /// The episode goes on; the last step was so many steps from its start.
    Within(u8),
    /// The episode ended; its final observation is due.
    Ending(u8),
    /// Chunks were lost, so anything may follow.
    Lost,
}

impl Phase {
    /// The phase after one more step and that step's distance from its episode's start, or `None`
    /// if such a step cannot follow.
    pub fn advance(self, starts_episode: bool, kind: Kind) -> Option<(Phase, u8)> {
        let since_start = match (self, starts_episode, kind) {
            (Phase::Between | Phase::Lost, true, Kind::Acts | Kind::Ends) => 0,
            (Phase::Within(since), false, Kind::Acts | Kind::Ends) => since.saturating_add(1),
            (Phase::Ending(since), false, Kind::Final) => since.saturating_add(1),
            (Phase::Lost, false, _) => u8::MAX,
            _ => return None,
        };
        let after = match kind {
            Kind::Acts => Phase::Within(since_start),
            Kind::Ends => Phase::Ending(since_start),
            Kind::Final => Phase::Between,
        };
        Some((after, since_start))
    }
}

/// An unbroken stretch of one lane's steps, with the items that lie in it.
///
/// Items are in order of their first step, so their windows start in order too: the items that
/// need the oldest step are always at the front.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub lane: LaneKey,
    /// Whether more steps may come.
    pub open: bool,
    /// Number of the oldest stored step, or of the next one if none is stored.
    pub first_step: u64,
    /// While the segment is open, items to come may need steps from here on. Everything from the
    /// start of the newest item's window, since the next item cannot begin earlier.
    pub floor: u64,
    pub steps: VecDeque<StepRecord>,
    /// Slots of the items, oldest first.
    pub items: VecDeque<u32>,
}

impl Segment {
    pub fn new(lane: LaneKey, first_step: u64) -> Self {
        let (steps, items) = (VecDeque::new(), VecDeque::new());
        Self { lane, open: true, first_step, floor: first_step, steps, items }
    }

    pub fn next_step(&self) -> u64 {
        self.first_step + self.steps.len() as u64
    }

    /// A stored step by its number in the lane.
    pub fn step(&self, number: u64) -> Option<&StepRecord> {
        let index = number.checked_sub(self.first_step)?;
        self.steps.get(usize::try_from(index).ok()?)
    }

    /// The first step that the state at step `first` needs, if all from there on are stored.
    pub fn window_start(&self, first: u64, stack: usize) -> Option<u64> {
        let back = (stack - 1).min(usize::from(self.step(first)?.since_start));
        first.checked_sub(back as u64).filter(|&start| start >= self.first_step)
    }

    /// Forgets the oldest step, and gives memory back when most of it lies idle.
    pub fn pop_step(&mut self) -> Option<StepRecord> {
        let step = self.steps.pop_front()?;
        self.first_step += 1;
        shrink(&mut self.steps);
        Some(step)
    }

    /// Forgets the oldest item.
    pub fn pop_item(&mut self) -> Option<u32> {
        let slot = self.items.pop_front()?;
        shrink(&mut self.items);
        Some(slot)
    }

    /// Forgets an item anywhere in the segment.
    pub fn remove_item(&mut self, slot: u32) {
        self.items.retain(|&item| item != slot);
    }
}

/// Halves a deque of which three quarters are idle: amortised constant time.
fn shrink<T>(deque: &mut VecDeque<T>) {
    if deque.len() < deque.capacity() / 4 {
        deque.shrink_to(deque.capacity() / 2);
    }
}

/// Where a lane's writer stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Every chunk below is stored or lost.
    pub next_sequence: u64,
    pub next_step: u64,
    /// First step of the newest item: the next may not begin earlier.
    pub newest_item: u64,
    pub phase: Phase,
    /// The open segment.
    pub segment: u32,
}

/// The newest incarnation of an actor. Older ones are fenced, so their cursors can go.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Writer {
    pub incarnation: u64,
    pub cursors: BTreeMap<u32, Cursor>,
}

/// All lanes of a table. Ordered maps, so that a save is a function of what is stored.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lanes {
    pub writers: BTreeMap<u32, Writer>,
    pub segments: Vec<Segment>,
    /// Segments that are closed and empty, to be used again.
    pub free: Vec<u32>,
    /// Cursors in `writers`.
    pub count: usize,
}

impl Lanes {
    pub fn segment(&self, index: u32) -> &Segment {
        &self.segments[index as usize]
    }

    pub fn segment_mut(&mut self, index: u32) -> &mut Segment {
        &mut self.segments[index as usize]
    }

    /// Where the lane's writer stands, if this incarnation has written to the lane.
    pub fn cursor(&self, lane: LaneKey) -> Option<&Cursor> {
        let writer = self.writers.get(&lane.actor)?;
        (writer.incarnation == lane.incarnation).then_some(())?;
        writer.cursors.get(&lane.lane)
    }

    /// Fences older incarnations of the actor: their lanes can no longer grow.
    pub fn fence(&mut self, lane: LaneKey) {
        let fresh = || Writer { incarnation: lane.incarnation, cursors: BTreeMap::new() };
        let writer = self.writers.entry(lane.actor).or_insert_with(fresh);
        if writer.incarnation < lane.incarnation {
            let older = std::mem::replace(writer, fresh());
            self.count -= older.cursors.len();
            older.cursors.values().for_each(|cursor| self.close(cursor.segment));
        }
    }

    /// Stores where the lane's writer now stands.
    pub fn set_cursor(&mut self, lane: LaneKey, cursor: Cursor) {
        let writer = self.writers.get_mut(&lane.actor).expect("fence made the writer");
        if writer.cursors.insert(lane.lane, cursor).is_none() {
            self.count += 1;
        }
    }

    /// Opens a segment.
    pub fn open(&mut self, lane: LaneKey, first_step: u64) -> u32 {
        let segment = Segment::new(lane, first_step);
        match self.free.pop() {
            Some(index) => {
                self.segments[index as usize] = segment;
                index
            }
            None => {
                self.segments.push(segment);
                self.segments.len() as u32 - 1
            }
        }
    }

    /// Closes a segment.
    pub fn close(&mut self, index: u32) {
        self.segment_mut(index).open = false;
        self.free_if_drained(index);
    }

    /// Lets a segment be used again once it is closed and empty.
    pub fn free_if_drained(&mut self, index: u32) {
        let segment = self.segment(index);
        if !segment.open && segment.steps.is_empty() {
            debug_assert!(segment.items.is_empty(), "items do not outlive their frames");
            self.free.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_record_is_small() {
        assert_eq!(size_of::<StepRecord>(), 40);
    }

    #[test]
    fn episodes_are_start_steps_end_and_final_observation() {
        use Kind::*;
        let follows = |phase: Phase, starts, kind| phase.advance(starts, kind);
        assert_eq!(follows(Phase::Between, true, Acts), Some((Phase::Within(0), 0)));
        assert_eq!(follows(Phase::Between, false, Acts), None);
        assert_eq!(follows(Phase::Between, true, Final), None);
        assert_eq!(follows(Phase::Within(3), false, Ends), Some((Phase::Ending(4), 4)));
        assert_eq!(follows(Phase::Within(3), true, Acts), None);
        assert_eq!(follows(Phase::Within(3), false, Final), None);
        assert_eq!(follows(Phase::Within(255), false, Acts), Some((Phase::Within(255), 255)));
        assert_eq!(follows(Phase::Ending(4), false, Final), Some((Phase::Between, 5)));
        assert_eq!(follows(Phase::Ending(4), true, Acts), None);
        assert_eq!(follows(Phase::Lost, false, Acts), Some((Phase::Within(255), 255)));
        assert_eq!(follows(Phase::Lost, false, Final), Some((Phase::Between, 255)));
        assert_eq!(follows(Phase::Lost, true, Ends), Some((Phase::Ending(0), 0)));
    }
}
