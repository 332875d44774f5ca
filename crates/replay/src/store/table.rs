//! A table: items over stored steps, with a sampler and a remover.
//!
//! The parts of an item are in three places: frames and steps in the ring, the mutable part (priority, times sampled)
//! in a *slot* that survives a crash, and the link from the slot to the ring in memory. The items of a table form a
//! linked list from the oldest to the newest, so both ends are known and any item can be removed in constant time.

use value::priority::Priority;

use crate::key::ItemKey;
use crate::options::{OptionsError, Remover, Sampler, TableOptions};
use crate::outcome::TableCounters;
use crate::store::lowest::Lowest;
use crate::store::memory::{Memory, prefetch};
use crate::store::slot::{SLOT, Slot};
use crate::sum_tree::SumTree;

mod recovery;

pub(crate) use recovery::ItemState;

/// The largest weight of one item. Even 2³² of them add up to a finite sum.
const WEIGHT_MAX: f64 = 1e280;

/// Stands for no slot.
const NONE: u32 = u32::MAX;

/// An item in the list by age: where its record is, and its neighbours.
#[derive(Clone, Copy, Debug)]
struct ItemNode {
    /// Number of the chunk that completed the item.
    chunk: u64,
    /// Index of the item in the chunk's record.
    at: u32,
    /// See [`Origin::span`].
    span: u32,
    older: u32,
    newer: u32,
}

impl ItemNode {
    const VACANT: Self = Self { chunk: 0, at: 0, span: 0, older: NONE, newer: NONE };
}

/// Where an item's record is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Origin {
    pub chunk: u64,
    pub at: u32,
    /// How many chunks, of all lanes, lie between it and the first chunk that the item needs.
    pub span: u32,
}

impl Origin {
    /// The first chunk that the item needs. It is reclaimed with this chunk.
    pub fn first_chunk(self) -> u64 {
        self.chunk - u64::from(self.span)
    }
}

/// One table of a store. Its public methods only read.
pub struct Table {
    options: TableOptions,
    slots: Memory,
    nodes: Vec<ItemNode>,
    oldest: u32,
    newest: u32,
    live: usize,
    /// Vacant slots below `fresh`. The last one is used next.
    free: Vec<u32>,
    fresh: u32,
    tree: SumTree,
    lowest: Option<Lowest>,
    pub(crate) next_number: u64,
    pub(crate) largest_priority: Priority,
    pub(crate) counters: TableCounters,
    /// Changes to the tree, collected during one call and applied as a batch.
    changes: Vec<(u32, f64)>,
}

impl Table {
    /// Bytes of the slots of `capacity` items.
    pub(crate) fn slots_bytes(capacity: usize) -> usize {
        capacity.saturating_mul(SLOT)
    }

    /// An empty table. `slots` may hold the slots of a former process.
    pub(crate) fn new(options: TableOptions, slots: Memory) -> Result<Self, OptionsError> {
        options.check()?;
        Self::check_memory(options.capacity)?;
        let largest_priority = Priority::try_new(options.first_priority).expect("checked with the options");
        let lowest = (options.remover == Remover::LowestPriority).then(Lowest::default);
        Ok(Self {
            tree: SumTree::new(slots.len() / SLOT),
            nodes: Vec::with_capacity(options.capacity),
            options,
            slots,
            oldest: NONE,
            newest: NONE,
            live: 0,
            free: Vec::new(),
            fresh: 0,
            lowest,
            next_number: 0,
            largest_priority,
            counters: TableCounters::default(),
            changes: Vec::new(),
        })
    }

    /// Checks that there is memory for this many items.
    pub(crate) fn check_memory(capacity: usize) -> Result<(), OptionsError> {
        reserve(SumTree::bytes_for(capacity))?;
        reserve(capacity.saturating_mul(size_of::<ItemNode>()))
    }

    pub fn options(&self) -> &TableOptions {
        &self.options
    }

    /// Number of stored items.
    pub fn len(&self) -> usize {
        self.live
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The sum of all weights.
    pub fn mass(&self) -> f64 {
        self.tree.total()
    }

    /// The current value of [`InitialPriority::Largest`](crate::InitialPriority::Largest).
    pub fn largest_priority(&self) -> Priority {
        self.largest_priority
    }

    /// The probability of the item in a slot in one draw.
    pub fn probability(&self, slot: u32) -> f64 {
        match self.options.sampler {
            Sampler::Proportional | Sampler::Uniform => self.tree.get(slot) / self.tree.total(),
            Sampler::Fifo => f64::from(u8::from(slot == self.oldest)),
            Sampler::Lifo => f64::from(u8::from(slot == self.newest)),
        }
    }

    pub fn counters(&self) -> TableCounters {
        self.counters
    }

    /// Slots of the items, oldest first.
    pub(crate) fn by_age(&self) -> impl Iterator<Item = u32> + '_ {
        let next = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(next(self.oldest), move |&slot| next(self.nodes[slot as usize].newer))
    }

    /// Slots of the items, newest first.
    #[cfg(test)]
    pub(crate) fn by_youth(&self) -> impl Iterator<Item = u32> + '_ {
        let next = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(next(self.newest), move |&slot| next(self.nodes[slot as usize].older))
    }

    fn slot(&self, slot: u32) -> Slot {
        bytemuck::cast_slice::<u8, Slot>(&self.slots)[slot as usize]
    }

    fn write_slot(&mut self, slot: u32, content: Slot) {
        bytemuck::cast_slice_mut::<u8, Slot>(&mut self.slots)[slot as usize] = content;
    }

    /// The slot of a key, if its item is still stored.
    pub(crate) fn find(&self, incarnation: u32, key: ItemKey) -> Option<u32> {
        (key.incarnation == incarnation && self.holds(key.slot, key.generation)).then_some(key.slot)
    }

    pub(crate) fn number(&self, slot: u32) -> u64 {
        self.slot(slot).number
    }

    pub(crate) fn priority(&self, slot: u32) -> Priority {
        Priority::try_new(self.slot(slot).priority).expect("only priorities are stored")
    }

    pub(crate) fn times_sampled(&self, slot: u32) -> u32 {
        self.slot(slot).times_sampled
    }

    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch(&self.nodes[slot as usize]);
        prefetch(&bytemuck::cast_slice::<u8, Slot>(&self.slots)[slot as usize]);
    }

    pub(crate) fn origin(&self, slot: u32) -> Origin {
        let ItemNode { chunk, at, span, .. } = self.nodes[slot as usize];
        Origin { chunk, at, span }
    }

    /// Whether the item with this number is stored in this slot.
    pub(crate) fn holds(&self, slot: u32, number: u64) -> bool {
        slot < self.fresh && self.slot(slot).number == number && !self.slot(slot).is_vacant()
    }

    /// The item to evict before the next insert, if the table is full.
    pub(crate) fn victim(&mut self) -> Option<u32> {
        (self.live >= self.options.capacity).then(|| self.next_victim())?
    }

    /// The item that the remover evicts next.
    pub(crate) fn next_victim(&mut self) -> Option<u32> {
        Some(match self.options.remover {
            _ if self.live == 0 => return None,
            Remover::Fifo => self.oldest,
            Remover::Lifo => self.newest,
            Remover::LowestPriority => {
                let slots: &[Slot] = bytemuck::cast_slice(&self.slots);
                let lowest = self.lowest.as_mut().expect("made with the table");
                lowest.pop(|slot, number, priority| slots[slot as usize].is(number, priority))?
            }
        })
    }

    /// Inserts a new item into a vacant slot, and returns the slot.
    pub(crate) fn push(&mut self, origin: Origin, priority: Priority, times_sampled: u32) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.fresh += 1;
                self.fresh - 1
            }
        };
        let number = self.next_number;
        self.next_number += 1;
        self.insert_at(slot, number, origin, priority, times_sampled);
        slot
    }

    /// Inserts an item into this slot, as the newest.
    fn insert_at(&mut self, slot: u32, number: u64, origin: Origin, priority: Priority, times_sampled: u32) {
        let Origin { chunk, at, span } = origin;
        self.write_slot(slot, Slot::new(number, priority.get(), times_sampled));
        let node = ItemNode { chunk, at, span, older: self.newest, newer: NONE };
        if self.nodes.len() <= slot as usize {
            self.nodes.resize(slot as usize + 1, ItemNode::VACANT);
        }
        self.nodes[slot as usize] = node;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.nodes[newest as usize].newer = slot,
        }
        self.newest = slot;
        self.live += 1;
        self.update_weight(slot, priority);
    }

    /// Removes the item in a slot.
    pub(crate) fn remove(&mut self, slot: u32) {
        let ItemNode { older, newer, .. } = self.nodes[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        self.write_slot(slot, Slot::vacant(self.slot(slot).number));
        self.free.push(slot);
        self.live -= 1;
        self.changes.push((slot, 0.0));
    }

    pub(crate) fn set_priority(&mut self, slot: u32, priority: Priority) {
        let Slot { number, times_sampled, .. } = self.slot(slot);
        self.write_slot(slot, Slot::new(number, priority.get(), times_sampled));
        self.update_weight(slot, priority);
    }

    pub(crate) fn count_sampled(&mut self, slot: u32, times_sampled: u32) {
        let Slot { number, priority, .. } = self.slot(slot);
        self.write_slot(slot, Slot::new(number, priority, times_sampled));
    }

    pub(crate) fn raise_largest_priority(&mut self, priority: Priority) {
        if priority > self.largest_priority {
            self.largest_priority = priority;
        }
    }

    /// Queues the weight of a new priority for the tree, and updates the remover.
    fn update_weight(&mut self, slot: u32, priority: Priority) {
        let weight = self.weight(priority);
        self.changes.push((slot, weight));
        if let Some(lowest) = &mut self.lowest {
            let slots: &[Slot] = bytemuck::cast_slice(&self.slots);
            lowest.push(slot, slots[slot as usize].number, priority);
            lowest.compact(self.live, |slot, number, priority| slots[slot as usize].is(number, priority));
        }
    }

    /// The sampling weight of a priority.
    fn weight(&self, priority: Priority) -> f64 {
        match self.options.sampler {
            Sampler::Proportional => {
                let base = priority.get() + self.options.priority_constant;
                base.powf(self.options.priority_exponent).min(WEIGHT_MAX)
            }
            Sampler::Uniform | Sampler::Fifo | Sampler::Lifo => 1.0,
        }
    }

    /// Applies the collected changes to the tree.
    pub(crate) fn apply_changes(&mut self) {
        self.tree.set_many(self.changes.drain(..));
    }

    /// The slot at a fraction of the mass, from 0 to 1, and its exact probability. `None` if the mass is 0.
    pub(crate) fn draw(&self, fraction: f64) -> Option<(u32, f64)> {
        match self.options.sampler {
            Sampler::Proportional | Sampler::Uniform => {
                let total = self.tree.total();
                let slot = self.tree.find(fraction * total)?;
                Some((slot, self.tree.get(slot) / total))
            }
            Sampler::Fifo => (self.oldest != NONE).then_some((self.oldest, 1.0)),
            Sampler::Lifo => (self.newest != NONE).then_some((self.newest, 1.0)),
        }
    }

    /// [`Table::draw`] at all of these fractions, but faster. `None` if the mass is 0 or a draw may remove an item.
    pub(crate) fn draw_together(&self, fractions: &[f64]) -> Option<Vec<(u32, f64)>> {
        let by_mass = matches!(self.options.sampler, Sampler::Proportional | Sampler::Uniform);
        if !by_mass || self.options.max_times_sampled > 0 {
            return None;
        }
        let total = self.tree.total();
        let mut masses: Vec<f64> = fractions.iter().map(|fraction| fraction * total).collect();
        let mut slots = Vec::new();
        self.tree.find_many(&mut masses, &mut slots);
        let probability = |slot: u32| (slot, self.tree.get(slot) / total);
        (total > 0.0).then(|| slots.into_iter().map(probability).collect())
    }

    /// Changes the exponent of all weights, in O(capacity).
    pub(crate) fn set_exponent(&mut self, exponent: f64) -> Result<(), OptionsError> {
        let changed = TableOptions { priority_exponent: exponent, ..self.options.clone() };
        changed.check()?;
        self.options = changed;
        self.rebuild();
        Ok(())
    }

    /// Sets the capacity. If it grows, `slots` is larger memory with the same beginning.
    pub(crate) fn set_capacity(&mut self, capacity: usize, slots: Option<Memory>) {
        if let Some(slots) = slots {
            self.slots = slots;
        }
        self.options.capacity = capacity;
        let leaves = self.slots.len() / SLOT;
        if leaves != self.tree.leaves() {
            self.tree = SumTree::new(leaves);
            self.rebuild();
        }
        self.nodes.reserve(capacity.saturating_sub(self.nodes.len()));
    }

    /// Number of slots, including vacant ones.
    pub(crate) fn slots_len(&self) -> usize {
        self.slots.len() / SLOT
    }

    /// Recomputes the weight of every leaf of the tree.
    pub(crate) fn rebuild(&mut self) {
        self.changes.clear();
        let mut tree = std::mem::replace(&mut self.tree, SumTree::new(0));
        tree.rebuild(|slot| match slot < self.fresh && !self.slot(slot).is_vacant() {
            true => self.weight(self.priority(slot)),
            false => 0.0,
        });
        self.tree = tree;
    }

    /// The bytes of all slots that were ever used, and the list of vacant ones among them.
    pub(crate) fn saved(&self) -> (&[u8], &[u32]) {
        (&self.slots[..self.fresh as usize * SLOT], &self.free)
    }

    /// Restores saved slots for [`Table::start_recovery`]. Returns false if they do not fit.
    pub(crate) fn restore_slots(&mut self, at: usize, slots: &[u8]) -> bool {
        let Some(target) = self.slots.get_mut(at..).and_then(|rest| rest.get_mut(..slots.len())) else {
            return false;
        };
        target.copy_from_slice(slots);
        true
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.slots
    }

    #[cfg(test)]
    pub(crate) fn lowest_len(&self) -> usize {
        self.lowest.as_ref().map_or(0, Lowest::len)
    }
}

/// Allocates memory and frees it, so that an impossible size is an error here and not an abort later.
fn reserve(bytes: usize) -> Result<(), OptionsError> {
    let mut trial = Vec::<u8>::new();
    trial.try_reserve_exact(bytes).map_err(|_| OptionsError::Memory { bytes })?;
    // Without this the optimizer may remove the unused allocation.
    std::hint::black_box(&mut trial);
    Ok(())
}
