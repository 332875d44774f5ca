//! Where a shard stands, for whoever asks and for the metrics.

use replay::{Counters, TableCounters};

/// Where a table stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TableStanding {
    /// Items that can be drawn.
    pub items: u64,
    /// How many there can be.
    pub capacity: u64,
    /// What it weighs beside other shards.
    pub mass: f64,
    /// What a new item gets that asks for the largest.
    pub largest_priority: f64,
    /// Totals.
    pub counters: TableCounters,
}

/// Where a shard stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// In all keys.
    pub incarnation: u32,
    /// The learner has said what it holds.
    pub configured: bool,
    /// The run has ended.
    pub finished: bool,
    /// Bytes of all chunks.
    pub bytes_used: u64,
    /// Bytes that there can be.
    pub bytes_max: u64,
    /// How many inserts it may have taken in.
    pub inserts_allowed: u64,
    /// Totals.
    pub counters: Counters,
    /// Each table.
    pub tables: Vec<TableStanding>,
}

impl Standing {
    /// Items stored, in all tables.
    pub fn inserts(&self) -> u64 {
        self.tables.iter().map(|table| table.counters.inserts).sum()
    }

    /// Whether a chunk would be taken now.
    pub fn has_room(&self) -> bool {
        self.configured && !self.finished && self.inserts() < self.inserts_allowed
    }
}
