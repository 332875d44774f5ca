//! One replay shard: what actors saw and did, stored once, drawn in proportion to its priority.
//!
//! A writer streams the steps of a *lane* (one environment of one actor) in [`Chunk`]s. The
//! [`Table`] keeps each step's frame once, packed, in a byte ring, and *items* (transitions) only
//! refer to steps. A sampler draws items, a learner sends priorities back.
//!
//! Reading order: [`Chunk`] for what comes in, [`Table`] for what happens to it, [`ItemView`] for
//! what comes out. `insert` judges chunks, `lane` and `ring` hold steps and frames, `selector` and
//! `sum_tree` draw, `save` and `check` write a table out and read it back.
//!
//! The crate is pure: no files, sockets, clock, threads or random generator of its own. Saving and
//! loading take any `Write` and `Read`, drawing takes any `Rng`, and no frame is ever decoded.
//! [`codec`], [`rate`], [`control`] and [`spread`] are here because writers and learners need them beside a table,
//! not because the table uses them.

#![forbid(unsafe_code)]

mod chunk;
mod key;
mod options;
mod outcome;
mod table;

mod insert;
mod item;
mod lane;
mod ring;
mod selector;
mod sum_tree;

mod blocks;
mod check;
mod save;

pub mod codec;
pub mod control;
pub mod rate;
pub mod spread;

pub use chunk::{Chunk, InitialPriority, LaneKey, NewItem, Step, Taken, WeightsVersion};
pub use insert::InsertError;
pub use item::{ItemView, stack_at};
pub use key::ItemKey;
pub use options::{OptionsError, Sampler, TableOptions};
pub use outcome::{Counters, Draw, Inserted, SampleError, Updated};
pub use save::LoadError;
pub use sum_tree::SumTree;
pub use table::Table;

#[cfg(test)]
mod tests;
