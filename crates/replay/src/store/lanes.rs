//! The write position of each lane.
//!
//! The [`Cursor`] of a lane must outlive its steps: it alone decides whether the next chunk is new and contiguous.
//! Every chunk's record contains it. Before the newest chunk of a lane leaves the ring, the cursor is persisted as a
//! *mark*, an entry of the file `marks`. So it survives as long as the store, in bounded space.

use std::collections::BTreeMap;

use bytemuck::{Pod, Zeroable};

use crate::chunk::LaneKey;
use crate::store::memory::Memory;
use crate::store::phase::Phase;
use crate::store::record::Header;

/// The most lanes of a store: far more than one shard can serve.
pub(crate) const LANES_MAX: usize = 1 << 16;

/// The write position of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cursor {
    /// Every chunk below this was stored or lost.
    pub next_sequence: u64,
    pub next_step: u64,
    /// First step of the newest item. The next item must not start earlier.
    pub newest_item: u64,
    /// Future items may need steps from here on.
    pub floor: u64,
    pub phase: Phase,
    /// The newest chunk, or 0 if it is no longer stored.
    pub chunk: u64,
    /// Index of the cursor's mark.
    mark: u32,
}

impl Cursor {
    /// The cursor after a chunk.
    fn after(header: &Header, mark: u32) -> Self {
        Self {
            next_sequence: header.sequence + 1,
            next_step: header.first_step + u64::from(header.steps),
            newest_item: header.newest_item,
            floor: header.floor,
            phase: Phase::from_bytes(header.phase, header.phase_steps).unwrap_or(Phase::Lost),
            chunk: header.number,
            mark,
        }
    }
}

/// The newest incarnation of an actor. Older ones are fenced, so their cursors are not needed.
#[derive(Debug, PartialEq)]
pub(crate) struct Writer {
    pub incarnation: u64,
    pub cursors: BTreeMap<u32, Cursor>,
}

/// A persisted cursor: 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
struct Mark {
    incarnation: u64,
    next_sequence: u64,
    next_step: u64,
    newest_item: u64,
    floor: u64,
    actor: u32,
    lane: u32,
    phase: u8,
    phase_steps: u8,
    /// 1 in a mark that is in use.
    used: u8,
    zero: [u8; 9],
    checksum: u32,
}

pub(crate) const MARK: usize = size_of::<Mark>();

impl Mark {
    fn new(lane: LaneKey, cursor: &Cursor) -> Self {
        let (phase, phase_steps) = cursor.phase.to_bytes();
        let mut mark = Self {
            incarnation: lane.incarnation,
            next_sequence: cursor.next_sequence,
            next_step: cursor.next_step,
            newest_item: cursor.newest_item,
            floor: cursor.floor,
            actor: lane.actor,
            lane: lane.lane,
            phase,
            phase_steps,
            used: 1,
            zero: [0; 9],
            checksum: 0,
        };
        mark.checksum = mark.computed();
        mark
    }

    fn computed(&self) -> u32 {
        crc32c::crc32c(&bytemuck::bytes_of(self)[..MARK - 4])
    }

    /// The lane and its cursor. `Err` if the mark is damaged, `None` if it is vacant.
    fn read(&self, mark: u32) -> Result<Option<(LaneKey, Cursor)>, ()> {
        if *self == Self::zeroed() {
            return Ok(None);
        }
        let largest = self.next_sequence.max(self.next_step);
        let phase = Phase::from_bytes(self.phase, self.phase_steps);
        let (true, Some(phase)) = (self.checksum == self.computed(), phase) else { return Err(()) };
        if largest > crate::store::insert::NUMBER_MAX {
            return Err(());
        }
        let lane = LaneKey { actor: self.actor, incarnation: self.incarnation, lane: self.lane };
        let Self { next_sequence, next_step, newest_item, floor, .. } = *self;
        Ok(Some((lane, Cursor { next_sequence, next_step, newest_item, floor, phase, chunk: 0, mark })))
    }
}

/// All lanes of a store.
pub(crate) struct Lanes {
    pub writers: BTreeMap<u32, Writer>,
    /// Cursors in `writers`.
    pub count: usize,
    marks: Memory,
    /// Vacant marks that were in use before.
    free: Vec<u32>,
    /// Marks from here on were never in use.
    fresh: u32,
}

impl Lanes {
    pub const MARKS_BYTES: usize = LANES_MAX * MARK;

    pub fn new(marks: Memory) -> Self {
        Self { writers: BTreeMap::new(), count: 0, marks, free: Vec::new(), fresh: 0 }
    }

    /// The lane's cursor, if this incarnation has written to the lane.
    pub fn cursor(&self, lane: LaneKey) -> Option<&Cursor> {
        let writer = self.writers.get(&lane.actor)?;
        (writer.incarnation == lane.incarnation).then_some(())?;
        writer.cursors.get(&lane.lane)
    }

    /// Advances the cursor of a lane to a stored chunk, and fences older incarnations of the actor.
    pub fn advance(&mut self, lane: LaneKey, header: &Header) {
        self.fence(lane);
        let known = self.writers.get(&lane.actor).and_then(|writer| writer.cursors.get(&lane.lane));
        let mark = known.map(|cursor| cursor.mark);
        let mark = mark.unwrap_or_else(|| self.take_mark());
        self.set(lane, Cursor::after(header, mark));
    }

    /// Call before the oldest chunk is dropped. If it is the newest of its lane, persists the lane's cursor.
    pub fn persist_cursor(&mut self, lane: LaneKey, number: u64) {
        let Some(writer) = self.writers.get_mut(&lane.actor) else { return };
        if writer.incarnation != lane.incarnation {
            return;
        }
        let Some(cursor) = writer.cursors.get_mut(&lane.lane) else { return };
        if cursor.chunk != number {
            return;
        }
        cursor.chunk = 0;
        let start = cursor.mark as usize * MARK;
        self.marks[start..start + MARK].copy_from_slice(bytemuck::bytes_of(&Mark::new(lane, cursor)));
    }

    /// Advances the cursor to a recovered chunk. Call in order of the chunks.
    pub fn recover_chunk(&mut self, lane: LaneKey, header: &Header) {
        let fenced =
            self.writers.get(&lane.actor).is_some_and(|writer| writer.incarnation > lane.incarnation);
        if !fenced && (self.count < LANES_MAX || self.cursor(lane).is_some()) {
            self.advance(lane, header);
        }
    }

    /// Recovers cursors from the marks, after [`Lanes::recover_chunk`] for all chunks. Returns how many marks are
    /// damaged.
    pub fn recover(&mut self) -> u64 {
        let used = self.used_marks();
        let marks = bytemuck::cast_slice::<u8, Mark>(&self.marks)[..used].to_vec();
        let mut damaged = 0;
        for (index, mark) in (0u32..).zip(&marks) {
            let Ok(read) = mark.read(index) else {
                damaged += 1;
                continue;
            };
            if let Some((lane, cursor)) = read.filter(|(lane, cursor)| self.is_newer(*lane, cursor))
                && (self.count < LANES_MAX || self.cursor(lane).is_some())
            {
                self.fence(lane);
                self.set(lane, cursor);
            }
        }
        // Marks that gave a cursor stay. The others are older than the ring, or vacant, and are freed.
        let mut taken = vec![false; used];
        self.all()
            .filter(|(_, cursor)| cursor.chunk == 0)
            .for_each(|(_, cursor)| taken[cursor.mark as usize] = true);
        self.free = (0..used as u32).rev().filter(|&mark| !taken[mark as usize]).collect();
        self.fresh = used as u32;
        for &mark in &self.free {
            self.marks[mark as usize * MARK..][..MARK].fill(0);
        }
        for (lane, cursor) in self.all().filter(|(_, cursor)| cursor.chunk != 0).collect::<Vec<_>>() {
            let mark = self.take_mark();
            self.set(lane, Cursor { mark, ..cursor });
        }
        damaged
    }

    /// The number of marks up to the last one in use. Most were never in use, so the scan skips empty pages first.
    fn used_marks(&self) -> usize {
        const PAGE: usize = 64 * MARK;
        let pages = self.marks.chunks_exact(PAGE).rposition(|page| page != [0; PAGE]);
        let marks: &[Mark] = bytemuck::cast_slice(&self.marks[..pages.map_or(0, |last| (last + 1) * PAGE)]);
        marks.iter().rposition(|mark| *mark != Mark::zeroed()).map_or(0, |last| last + 1)
    }

    fn is_newer(&self, lane: LaneKey, cursor: &Cursor) -> bool {
        match self.writers.get(&lane.actor) {
            Some(writer) if writer.incarnation > lane.incarnation => false,
            Some(writer) if writer.incarnation == lane.incarnation => {
                let known = writer.cursors.get(&lane.lane);
                known.is_none_or(|known| known.next_sequence < cursor.next_sequence)
            }
            _ => true,
        }
    }

    /// Every lane whose writer is not fenced.
    pub fn all(&self) -> impl Iterator<Item = (LaneKey, Cursor)> + Clone + '_ {
        self.writers.iter().flat_map(|(&actor, writer)| {
            let incarnation = writer.incarnation;
            writer.cursors.iter().map(move |(&lane, &cursor)| (LaneKey { actor, incarnation, lane }, cursor))
        })
    }

    /// Restores a saved mark for [`Lanes::recover`].
    pub fn restore_mark(&mut self, index: usize, mark: &[u8; MARK]) -> bool {
        let fits = index < LANES_MAX;
        if fits {
            self.marks[index * MARK..][..MARK].copy_from_slice(mark);
        }
        fits
    }

    /// The marks to save beside the chunks up to `newest`: those of lanes whose newest chunk is not among them.
    pub fn marks(&self, newest: u64) -> impl Iterator<Item = &[u8]> + Clone {
        let marks: &[Mark] = bytemuck::cast_slice(&self.marks);
        let outside = move |(_, cursor): &(LaneKey, Cursor)| cursor.chunk == 0 || cursor.chunk > newest;
        let mark = |(lane, cursor): (LaneKey, Cursor)| {
            let mark = &marks[cursor.mark as usize];
            let own = matches!(mark.read(cursor.mark), Ok(Some((of, _))) if of == lane);
            own.then_some(bytemuck::bytes_of(mark))
        };
        self.all().filter(outside).filter_map(mark)
    }

    /// Fences older incarnations of the actor: their lanes can no longer grow.
    fn fence(&mut self, lane: LaneKey) {
        let fresh = || Writer { incarnation: lane.incarnation, cursors: BTreeMap::new() };
        let writer = self.writers.entry(lane.actor).or_insert_with(fresh);
        if writer.incarnation < lane.incarnation {
            let older = std::mem::replace(writer, fresh());
            self.count -= older.cursors.len();
            self.free.extend(older.cursors.values().map(|cursor| cursor.mark));
        }
    }

    fn set(&mut self, lane: LaneKey, cursor: Cursor) {
        let writer = self.writers.get_mut(&lane.actor).expect("fence made the writer");
        self.count += usize::from(writer.cursors.insert(lane.lane, cursor).is_none());
    }

    fn take_mark(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_cache_line() {
        assert_eq!(MARK, 64);
    }
}
