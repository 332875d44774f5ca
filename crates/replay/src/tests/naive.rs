//! The table again, slow and obvious: everything ever inserted is kept in vectors, and every
//! question is answered by looking through them.

use std::collections::HashMap;

use value::priority::Priority;

use crate::{Chunk, Counters, InitialPriority, InsertError, ItemKey, LaneKey, Step, TableOptions};

pub struct NaiveStep {
    segment: usize,
    number: u64,
    pub step: Step,
    place: usize,
}

pub struct NaiveItem {
    segment: usize,
    pub first: u64,
    pub length: u64,
    pub priority: Priority,
    pub times_sampled: u32,
    pub live: bool,
}

#[derive(Clone, Copy)]
struct Lane {
    next_sequence: u64,
    segment: usize,
}

pub struct Naive {
    pub options: TableOptions,
    pub steps: Vec<NaiveStep>,
    /// Steps before this index are forgotten.
    pub oldest: usize,
    pub items: Vec<NaiveItem>,
    lanes: HashMap<LaneKey, Lane>,
    segments: usize,
    pub largest: Priority,
    pub counters: Counters,
}

impl Naive {
    pub fn new(options: TableOptions) -> Self {
        let largest = Priority::try_new(options.first_priority).unwrap();
        Self {
            options,
            steps: Vec::new(),
            oldest: 0,
            items: Vec::new(),
            lanes: HashMap::new(),
            segments: 0,
            largest,
            counters: Counters::default(),
        }
    }

    pub fn insert(&mut self, chunk: Chunk) -> Result<(), InsertError> {
        let newest = self.newest_incarnation(chunk.lane.actor);
        if let Some(newest) = newest.filter(|&newest| newest > chunk.lane.incarnation) {
            let LaneKey { actor, incarnation, .. } = chunk.lane;
            return Err(InsertError::Fenced { actor, incarnation, newest });
        }
        let known = self.lanes.get(&chunk.lane).copied();
        let expected = known.map_or(0, |lane| lane.next_sequence);
        if chunk.sequence < expected {
            self.counters.duplicate_chunks += 1;
            return Ok(());
        }
        let segment = match known {
            Some(lane) if chunk.sequence == expected => lane.segment,
            _ => {
                self.segments += 1;
                self.segments
            }
        };
        let lane = Lane { next_sequence: chunk.sequence + 1, segment };
        self.lanes.insert(chunk.lane, lane);
        self.counters.chunks += 1;
        self.counters.lost_chunks += chunk.sequence - expected;
        for (number, step) in (chunk.first_step..).zip(chunk.steps) {
            let place = self.make_room(step.frame.len());
            self.counters.steps += 1;
            self.counters.actions += u64::from(step.taken.is_some());
            self.steps.push(NaiveStep { segment, number, step, place });
        }
        for new in chunk.items {
            let stored = self.window(segment, new.first).is_some_and(|w| w[0] >= self.oldest);
            if !stored {
                self.counters.items_without_frames += 1;
                continue;
            }
            let priority = match new.priority {
                InitialPriority::Of(priority) => priority,
                InitialPriority::Largest => self.largest,
            };
            self.raise(priority);
            let (first, length) = (new.first, u64::from(new.length));
            self.items.push(NaiveItem { segment, first, length, priority, times_sampled: 0, live: true });
            self.counters.inserts += 1;
            if let Some(out) = self.items.len().checked_sub(self.options.capacity + 1)
                && std::mem::replace(&mut self.items[out].live, false)
            {
                self.counters.evicted += 1;
            }
        }
        self.forget_unneeded();
        Ok(())
    }

    pub fn remove(&mut self, number: usize) -> u64 {
        let live = self.items.get_mut(number).is_some_and(|item| std::mem::replace(&mut item.live, false));
        self.counters.removed_items += u64::from(live);
        self.forget_unneeded();
        u64::from(live)
    }

    fn forget_unneeded(&mut self) {
        while self.oldest < self.steps.len() && !self.is_needed(self.oldest) {
            self.oldest += 1;
        }
    }

    /// Frames of the state at a step, as indices into `steps`, oldest first; `None` if the
    /// segment does not reach back far enough.
    pub fn window(&self, segment: usize, first: u64) -> Option<Vec<usize>> {
        let mut window = Vec::new();
        for back in 0..self.options.stack as u64 {
            let number = first.checked_sub(back)?;
            let found = self.steps.iter().position(|s| s.segment == segment && s.number == number)?;
            window.insert(0, found);
            if self.steps[found].step.starts_episode {
                break;
            }
        }
        Some(window)
    }

    /// State and next state of an item, each as `stack` indices into `steps`.
    pub fn states(&self, item: &NaiveItem) -> [Vec<usize>; 2] {
        [item.first, item.first + item.length].map(|at| {
            let mut window = self.window(item.segment, at).unwrap();
            while window.len() < self.options.stack {
                window.insert(0, window[0]);
            }
            window
        })
    }

    /// The steps whose actions an item spans.
    pub fn span(&self, item: &NaiveItem) -> impl Iterator<Item = &Step> {
        (item.first..item.first + item.length).map(|number| {
            let same = |s: &&NaiveStep| s.segment == item.segment && s.number == number;
            &self.steps.iter().find(same).unwrap().step
        })
    }

    pub fn key(&self, number: usize) -> ItemKey {
        let slot = (number % self.options.capacity) as u32;
        ItemKey { incarnation: self.options.incarnation, slot, generation: number as u64 }
    }

    pub fn weight(&self, item: &NaiveItem) -> f64 {
        let base = item.priority.get() + self.options.priority_constant;
        base.powf(self.options.priority_exponent)
    }

    pub fn raise(&mut self, priority: Priority) {
        if priority > self.largest {
            self.largest = priority;
        }
    }

    fn newest_incarnation(&self, actor: u32) -> Option<u64> {
        self.lanes.keys().filter(|key| key.actor == actor).map(|key| key.incarnation).max()
    }

    /// Forgets oldest steps until a frame has room, and says where.
    fn make_room(&mut self, length: usize) -> usize {
        loop {
            let live = &self.steps[self.oldest..];
            let start = match live.last() {
                Some(last) if last.place + last.step.frame.len() + length <= self.options.bytes_max => {
                    last.place + last.step.frame.len()
                }
                _ => 0,
            };
            let overlaps = |s: &NaiveStep| start < s.place + s.step.frame.len() && s.place < start + length;
            if !live.iter().any(overlaps) && live.len() < self.options.steps_max() {
                return start;
            }
            for number in 0..self.items.len() {
                if self.items[number].live && self.needs(&self.items[number], self.oldest) {
                    self.items[number].live = false;
                    self.counters.reclaimed_items += 1;
                }
            }
            self.oldest += 1;
        }
    }

    fn needs(&self, item: &NaiveItem, step: usize) -> bool {
        let at = &self.steps[step];
        let window = self.window(item.segment, item.first).unwrap();
        let from = self.steps[window[0]].number;
        at.segment == item.segment && (from..=item.first + item.length).contains(&at.number)
    }

    /// Whether an item needs the step or one to come may: one that starts no earlier than the
    /// newest item of an open segment.
    fn is_needed(&self, step: usize) -> bool {
        let at = &self.steps[step];
        let open = self.lanes.iter().any(|(key, lane)| {
            lane.segment == at.segment && self.newest_incarnation(key.actor) == Some(key.incarnation)
        });
        let newest = self.items.iter().rfind(|item| item.segment == at.segment);
        let floor = newest.map_or(0, |item| {
            let window = self.window(item.segment, item.first).unwrap();
            self.steps[window[0]].number
        });
        (open && at.number >= floor) || self.items.iter().any(|item| item.live && self.needs(item, step))
    }
}
