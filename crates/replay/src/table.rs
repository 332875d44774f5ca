//! The table: chunks in, draws out, priorities back.
//!
//! **Where things are.** Frames lie in one byte ring, in the order in which they came. A step is
//! a record in its lane's segment, an item is a record in a ring of `capacity` slots: item number
//! n lies in slot n mod capacity. `order` names, oldest first, the segment of every stored step.
//!
//! **What leaves, and when.** The newest `capacity` items are kept: number n takes the place of
//! number n − capacity. When the frame ring is full, or steps number more than
//! [`TableOptions::steps_max`], the oldest step goes and takes along exactly the items whose window
//! contains it; these lie at the front of its segment, so this is constant time per item. After
//! each chunk the oldest steps that nobody needs also go: no item refers to them, and no item to
//! come may (items of a lane come in order, so that is whatever lies before the newest item's
//! window). A step that an idle lane might still need can hold this up, until the ring is full.
//!
//! **What is bounded.** Frames by `bytes_max`, items by `capacity`, steps by `steps_max`, lanes
//! followed by a constant. Of a drained lane only the cursor remains, and when a newer incarnation
//! of its actor appears, not even that.

use std::collections::VecDeque;

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use value::priority::Priority;

use crate::chunk::{Chunk, InitialPriority, NewItem, Step};
use crate::insert::{InsertError, Verdict, judge};
use crate::item::{ItemRecord, ItemView};
use crate::key::ItemKey;
use crate::lane::{Cursor, Kind, Lanes, StepRecord};
use crate::options::{OptionsError, TableOptions};
use crate::outcome::{Counters, Draw, Inserted, SampleError, Updated};
use crate::ring::{ByteRing, reserve};
use crate::selector::{Change, Selector, WEIGHT_MAX};

/// One replay shard in memory.
pub struct Table {
    pub(crate) options: TableOptions,
    pub(crate) state: State,
    pub(crate) ring: ByteRing,
    pub(crate) selector: Selector,
    /// Changes to the selector, gathered over one call and applied as a batch.
    changes: Vec<Change>,
}

/// All that is stored beside frames and selector. What a save holds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub counters: Counters,
    pub largest_priority: Priority,
    pub live_items: usize,
    pub lanes: Lanes,
    /// The segment of every stored step, oldest first. The oldest step of that segment is meant.
    pub order: VecDeque<u32>,
    /// By slot.
    pub items: Vec<ItemRecord>,
}

impl Table {
    /// An empty table. Address space for items and frames is taken now, so that a size out of reach
    /// is an error here and not later.
    pub fn new(options: TableOptions) -> Result<Table, OptionsError> {
        options.check()?;
        let ring = ByteRing::new(options.bytes_max)?;
        let selector = Selector::new(options.sampler, options.capacity)?;
        reserve(options.capacity.saturating_mul(size_of::<ItemRecord>()))?;
        let first_priority = options.first_priority;
        let state = State {
            counters: Counters::default(),
            largest_priority: Priority::try_new(first_priority).expect("checked with the options"),
            live_items: 0,
            lanes: Lanes::default(),
            order: VecDeque::new(),
            items: Vec::with_capacity(options.capacity),
        };
        Ok(Table { options, state, ring, selector, changes: Vec::new() })
    }

    /// Stores a chunk, all of it or nothing.
    ///
    /// A chunk that is stored already is dropped, which the answer says. A gap in the sequence is
    /// counted and never linked across. An item whose frames are no longer there is dropped and
    /// counted; anything else that is wrong refuses the whole chunk. Constant time per step and item,
    /// amortised, plus the sampler's.
    #[expect(clippy::needless_pass_by_value, reason = "storing a chunk uses it up")]
    pub fn insert(&mut self, chunk: Chunk) -> Result<Inserted, InsertError> {
        let verdict = judge(&self.state.lanes, &self.options, &chunk)?;
        let (mut cursor, lost) = match verdict {
            Verdict::Duplicate => {
                self.state.counters.duplicate_chunks += 1;
                return Ok(Inserted { duplicate: true, ..Inserted::default() });
            }
            Verdict::Continues(cursor) => (cursor, 0),
            Verdict::Begins { lost, phase, previous } => {
                let lanes = &mut self.state.lanes;
                lanes.fence(chunk.lane);
                previous.iter().for_each(|previous| lanes.close(previous.segment));
                let newest_item = previous.map_or(0, |previous| previous.newest_item);
                let (next_sequence, next_step) = (chunk.sequence, chunk.first_step);
                let segment = lanes.open(chunk.lane, next_step);
                (Cursor { next_sequence, next_step, newest_item, phase, segment }, lost)
            }
        };
        for step in &chunk.steps {
            self.push_step(&mut cursor, step);
        }
        let stored = chunk.items.iter().filter(|item| self.push_item(&mut cursor, item)).count();
        cursor.next_sequence += 1;
        self.state.lanes.set_cursor(chunk.lane, cursor);
        self.reclaim_unneeded();
        self.apply_changes();

        let inserted = Inserted {
            duplicate: false,
            items: stored as u64,
            items_without_frames: (chunk.items.len() - stored) as u64,
            chunks_lost: lost,
        };
        let counters = &mut self.state.counters;
        counters.chunks += 1;
        counters.lost_chunks += lost;
        counters.items_without_frames += inserted.items_without_frames;
        Ok(inserted)
    }

    /// Draws `count` items with replacement, in proportion to their weights.
    ///
    /// `stratified` draws one from each of `count` equal shares of the mass, which lowers the
    /// variance and changes no item's expected count. The same table and the same state of `rng`
    /// give the same draws.
    pub fn sample(
        &mut self,
        count: usize,
        stratified: bool,
        rng: &mut impl Rng,
    ) -> Result<Vec<Draw>, SampleError> {
        let mut points = Vec::with_capacity(count);
        for share in 0..count {
            let uniform: f64 = rng.random();
            points.push(if stratified { (share as f64 + uniform) / count as f64 } else { uniform });
        }
        self.sample_at(&points)
    }

    /// Draws the items that lie at these points of the mass, each from 0 to 1.
    pub fn sample_at(&mut self, points: &[f64]) -> Result<Vec<Draw>, SampleError> {
        if self.is_empty() {
            return Err(SampleError::Empty);
        }
        let mut draws = Vec::with_capacity(points.len());
        for &point in points {
            let (slot, probability) = self.selector.draw(point).ok_or(SampleError::NoMass)?;
            let inserts = self.state.counters.inserts;
            let item = &mut self.state.items[slot as usize];
            debug_assert!(item.is_live(), "the selector knows live items only");
            item.times_sampled = item.times_sampled.saturating_add(1);
            draws.push(Draw {
                key: ItemKey { incarnation: self.options.incarnation, slot, generation: item.number },
                probability,
                times_sampled: item.times_sampled,
                age_inserts: inserts - 1 - item.number,
            });
        }
        self.state.counters.samples += points.len() as u64;
        Ok(draws)
    }

    /// Forgets items that nobody can use, such as those whose frames can't be unpacked, and says how many were there.
    /// Takes time in proportion to the items of the same lane: it is not for every day.
    pub fn remove(&mut self, keys: &[ItemKey]) -> u64 {
        let mut removed = 0;
        for &key in keys {
            let Some(slot) = self.live_slot(key) else { continue };
            let segment = self.state.items[slot as usize].segment;
            self.state.lanes.segment_mut(segment).remove_item(slot);
            self.vacate(slot);
            removed += 1;
        }
        self.reclaim_unneeded();
        self.apply_changes();
        self.state.counters.removed_items += removed;
        removed
    }

    /// Looks at an item, or `None` if it is no longer there.
    pub fn item(&self, key: ItemKey) -> Option<ItemView<'_>> {
        let record = &self.state.items[self.live_slot(key)? as usize];
        Some(ItemView {
            key,
            record,
            segment: self.state.lanes.segment(record.segment),
            ring: &self.ring,
            stack: self.options.stack,
            inserts: self.state.counters.inserts,
        })
    }

    /// Gives items new priorities. Items no longer there are counted and ignored; of several updates
    /// of one item the last wins.
    pub fn update_priorities(&mut self, updates: &[(ItemKey, Priority)]) -> Updated {
        let mut updated = Updated::default();
        for &(key, priority) in updates {
            let Some(slot) = self.live_slot(key) else {
                updated.stale += 1;
                continue;
            };
            self.raise_largest_priority(priority);
            self.state.items[slot as usize].priority = priority;
            self.changes.push((slot, Some(weight(&self.options, priority))));
            updated.applied += 1;
        }
        self.apply_changes();
        self.state.counters.updates += updated.applied;
        self.state.counters.stale_updates += updated.stale;
        updated
    }

    /// Lets [`InitialPriority::Largest`] mean at least this, for a maximum known from other shards.
    pub fn raise_largest_priority(&mut self, priority: Priority) {
        if priority > self.state.largest_priority {
            self.state.largest_priority = priority;
        }
    }

    /// Changes the exponent of all weights, in O(capacity).
    pub fn set_priority_exponent(&mut self, exponent: f64) -> Result<(), OptionsError> {
        let changed = TableOptions { priority_exponent: exponent, ..self.options.clone() };
        changed.check()?;
        self.options = changed;
        self.rebuild_weights();
        Ok(())
    }

    /// The options in force.
    pub fn options(&self) -> &TableOptions {
        &self.options
    }

    /// Items that can be looked at.
    pub fn len(&self) -> usize {
        self.state.live_items
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items there can be.
    pub fn capacity(&self) -> usize {
        self.options.capacity
    }

    /// Steps stored, needed by an item or not.
    pub fn steps_stored(&self) -> usize {
        self.state.order.len()
    }

    /// Bytes of all packed frames stored, never more than `bytes_max`.
    pub fn frame_bytes_used(&self) -> usize {
        self.ring.used()
    }

    /// What this table weighs beside other shards: Σ(priority + constant)^exponent, or the number
    /// of items if it samples uniformly.
    pub fn mass(&self) -> f64 {
        self.selector.mass()
    }

    /// What [`InitialPriority::Largest`] means now.
    pub fn largest_priority(&self) -> Priority {
        self.state.largest_priority
    }

    /// The totals.
    pub fn counters(&self) -> Counters {
        self.state.counters
    }

    /// Gives every leaf of the tree its weight anew. A uniform sampler has none.
    pub(crate) fn rebuild_weights(&mut self) {
        let (options, items) = (&self.options, &self.state.items);
        if let Selector::Proportional(tree) = &mut self.selector {
            tree.rebuild(|slot| match items.get(slot as usize) {
                Some(item) if item.is_live() => weight(options, item.priority),
                _ => 0.0,
            });
        }
    }

    fn live_slot(&self, key: ItemKey) -> Option<u32> {
        let record = self.state.items.get(key.slot as usize)?;
        let same = key.incarnation == self.options.incarnation && key.generation == record.number;
        (same && record.is_live()).then_some(key.slot)
    }

    fn push_step(&mut self, cursor: &mut Cursor, step: &Step) {
        let length = step.frame.len();
        let place = loop {
            match self.ring.place(length) {
                Some(place) if self.state.order.len() < self.options.steps_max() => break place,
                _ => self.reclaim_oldest(),
            }
        };
        self.ring.take(place, length).copy_from_slice(&step.frame);
        let kind = Kind::of(step.taken.as_ref());
        let (phase, since_start) = cursor.phase.advance(step.starts_episode, kind).expect("judged before");
        let record = StepRecord::new(step, since_start, place);
        self.state.lanes.segment_mut(cursor.segment).steps.push_back(record);
        self.state.order.push_back(cursor.segment);
        cursor.phase = phase;
        cursor.next_step += 1;
        self.state.counters.steps += 1;
        self.state.counters.actions += u64::from(step.taken.is_some());
    }

    /// Stores an item, unless frames that it needs are missing.
    fn push_item(&mut self, cursor: &mut Cursor, new: &NewItem) -> bool {
        cursor.newest_item = new.first;
        let segment = self.state.lanes.segment_mut(cursor.segment);
        let Some(start) = segment.window_start(new.first, self.options.stack) else { return false };
        segment.floor = start;

        let priority = match new.priority {
            InitialPriority::Of(priority) => priority,
            InitialPriority::Largest => self.state.largest_priority,
        };
        self.raise_largest_priority(priority);
        let number = self.state.counters.inserts;
        let slot = (number % self.options.capacity as u64) as u32;
        self.evict(slot);
        let record = ItemRecord {
            number,
            first: new.first,
            priority,
            segment: cursor.segment,
            times_sampled: 0,
            length: new.length,
        };
        match self.state.items.get_mut(slot as usize) {
            Some(vacant) => *vacant = record,
            None => self.state.items.push(record),
        }
        self.state.lanes.segment_mut(cursor.segment).items.push_back(slot);
        self.state.live_items += 1;
        self.state.counters.inserts += 1;
        self.changes.push((slot, Some(weight(&self.options, priority))));
        true
    }

    /// Makes room in a slot. What lies there is the oldest of all items, so also of its segment.
    fn evict(&mut self, slot: u32) {
        let Some(item) = self.state.items.get(slot as usize) else { return };
        if item.is_live() {
            let popped = self.state.lanes.segment_mut(item.segment).pop_item();
            debug_assert_eq!(popped, Some(slot));
            self.vacate(slot);
            self.state.counters.evicted += 1;
        }
    }

    fn vacate(&mut self, slot: u32) {
        self.state.items[slot as usize].length = 0;
        self.state.live_items -= 1;
        self.changes.push((slot, None));
    }

    /// Forgets the oldest step and the items that need it.
    fn reclaim_oldest(&mut self) {
        let index = self.state.order.pop_front().expect("options leave room for one frame");
        while let Some(slot) = self.item_needing_oldest(index) {
            self.state.lanes.segment_mut(index).pop_item();
            self.vacate(slot);
            self.state.counters.reclaimed_items += 1;
        }
        let step = self.state.lanes.segment_mut(index).pop_step().expect("order counts steps");
        self.ring.release_oldest(step.length as usize);
        self.state.lanes.free_if_drained(index);
    }

    /// The oldest item of a segment, if it needs the segment's oldest step.
    fn item_needing_oldest(&self, index: u32) -> Option<u32> {
        let segment = self.state.lanes.segment(index);
        let slot = *segment.items.front()?;
        let first = self.state.items[slot as usize].first;
        let start = segment.window_start(first, self.options.stack);
        (start == Some(segment.first_step)).then_some(slot)
    }

    /// Forgets the oldest steps as long as no item needs them or may come to.
    fn reclaim_unneeded(&mut self) {
        while let Some(&index) = self.state.order.front() {
            let segment = self.state.lanes.segment(index);
            let awaited = segment.open && segment.first_step >= segment.floor;
            if awaited || self.item_needing_oldest(index).is_some() {
                break;
            }
            self.reclaim_oldest();
        }
    }

    fn apply_changes(&mut self) {
        self.selector.apply(&self.changes);
        self.changes.clear();
    }
}

/// (p + constant)^α, kept small enough that sums stay finite.
fn weight(options: &TableOptions, priority: Priority) -> f64 {
    let base = priority.get() + options.priority_constant;
    base.powf(options.priority_exponent).min(WEIGHT_MAX)
}
