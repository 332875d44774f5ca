//! The status of a shard and of the whole replay: contents, counters, and blocked callers.
//!
//! A shard creates its [`ShardStatus`], `proto` carries it to the learner, and the learner adds up all shards to a
//! [`ReplayStatus`]. Metrics, live page, launcher events, `quiver inspect` and the record read these two types.

use serde::{Deserialize, Serialize};

use crate::outcome::{Counters, TableCounters};

/// What one table holds and has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TableStatus {
    /// Items that can be sampled.
    pub items: u64,
    /// The most items that it keeps.
    pub capacity: u64,
    /// Sum of all weights; the number of items if the table samples uniformly.
    pub mass: f64,
    /// The priority of a new item that requests the largest one.
    pub largest_priority: f64,
    /// Totals since the shard's incarnation began.
    pub counters: TableCounters,
}

impl TableStatus {
    /// Items removed to make room, in the table or in the ring.
    pub fn evicted_total(&self) -> u64 {
        self.counters.evicted.saturating_add(self.counters.reclaimed_items)
    }
}

/// What one shard holds, has counted and may still accept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardStatus {
    /// The shard's permanent identity.
    pub id: String,
    /// Random number that the totals belong to; part of every item's key. Kept as long as the shard keeps all its data,
    /// also across SIGKILL.
    pub incarnation: u32,
    /// A learner has configured the shard.
    pub configured: bool,
    /// The run has ended.
    pub finished: bool,
    /// Bytes of the ring that hold chunks.
    pub bytes_used: u64,
    /// Size of the ring.
    pub bytes_max: u64,
    /// Inserts that the learner has granted in total.
    pub allowance: u64,
    /// Insert streams that are blocked until the learner grants more.
    pub writers_blocked: u32,
    /// Totals of chunks and steps since the incarnation began.
    pub counters: Counters,
    /// The tables, in the order of their configuration.
    pub tables: Vec<TableStatus>,
}

impl ShardStatus {
    /// Items inserted into all tables since the incarnation began.
    pub fn inserts(&self) -> u64 {
        // A remote shard can claim any numbers.
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.counters.inserts))
    }

    /// Whether a chunk would be accepted now.
    pub fn accepts_inserts(&self) -> bool {
        self.configured && !self.finished && self.inserts_charged() < self.allowance
    }

    /// What counts against the allowance: the inserts, and the surcharge for steps without items.
    pub fn inserts_charged(&self) -> u64 {
        self.inserts().saturating_add(self.counters.surcharge)
    }

    /// The table that a learner samples from; an empty one before the shard is configured.
    pub fn first_table(&self) -> TableStatus {
        self.tables.first().copied().unwrap_or_default()
    }
}

/// A caller that is blocked on a shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockedCaller {
    pub caller: String,
    /// What the caller waits for.
    pub blocked_on: String,
    /// How long it has waited.
    pub blocked_seconds: f64,
}

/// How many inserts a shard may have accepted in total, by its own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The incarnation of the shard whose counters are meant.
    pub incarnation: u32,
    pub inserts: u64,
}

/// What all shards of a run hold together, and what sampling is blocked on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayStatus {
    pub shards: u32,
    /// Transitions in the shards that answer.
    pub items: u64,
    /// Bytes that their chunks take.
    pub bytes: u64,
    /// Agent steps of the whole run.
    pub agent_steps: u64,
    /// Transitions inserted since the learner started.
    pub inserts: u64,
    /// Transitions sampled since the learner started.
    pub samples: u64,
    /// Samples per insert since the ratio began.
    pub samples_per_insert: Option<f64>,
    /// What sampling is blocked on, if it is.
    pub blocked_on: Option<String>,
    /// Numbers of the shards that answer. Only within the learner's process.
    #[serde(skip)]
    pub reachable: Vec<usize>,
}
