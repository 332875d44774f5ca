//! The ring of chunks, and the offset of each.
//!
//! One block of memory, allocated at the start, so the limit on bytes cannot be exceeded. Records are appended at the
//! head and dropped at the tail, in order. A record is never split: if it does not fit before the end, it goes to the
//! beginning, and the skipped bytes become free when the tail passes them. The offset of a record depends only on the
//! head and on the record's length.
//!
//! Contiguous chunks of a lane form a *chain*: each is linked to the previous and the next one. No chain refers to
//! another.

use std::collections::VecDeque;

use crate::store::memory::{Memory, prefetch};
use crate::store::record::{self, ALIGNMENT, Header, ItemRecord, Record, StepRecord};

/// A chunk in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Entry {
    offset: usize,
    /// 0 if the record was lost.
    bytes: u32,
    pub steps: u32,
    pub first_step: u64,
    /// The chunk before it in its chain, or 0.
    pub previous: u64,
    /// The chunk after it in its chain, or 0.
    pub next: u64,
    /// The chunk of its lane before it, also across a gap, or 0.
    pub before: u64,
    /// How many items need it and no chunk before it. Only this decides whether the oldest chunk can be reclaimed.
    pub needed: u32,
    /// Number of the first chunk that carries one of them.
    pub first_carrier: u64,
}

impl Entry {
    /// The step after its last.
    pub fn end(&self) -> u64 {
        self.first_step + u64::from(self.steps)
    }

    pub fn is_lost(&self) -> bool {
        self.bytes == 0
    }
}

pub(crate) struct Log {
    memory: Memory,
    salt: u64,
    entries: VecDeque<Entry>,
    /// Number of the first of `entries`.
    oldest: u64,
    head: usize,
    tail: usize,
    /// The head has wrapped around and the tail has not.
    lapped: bool,
    /// Bytes of all records, without skipped bytes.
    used: usize,
    /// How many entries have lost their record.
    lost: u64,
    /// How many steps and chunks were visited, so that tests can check that a message costs bounded work.
    #[cfg(any(test, feature = "testing"))]
    walked: std::sync::atomic::AtomicU64,
}

impl Log {
    /// An empty ring. Ignores the contents of the memory.
    pub fn new(memory: Memory, salt: u64) -> Self {
        Self {
            memory,
            salt,
            entries: VecDeque::new(),
            oldest: 1,
            head: 0,
            tail: 0,
            lapped: false,
            used: 0,
            lost: 0,
            #[cfg(any(test, feature = "testing"))]
            walked: Default::default(),
        }
    }

    /// Recovers all intact records from number `oldest` on (0: unknown). Also returns how many records up to `newest`
    /// are damaged, beside the `known` ones. If `oldest` is unknown, damage cannot be counted.
    pub fn recover(memory: Memory, salt: u64, oldest: u64, newest: u64, known: u64) -> (Self, u64) {
        let mut found = Vec::new();
        let mut offset = 0;
        while offset + size_of::<Header>() <= memory.len() {
            match Record::find(&memory[offset..], salt) {
                Some(record) => {
                    let number = record.header().number;
                    let bytes = record.as_bytes().len();
                    if number >= oldest {
                        found.push((number, offset, bytes));
                    }
                    offset += bytes;
                }
                // Not skipping a damaged record finds an older record within it.
                None => offset += ALIGNMENT,
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|&mut (number, ..)| number);
        let mut log = Self::new(memory, salt);
        for (number, offset, bytes) in found {
            log.drop_overlapping(offset, bytes);
            log.skip_to(number);
            log.append_entry(offset, bytes);
        }
        log.skip_to(newest + 1);
        if oldest == 0 {
            // The records may include old leftovers, so gaps between them are no damage.
            return (log, 0);
        }
        let before = log.oldest.saturating_sub(oldest);
        let damaged = (before + log.lost).saturating_sub(known);
        (log, damaged)
    }

    /// Sets the next number. The missing numbers before it count as lost records.
    pub fn skip_to(&mut self, number: u64) {
        let missing = number.saturating_sub(self.next_number());
        // The ring cannot hold that many records at once, so the ones before the gap were no longer live.
        let most = (self.memory.len() / record::bytes(0, 0, 0)) as u64;
        while self.lost + missing > most && !self.entries.is_empty() {
            self.drop_oldest();
        }
        if self.entries.is_empty() {
            self.oldest = self.oldest.max(number);
        } else {
            (0..missing).for_each(|_| self.entries.push_back(Entry::default()));
            self.lost += missing;
        }
    }

    /// Drops the oldest chunks until the bytes of a newer record are free. Chunks that overlap it were not live at the
    /// same time as it, or it would have another offset.
    fn drop_overlapping(&mut self, offset: usize, bytes: usize) {
        let end = offset + bytes;
        while self.used > 0 {
            let fits = match self.lapped {
                true => self.head <= offset && end <= self.tail,
                false => self.head <= offset || end <= self.tail,
            };
            if fits {
                break;
            }
            self.drop_oldest();
        }
    }

    /// Drops all chunks below a number.
    pub fn drop_until(&mut self, number: u64) {
        while self.oldest().is_some_and(|oldest| oldest < number) {
            self.drop_oldest();
        }
    }

    /// Appends the entry of a record that is already in memory.
    fn append_entry(&mut self, offset: usize, bytes: usize) {
        if self.used == 0 {
            self.tail = offset;
        } else if offset < self.head {
            self.lapped = true;
        }
        self.head = offset + bytes;
        self.used += bytes;
        let header = *Record::trusted(&self.memory[offset..offset + bytes]).header();
        let number = self.next_number();
        let (steps, first_step) = (header.steps, header.first_step);
        let entry = Entry { offset, bytes: bytes as u32, steps, first_step, ..Entry::default() };
        self.entries.push_back(entry);
        if self.follows(&header) {
            self.link(header.previous, number);
        }
    }

    /// Whether the chunk that a record claims to follow is stored, ends where this one begins, and has no other
    /// successor. A chain does not branch.
    fn follows(&self, header: &Header) -> bool {
        let Some(record) = self.record(header.previous) else { return false };
        let before = record.header();
        self.entry(header.previous).is_some_and(|entry| entry.next == 0)
            && (before.actor, before.incarnation, before.lane)
                == (header.actor, header.incarnation, header.lane)
            && before.sequence + 1 == header.sequence
            && before.first_step + u64::from(before.steps) == header.first_step
    }

    fn link(&mut self, previous: u64, number: u64) {
        if let Some(entry) = self.entry_mut(previous) {
            entry.next = number;
            self.entry_mut(number).expect("just added").previous = previous;
        }
    }

    /// Links a chunk to the one of its lane before it. That one may be dropped later.
    pub fn set_before(&mut self, number: u64, before: u64) {
        if let Some(entry) = self.entry_mut(number) {
            entry.before = before;
        }
    }

    /// The number that the next chunk gets.
    pub fn next_number(&self) -> u64 {
        self.oldest + self.entries.len() as u64
    }

    /// The oldest chunk's number, if there is any.
    pub fn oldest(&self) -> Option<u64> {
        (!self.entries.is_empty()).then_some(self.oldest)
    }

    /// Numbers of all chunks, including lost ones.
    pub fn numbers(&self) -> std::ops::Range<u64> {
        self.oldest..self.next_number()
    }

    pub fn entry(&self, number: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(number.checked_sub(self.oldest)?).ok()?)
    }

    pub fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(number.checked_sub(self.oldest)?).ok()?)
    }

    pub fn record(&self, number: u64) -> Option<Record<'_>> {
        let entry = self.entry(number).filter(|entry| !entry.is_lost())?;
        Some(Record::trusted(&self.memory[entry.offset..entry.offset + entry.bytes as usize]))
    }

    /// Prefetches an item of a chunk: its record, the chunk's header, and a step that probably belongs to it.
    pub fn prefetch(&self, number: u64, at: u32) {
        let Some(entry) = self.entry(number) else { return };
        let (steps, at) = (entry.steps as usize, at as usize);
        for part in [0, record::step_offset(at), record::item_offset(steps, at)] {
            self.memory.get(entry.offset + part).inspect(|byte| prefetch(*byte));
        }
    }

    /// Counts visited steps, chunks or items.
    pub fn count_walked(&self, count: usize) {
        #[cfg(any(test, feature = "testing"))]
        self.walked.fetch_add(count as u64, std::sync::atomic::Ordering::Relaxed);
        #[cfg(not(any(test, feature = "testing")))]
        let _ = count;
    }

    /// How many steps, chunks and items were visited so far.
    #[cfg(any(test, feature = "testing"))]
    pub fn walked(&self) -> u64 {
        self.walked.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The chunk that contains a step, in the chain of `number` and not after it.
    pub fn chunk_of(&self, number: u64, step: u64) -> Option<u64> {
        let mut number = number;
        loop {
            let entry = self.entry(number).filter(|entry| !entry.is_lost())?;
            self.count_walked(1);
            if entry.first_step <= step {
                return (step < entry.end()).then_some(number);
            }
            number = entry.previous;
        }
    }

    /// The offset for a new record of this size, or `None` if older records must be dropped first.
    pub fn free_offset(&self, bytes: usize) -> Option<usize> {
        let end = self.memory.len();
        if self.used == 0 {
            (bytes <= end).then_some(0)
        } else if self.lapped {
            (self.head + bytes <= self.tail).then_some(self.head)
        } else if self.head + bytes <= end {
            Some(self.head)
        } else {
            (bytes <= self.tail).then_some(0)
        }
    }

    /// Stores a chunk at an offset from [`Self::free_offset`], and returns its number.
    pub fn append(
        &mut self,
        offset: usize,
        bytes: usize,
        header: Header,
        steps: &[StepRecord],
        items: &[ItemRecord],
        frames: &[u8],
    ) -> u64 {
        let number = self.next_number();
        let header = Header { salt: self.salt, number, ..header };
        record::write(&mut self.memory[offset..offset + bytes], header, steps, items, frames);
        self.append_entry(offset, bytes);
        number
    }

    /// Appends a saved record at its former offset. Drops older records that overlap it, as in the saved store. Returns
    /// whether the record is valid.
    pub fn restore(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let within = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.memory.len());
        if !within || !offset.is_multiple_of(ALIGNMENT) || bytes.is_empty() {
            return false;
        }
        self.drop_overlapping(offset, bytes.len());
        let target = &mut self.memory[offset..offset + bytes.len()];
        target.copy_from_slice(bytes);
        if target.len() < size_of::<Header>() {
            return false;
        }
        target[..8].copy_from_slice(&self.salt.to_le_bytes());
        match Record::find(target, self.salt) {
            Some(record) if record.as_bytes().len() == bytes.len() => {
                let number = record.header().number;
                if number < self.next_number() {
                    return false;
                }
                self.skip_to(number);
                self.append_entry(offset, bytes.len());
                true
            }
            _ => false,
        }
    }

    /// Drops the oldest chunk.
    pub fn drop_oldest(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.oldest += 1;
        if let Some(next) = self.entry_mut(entry.next) {
            next.previous = 0;
        }
        if entry.is_lost() {
            self.lost -= 1;
            return;
        }
        self.used -= entry.bytes as usize;
        match self.entries.iter().find(|entry| !entry.is_lost()) {
            Some(oldest) => {
                self.lapped &= oldest.offset > self.tail;
                self.tail = oldest.offset;
            }
            None => (self.head, self.tail, self.lapped) = (0, 0, false),
        }
    }

    /// The offset of a record.
    pub fn offset_of(&self, number: u64) -> Option<usize> {
        self.entry(number).filter(|entry| !entry.is_lost()).map(|entry| entry.offset)
    }

    /// Number of lost records between the oldest and the newest.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes of all records.
    pub fn used(&self) -> usize {
        self.used
    }

    pub fn size(&self) -> usize {
        self.memory.len()
    }
}
