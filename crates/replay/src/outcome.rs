//! What the store answers, and what it counts.

use bytemuck::{Pod, Zeroable};

use crate::key::ItemKey;

/// Totals of a store since its incarnation began. They only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Counters {
    /// Chunks stored.
    pub chunks: u64,
    /// Chunks that were stored already, dropped.
    pub duplicate_chunks: u64,
    /// Chunks that never came: gaps in the sequence.
    pub lost_chunks: u64,
    /// Steps stored, final observations included.
    pub steps: u64,
    /// Steps stored that have an action: agent steps.
    pub actions: u64,
    /// Items dropped on arrival because frames that they need were lost or reclaimed.
    pub items_without_frames: u64,
}

/// Totals of one table since the store's incarnation began. They only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TableCounters {
    /// Items stored.
    pub inserts: u64,
    /// Items that made room for newer ones.
    pub evicted: u64,
    /// Items that went because a frame of theirs was reclaimed.
    pub reclaimed_items: u64,
    /// Items drawn.
    pub samples: u64,
    /// Items that went because they had been drawn often enough.
    pub used_up: u64,
    /// Priority updates applied.
    pub updates: u64,
    /// Priority updates for items no longer there, ignored.
    pub stale_updates: u64,
    /// Items removed because someone could not use them.
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

/// What became of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// It was stored already and nothing was done.
    pub duplicate: bool,
    /// Items stored.
    pub items: u64,
    /// Items dropped because frames that they need were lost or reclaimed.
    pub items_without_frames: u64,
    /// Chunks of this lane that are missing before this one.
    pub chunks_lost: u64,
}

/// One drawn item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Its name, to look at it or to give it a new priority.
    pub key: ItemKey,
    /// The exact probability with which one draw from this table gives this item.
    pub probability: f64,
    /// How often it has been drawn, this time included.
    pub times_sampled: u32,
    /// How many items have been inserted after it.
    pub age_inserts: u64,
}

/// What became of priority updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// Items changed.
    pub applied: u64,
    /// Items no longer there.
    pub stale: u64,
}

/// Why nothing could be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// No items.
    #[error("table is empty, insert items first")]
    Empty,
    /// Items, but each of weight zero.
    #[error("all priorities are 0, set priority_constant above 0")]
    NoMass,
}
