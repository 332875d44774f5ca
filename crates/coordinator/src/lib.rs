//! The learner's part in a cluster, without libtorch: who is in the run, where its shards are, and how many samples
//! each insert allows.
//!
//! [`control`] decides the ratio of samples to inserts: arithmetic over the shards' counters ([`rate`]), and
//! [`spread`] draws a batch over all shards. [`pool`] holds the connections to the shards; [`places`] and
//! [`discovery`] know which shard is where. [`hub`] is what the gRPC [`service`] shares with the trainer: members,
//! published weights, reports, settings that an operator changes ([`adjust`]).
//!
//! Nothing here trains or plays. Clock and random generator are arguments, so that tests can simulate a cluster.
#![forbid(unsafe_code)]

pub mod adjust;
pub mod clock;
pub mod control;
pub mod discovery;
mod hosts;
pub mod hub;
pub mod members;
pub mod places;
pub mod pool;
pub mod rate;
pub mod service;
pub mod spread;

pub use adjust::store_options;
pub use clock::Clock;
pub use control::Control;
pub use hub::{Charter, Hub};
pub use members::{Denied, Members, Role};
pub use pool::ShardPool;
