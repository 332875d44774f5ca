//! The store again, slow and obvious: everything ever inserted is kept in vectors, and every
//! question is answered by looking through them.

use std::collections::HashMap;

use value::priority::Priority;

use crate::store::record;
use crate::{
    Chunk, Counters, InitialPriority, InsertError, LaneKey, Remover, Sampler, Step, StoreOptions,
    TableCounters, TableOptions,
};

pub struct NaiveChunk {
    pub lane: LaneKey,
    chain: usize,
    first_step: u64,
    steps: Vec<Step>,
    frames: Vec<Vec<u8>>,
    place: usize,
    pub bytes: usize,
}

pub struct NaiveItem {
    chain: usize,
    /// Index of the chunk that completed it.
    pub origin: usize,
    /// The step that its frames begin with.
    pub from: u64,
    pub first: u64,
    pub length: u64,
    pub priority: Priority,
    pub times_sampled: u32,
    pub live: bool,
    /// The store's slot, once observed.
    pub slot: Option<u32>,
}

pub struct NaiveTable {
    pub options: TableOptions,
    pub items: Vec<NaiveItem>,
    pub largest: Priority,
    pub counters: TableCounters,
}

#[derive(Clone, Copy)]
struct Lane {
    next_sequence: u64,
    chain: usize,
    newest: usize,
    floor: u64,
}

pub struct Naive {
    options: StoreOptions,
    pub chunks: Vec<NaiveChunk>,
    /// Chunks before this index are forgotten.
    pub oldest: usize,
    pub tables: Vec<NaiveTable>,
    lanes: HashMap<LaneKey, Lane>,
    chains: usize,
    unpaid_steps: u64,
    pub counters: Counters,
}

impl Naive {
    pub fn new(options: StoreOptions) -> Self {
        let table = |options: &TableOptions| NaiveTable {
            largest: Priority::try_new(options.first_priority).unwrap(),
            options: options.clone(),
            items: Vec::new(),
            counters: TableCounters::default(),
        };
        Self {
            tables: options.tables.iter().map(table).collect(),
            options,
            chunks: Vec::new(),
            oldest: 0,
            lanes: HashMap::new(),
            chains: 0,
            unpaid_steps: 0,
            counters: Counters::default(),
        }
    }

    /// Says whether the chunk is a duplicate.
    pub fn insert(&mut self, chunk: &Chunk) -> Result<bool, InsertError> {
        let newest = self.newest_incarnation(chunk.lane.actor);
        if let Some(newest) = newest.filter(|&newest| newest > chunk.lane.incarnation) {
            let LaneKey { actor, incarnation, .. } = chunk.lane;
            return Err(InsertError::Fenced { actor, incarnation, newest });
        }
        let known = self.lanes.get(&chunk.lane).copied();
        let expected = known.map_or(0, |lane| lane.next_sequence);
        if chunk.sequence < expected {
            self.counters.duplicate_chunks += 1;
            return Ok(true);
        }
        let bytes = record::bytes(chunk.steps.len(), chunk.items.len(), chunk.frames.len());
        if bytes > self.options.bytes_max {
            return Err(InsertError::ChunkSize { bytes, most: self.options.bytes_max });
        }
        let place = self.make_room(bytes);
        let follows = known.filter(|_| chunk.sequence == expected);
        let chain = follows.map_or_else(
            || {
                self.chains += 1;
                self.chains
            },
            |lane| lane.chain,
        );
        let linked = follows.filter(|lane| lane.newest >= self.oldest);
        let floor = linked.map_or(chunk.first_step, |lane| lane.floor);
        let newest = self.chunks.len();
        let inserts = self.tables.iter().map(|table| table.counters.inserts).sum::<u64>();
        self.lanes.insert(chunk.lane, Lane { next_sequence: chunk.sequence + 1, chain, newest, floor });
        self.store(chunk, chain, place, bytes);
        self.counters.chunks += 1;
        self.counters.lost_chunks += chunk.sequence - expected;
        self.counters.steps += chunk.steps.len() as u64;
        self.counters.agent_steps += chunk.steps.iter().filter(|step| step.taken.is_some()).count() as u64;
        for new in &chunk.items {
            let Some(from) = self.from(chain, new.first) else {
                self.counters.items_without_frames += 1;
                continue;
            };
            self.lanes.get_mut(&chunk.lane).unwrap().floor = from;
            let table = &mut self.tables[usize::from(new.table)];
            if table.live().count() == table.options.capacity {
                table.evict();
            }
            let priority = match new.priority {
                InitialPriority::Of(priority) => priority,
                InitialPriority::Largest => table.largest,
            };
            table.raise(priority);
            let (first, length, origin) = (new.first, u64::from(new.length), newest);
            let (times_sampled, live, slot) = (0, true, None);
            let item = NaiveItem { chain, origin, from, first, length, priority, times_sampled, live, slot };
            table.items.push(item);
            table.counters.inserts += 1;
        }
        let inserted = self.tables.iter().map(|table| table.counters.inserts).sum::<u64>() - inserts;
        self.charge(chunk.steps.len() as u64, inserted);
        self.reclaim_unneeded();
        Ok(false)
    }

    /// Steps that no item pays for are charged, one insert for each 256 of them after the first 256 times 256.
    fn charge(&mut self, steps: u64, items: u64) {
        assert_eq!(self.options.max_length, 255);
        self.unpaid_steps = (self.unpaid_steps + steps).saturating_sub(256 * items);
        while self.unpaid_steps >= 256 * 257 {
            self.unpaid_steps -= 256;
            self.counters.surcharge += 1;
        }
    }

    fn store(&mut self, chunk: &Chunk, chain: usize, place: usize, bytes: usize) {
        let mut frames = Vec::new();
        let mut rest = &chunk.frames[..];
        for step in &chunk.steps {
            let (frame, after) = rest.split_at(step.frame_bytes as usize);
            frames.push(frame.to_vec());
            rest = after;
        }
        let (lane, first_step, steps) = (chunk.lane, chunk.first_step, chunk.steps.clone());
        self.chunks.push(NaiveChunk { lane, chain, first_step, steps, frames, place, bytes });
    }

    pub fn remove(&mut self, table: usize, number: usize) -> u64 {
        let of = &mut self.tables[table];
        let live = of.items.get_mut(number).is_some_and(|item| std::mem::replace(&mut item.live, false));
        of.counters.removed_items += u64::from(live);
        self.reclaim_unneeded();
        u64::from(live)
    }

    pub fn set_capacity(&mut self, table: usize, capacity: usize) {
        let of = &mut self.tables[table];
        of.options.capacity = capacity;
        while of.live().count() > capacity {
            of.evict();
        }
        self.reclaim_unneeded();
    }

    /// Drops the oldest chunks that no present or future item needs.
    pub fn reclaim_unneeded(&mut self) {
        while self.oldest < self.chunks.len() && !self.is_needed(self.oldest) && !self.is_awaited(self.oldest)
        {
            self.oldest += 1;
        }
    }

    /// The first step whose frame an item there needs, if all of them are stored.
    fn from(&self, chain: usize, first: u64) -> Option<u64> {
        let mut at = first;
        for _ in 1..self.options.stack {
            if self.stored(chain, at)?.starts_episode {
                break;
            }
            at = at.checked_sub(1)?;
        }
        while !self.stored(chain, at)?.key_frame {
            at = at.checked_sub(1)?;
        }
        Some(at)
    }

    fn stored(&self, chain: usize, number: u64) -> Option<&Step> {
        self.find(chain, number)
            .filter(|&(chunk, _)| chunk >= self.oldest)
            .map(|(chunk, at)| &self.chunks[chunk].steps[at])
    }

    fn find(&self, chain: usize, number: u64) -> Option<(usize, usize)> {
        let holds = |chunk: &NaiveChunk| {
            let at = number.checked_sub(chunk.first_step)? as usize;
            (chunk.chain == chain && at < chunk.steps.len()).then_some(at)
        };
        self.chunks.iter().enumerate().rev().find_map(|(index, chunk)| Some((index, holds(chunk)?)))
    }

    /// A step of an item's chain and its frame.
    pub fn step(&self, item: &NaiveItem, number: u64) -> (&Step, &[u8]) {
        let (chunk, at) = self.find(item.chain, number).unwrap();
        (&self.chunks[chunk].steps[at], &self.chunks[chunk].frames[at])
    }

    /// State and next state of an item, each as `stack` numbers of steps.
    pub fn states(&self, item: &NaiveItem) -> [Vec<u64>; 2] {
        [item.first, item.first + item.length].map(|at| {
            let mut state = vec![at];
            while state.len() < self.options.stack {
                let oldest = state[0];
                let before = if self.step(item, oldest).0.starts_episode { oldest } else { oldest - 1 };
                state.insert(0, before);
            }
            state
        })
    }

    fn newest_incarnation(&self, actor: u32) -> Option<u64> {
        self.lanes.keys().filter(|key| key.actor == actor).map(|key| key.incarnation).max()
    }

    /// Drops the oldest chunks until one more fits, and returns its position.
    fn make_room(&mut self, bytes: usize) -> usize {
        loop {
            let live = &self.chunks[self.oldest..];
            let start = match live.last() {
                Some(last) if last.place + last.bytes + bytes <= self.options.bytes_max => {
                    last.place + last.bytes
                }
                _ => 0,
            };
            let overlaps =
                |chunk: &NaiveChunk| start < chunk.place + chunk.bytes && chunk.place < start + bytes;
            if !live.iter().any(overlaps) {
                return start;
            }
            let oldest = self.oldest;
            for table in 0..self.tables.len() {
                for number in 0..self.tables[table].items.len() {
                    let item = &self.tables[table].items[number];
                    if item.live && self.needs(item, oldest) {
                        self.tables[table].items[number].live = false;
                        self.tables[table].counters.reclaimed_items += 1;
                    }
                }
            }
            self.oldest += 1;
        }
    }

    fn needs(&self, item: &NaiveItem, index: usize) -> bool {
        let chunk = &self.chunks[index];
        let end = chunk.first_step + chunk.steps.len() as u64;
        let overlaps = item.from < end && chunk.first_step <= item.first + item.length;
        item.origin == index || (item.chain == chunk.chain && !chunk.steps.is_empty() && overlaps)
    }

    fn is_needed(&self, index: usize) -> bool {
        self.tables.iter().any(|table| table.live().any(|(_, item)| self.needs(item, index)))
    }

    /// Whether an item to come may need a step of a chunk: one that starts no earlier than the newest item of a
    /// lane that continues. The newest chunk of such a lane always stays.
    fn is_awaited(&self, index: usize) -> bool {
        let chunk = &self.chunks[index];
        let open = self.newest_incarnation(chunk.lane.actor) == Some(chunk.lane.incarnation);
        let lane = &self.lanes[&chunk.lane];
        let end = chunk.first_step + chunk.steps.len() as u64;
        open && lane.newest >= self.oldest && (lane.newest == index || end > lane.floor)
    }
}

impl NaiveTable {
    pub fn live(&self) -> impl Iterator<Item = (usize, &NaiveItem)> {
        self.items.iter().enumerate().filter(|(_, item)| item.live)
    }

    /// Evicts the item that the remover selects.
    fn evict(&mut self) {
        let victim = match self.options.remover {
            Remover::Fifo => self.live().next(),
            Remover::Lifo => self.live().last(),
            Remover::LowestPriority => {
                self.live().min_by(|(_, a), (_, b)| a.priority.get().total_cmp(&b.priority.get()))
            }
        };
        let (victim, _) = victim.unwrap();
        self.items[victim].live = false;
        self.counters.evicted += 1;
    }

    /// Items that a draw may give, and what each weighs.
    pub fn weights(&self) -> Vec<(usize, f64)> {
        let weight = |item: &NaiveItem| match self.options.sampler {
            Sampler::Proportional => {
                (item.priority.get() + self.options.priority_constant).powf(self.options.priority_exponent)
            }
            _ => 1.0,
        };
        let all = self.live().map(|(number, item)| (number, weight(item)));
        match self.options.sampler {
            Sampler::Fifo => all.take(1).collect(),
            Sampler::Lifo => all.last().into_iter().collect(),
            _ => all.collect(),
        }
    }

    pub fn draw(&mut self, number: usize) {
        let item = &mut self.items[number];
        item.times_sampled += 1;
        self.counters.samples += 1;
        if item.times_sampled == self.options.max_times_sampled {
            item.live = false;
            self.counters.used_up += 1;
        }
    }

    pub fn raise(&mut self, priority: Priority) {
        if priority > self.largest {
            self.largest = priority;
        }
    }
}
