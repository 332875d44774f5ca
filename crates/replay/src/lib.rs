//! One replay shard: the experience of the actors, stored once and sampled in proportion to its priority.
//!
//! A writer streams the steps of a *lane* (one environment of one actor) in [`Chunk`]s. The [`Store`] keeps
//! each chunk as received in a ring of bytes, and *items* (transitions) only refer to steps. One or more
//! [`Table`]s over the same frames have their own items and their own ways to sample and evict them. A learner samples
//! items and sends priorities back.
//!
//! Reading order: [`Chunk`] is the input, [`Store`] processes it, [`ItemView`] is the output. Below `store`: `insert`
//! validates chunks, `log` and `record` hold them, `table` and `sum_tree` sample, `recover` restores a store after a
//! crash, `save` writes a store to a stream and reads it back, `directory` manages the files of shards.
//!
//! No sockets, clock, threads or random generator of its own; only `store` touches files. Sampling takes any `Rng`, and
//! the store never decodes a frame. [`codec`] is here because writers and learners share the format of packed frames;
//! the store does not use it.

#![deny(unsafe_code)]

mod chunk;
mod key;
mod options;
mod outcome;
mod points;
mod status;
mod ticket_key;

pub mod store;

mod blocks;
mod sum_tree;

pub mod codec;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use chunk::{Chunk, InitialPriority, KEY_DISTANCE_MAX, LaneKey, NewItem, Step, Taken, WeightsVersion};
pub use key::ItemKey;
pub use options::{BYTE_UNITS, OptionsError, Remover, Sampler, StoreOptions, TABLES_MAX, TableOptions};
pub use outcome::{Counters, Draw, Inserted, SampleError, TableCounters, Updated};
pub use points::random_points;
pub use status::{Allowance, BlockedCaller, ReplayStatus, ShardStatus, TableStatus};
pub use store::Store;
pub use store::insert::InsertError;
pub use store::item::ItemView;
pub use store::reliability::EpisodeErrors;
pub use store::table::Table;
pub use store::{LoadError, SnapshotWriter};
pub use sum_tree::SumTree;
pub use ticket_key::{TICKET_KEY_BYTES, TicketKey};

#[cfg(test)]
mod tests;
