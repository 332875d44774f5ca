//! The ring of chunks, and where each lies.
//!
//! One stretch of memory, taken whole at the start, so the byte cap can't be exceeded. Records go in at
//! the head and out at the tail, strictly in that order. One is never split: if it does not fit before the
//! end it goes to the beginning, and the bytes it skipped come back when the tail passes them. Where a
//! record goes depends only on the head and on its length.
//!
//! Chunks of a lane that follow one another without a gap form a *chain*: each knows the one before and
//! the one after it. Nothing ever refers from one chain to another.

use std::collections::VecDeque;

use crate::store::memory::{Memory, prefetch};
use crate::store::record::{self, ALIGNMENT, Header, ItemRecord, Record, StepRecord};

/// A chunk in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Entry {
    place: usize,
    /// 0 if the record is lost.
    bytes: u32,
    pub steps: u32,
    pub first_step: u64,
    /// The chunk before it in its chain, or 0.
    pub previous: u64,
    /// The chunk after it in its chain, or 0.
    pub next: u64,
    /// Items that need a step of it.
    pub needed: u32,
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
    /// The head has turned back to the beginning and the tail has not.
    lapped: bool,
    /// Bytes of records, without what was skipped.
    used: usize,
    /// Entries whose records are lost.
    lost: u64,
}

impl Log {
    /// An empty ring. Whatever the memory holds is not looked at.
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
        }
    }

    /// Whatever records the ring still holds, from number `oldest` on, 0 if that is not known. Says how many
    /// are damaged, as far as one can tell, up to `newest` at least, beside those that were `known` to be.
    pub fn recover(memory: Memory, salt: u64, oldest: u64, newest: u64, known: u64) -> (Self, u64) {
        let mut found = Vec::new();
        let mut place = 0;
        while place + size_of::<Header>() <= memory.len() {
            match Record::find(&memory[place..], salt) {
                Some(record) => {
                    let number = record.header().number;
                    let bytes = record.as_bytes().len();
                    if number >= oldest {
                        found.push((number, place, bytes));
                    }
                    place += bytes;
                }
                // A record that lies within a damaged one's former place is still found.
                None => place += ALIGNMENT,
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|&mut (number, ..)| number);
        let mut log = Self::new(memory, salt);
        for (number, place, bytes) in found {
            log.clear(place, bytes);
            log.skip_to(number);
            log.adopt(place, bytes);
        }
        log.skip_to(newest + 1);
        if oldest == 0 {
            // Records left over from long ago are among them, so what is missing in between means nothing.
            return (log, 0);
        }
        let before = log.oldest.saturating_sub(oldest);
        let damaged = (before + log.lost).saturating_sub(known);
        (log, damaged)
    }

    /// Lets the next number be this one; what is missing before it is lost.
    pub fn skip_to(&mut self, number: u64) {
        let missing = number.saturating_sub(self.next_number());
        // So many do not fit into the ring at once: what came before them has gone, whatever was left of it.
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

    /// Drops the oldest chunks until a newer record can be where one was found. It is none that was live at the
    /// same time, or the ring would have had it elsewhere.
    fn clear(&mut self, place: usize, bytes: usize) {
        let end = place + bytes;
        while self.used > 0 {
            let fits = match self.lapped {
                true => self.head <= place && end <= self.tail,
                false => self.head <= place || end <= self.tail,
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

    /// Takes a record that lies in the memory as the newest one.
    fn adopt(&mut self, place: usize, bytes: usize) {
        if self.used == 0 {
            self.tail = place;
        } else if place < self.head {
            self.lapped = true;
        }
        self.head = place + bytes;
        self.used += bytes;
        let header = *Record::trusted(&self.memory[place..place + bytes]).header();
        let number = self.next_number();
        let (steps, first_step) = (header.steps, header.first_step);
        let entry = Entry { place, bytes: bytes as u32, steps, first_step, ..Entry::default() };
        self.entries.push_back(entry);
        if self.follows(&header) {
            self.link(header.previous, number);
        }
    }

    /// Whether the chunk that a record claims to follow is there, ends where this one begins, and is followed by no
    /// other: a chain does not branch.
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

    /// The number that the next chunk gets.
    pub fn next_number(&self) -> u64 {
        self.oldest + self.entries.len() as u64
    }

    /// The oldest chunk's number, if there is any.
    pub fn oldest(&self) -> Option<u64> {
        (!self.entries.is_empty()).then_some(self.oldest)
    }

    /// Numbers of the chunks, the lost ones included.
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
        Some(Record::trusted(&self.memory[entry.place..entry.place + entry.bytes as usize]))
    }

    /// Says that an item of a chunk will be looked at soon: its record, the chunk's header, and a step that is likely its.
    pub fn prefetch(&self, number: u64, at: u32) {
        let Some(entry) = self.entry(number) else { return };
        let (steps, at) = (entry.steps as usize, at as usize);
        for offset in [0, record::step_offset(at), record::item_offset(steps, at)] {
            self.memory.get(entry.place + offset).inspect(|place| prefetch(*place));
        }
    }

    /// The chunk of a chain, at or before `number`, that holds a step.
    pub fn chunk_of(&self, number: u64, step: u64) -> Option<u64> {
        let mut number = number;
        loop {
            let entry = self.entry(number).filter(|entry| !entry.is_lost())?;
            if entry.first_step <= step {
                return (step < entry.end()).then_some(number);
            }
            number = entry.previous;
        }
    }

    /// A stored step of a chain, at or before a chunk.
    pub fn step(&self, number: u64, step: u64) -> Option<&StepRecord> {
        let record = self.record(self.chunk_of(number, step)?)?;
        record.steps().get((step - record.header().first_step) as usize)
    }

    /// Where a record of so many bytes can go now, or `None` if older ones must go first.
    pub fn place(&self, bytes: usize) -> Option<usize> {
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

    /// Stores a chunk at a place that [`Self::place`] gave, and says its number.
    pub fn append(
        &mut self,
        place: usize,
        bytes: usize,
        header: Header,
        steps: &[StepRecord],
        items: &[ItemRecord],
        frames: &[u8],
    ) -> u64 {
        let number = self.next_number();
        let header = Header { salt: self.salt, number, ..header };
        record::write(&mut self.memory[place..place + bytes], header, steps, items, frames);
        self.adopt(place, bytes);
        number
    }

    /// Puts a saved record in as the newest one, where it was. Those that had to make room for it go, as they did.
    pub fn restore(&mut self, place: usize, bytes: &[u8]) -> bool {
        let within = place.checked_add(bytes.len()).is_some_and(|end| end <= self.memory.len());
        if !within || !place.is_multiple_of(ALIGNMENT) || bytes.is_empty() {
            return false;
        }
        self.clear(place, bytes.len());
        let target = &mut self.memory[place..place + bytes.len()];
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
                self.adopt(place, bytes.len());
                true
            }
            _ => false,
        }
    }

    /// Gives back the oldest chunk's bytes.
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
                self.lapped &= oldest.place > self.tail;
                self.tail = oldest.place;
            }
            None => (self.head, self.tail, self.lapped) = (0, 0, false),
        }
    }

    /// Where a record lies.
    pub fn place_of(&self, number: u64) -> Option<usize> {
        self.entry(number).filter(|entry| !entry.is_lost()).map(|entry| entry.place)
    }

    /// Chunks that are lost and would otherwise be here.
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
