//! A shard's status in five numbers.

use replay::{Counters, ShardStatus, TableCounters, TableStatus};

/// What a shard reports, as far as rate control looks at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShardCounts {
    /// Which start of the shard.
    pub incarnation: u32,
    /// Items inserted since that start.
    pub inserts: u64,
    /// Agent steps stored since that start.
    pub agent_steps: u64,
    pub items: u64,
    pub mass: f64,
}

impl ShardCounts {
    pub fn status(self) -> ShardStatus {
        let Self { incarnation, inserts, agent_steps, items, mass } = self;
        let counters = TableCounters { inserts, ..TableCounters::default() };
        ShardStatus {
            incarnation,
            counters: Counters { agent_steps, ..Counters::default() },
            tables: vec![TableStatus { items, mass, counters, ..TableStatus::default() }],
            ..ShardStatus::default()
        }
    }
}
