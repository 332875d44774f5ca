//! Results and counters of the store.

use bytemuck::{Pod, Zeroable};

use crate::key::ItemKey;

/// Totals of a store's chunks and steps since its incarnation began. They only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Counters {
    pub chunks: u64,
    /// Chunks that were stored before, and dropped.
    pub duplicate_chunks: u64,
    /// Chunks that were never received: gaps in the sequence numbers.
    pub lost_chunks: u64,
    /// Steps stored, final observations included.
    pub steps: u64,
    /// Steps stored with an action: agent steps.
    pub agent_steps: u64,
    /// Items dropped on arrival because frames that they need were lost or reclaimed.
    pub items_without_frames: u64,
    /// Inserts charged for steps without items, see [`Store::insert`](crate::Store::insert).
    pub surcharge: u64,
}

/// Totals of one table since the store's incarnation began. They only grow, except `samples`: `Store::undo_draws` takes
/// back samples that were not delivered.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TableCounters {
    pub inserts: u64,
    /// Items evicted from a full table.
    pub evicted: u64,
    /// Items removed because a chunk that they need was reclaimed.
    pub reclaimed_items: u64,
    pub samples: u64,
    /// Items removed after `max_times_sampled`.
    pub used_up: u64,
    /// Priority updates applied.
    pub updates: u64,
    /// Priority updates of items that were no longer stored, and ignored.
    pub stale_updates: u64,
    /// Items removed because the learner could not decode them.
    pub removed_items: u64,
}

impl std::ops::AddAssign for TableCounters {
    fn add_assign(&mut self, other: Self) {
        self.inserts += other.inserts;
        self.evicted += other.evicted;
        self.reclaimed_items += other.reclaimed_items;
        self.samples += other.samples;
        self.used_up += other.used_up;
        self.updates += other.updates;
        self.stale_updates += other.stale_updates;
        self.removed_items += other.removed_items;
    }
}

/// The result of inserting a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// The chunk was stored before. The call only counted it in `duplicate_chunks`.
    pub duplicate: bool,
    pub items: u64,
    /// Items dropped because frames that they need were lost or reclaimed.
    pub items_without_frames: u64,
    /// Chunks of this lane that are missing before this one.
    pub chunks_lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    pub key: ItemKey,
    /// The exact probability of this item in one draw from the table.
    pub probability: f64,
    /// How often the item was sampled, this time included.
    pub times_sampled: u32,
    /// How many items were inserted into the table after it.
    pub age_inserts: u64,
}

/// The result of priority updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    pub applied: u64,
    /// Items that are no longer stored.
    pub stale: u64,
}

/// Why nothing could be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    #[error("the table is empty: insert items first")]
    Empty,
    /// All items have weight 0.
    #[error("all priorities are 0: set priority_constant above 0")]
    NoMass,
}
