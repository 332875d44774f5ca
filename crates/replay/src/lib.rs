//! One replay shard: what actors saw and did, stored once, drawn in proportion to its priority.
//!
//! A writer streams the steps of a *lane* (one environment of one actor) in [`Chunk`]s. The [`Store`] keeps
//! each chunk as it came in a ring of bytes, and *items* (transitions) only refer to steps. One or more
//! [`Table`]s over the same frames say which items there are and how they are drawn. A sampler draws items, a
//! learner sends priorities back.
//!
//! Reading order: [`Chunk`] for what comes in, [`Store`] for what happens to it, [`ItemView`] for what comes out.
//! Below `store`: `insert` judges chunks, `log` and `record` hold them, `table` and `sum_tree` draw, `recover` finds
//! everything again after a crash, `save` writes a store out and reads it back, `directory` is where shards keep
//! theirs.
//!
//! No sockets, clock, threads or random generator of its own; only `store` touches files. Drawing takes any `Rng`,
//! and the store never decodes a frame. [`codec`] is here because writers and learners share the format of packed frames;
//! the store does not use it.

#![deny(unsafe_code)]

mod chunk;
mod key;
mod options;
mod outcome;
mod points;
mod status;

pub mod store;

mod blocks;
mod sum_tree;

pub mod codec;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use chunk::{Chunk, InitialPriority, KEY_DISTANCE_MAX, LaneKey, NewItem, Step, Taken, WeightsVersion};
pub use key::ItemKey;
pub use options::{OptionsError, Remover, Sampler, StoreOptions, TABLES_MAX, TableOptions, UnknownName};
pub use outcome::{Counters, Draw, Inserted, SampleError, TableCounters, Updated};
pub use points::points;
pub use status::{Allowance, BlockedCaller, ReplayStatus, ShardStatus, TableStatus};
pub use store::Store;
pub use store::insert::InsertError;
pub use store::item::ItemView;
pub use store::reliability::Episode;
pub use store::table::Table;
pub use store::{LoadError, Saving};
pub use sum_tree::SumTree;

#[cfg(test)]
mod tests;
