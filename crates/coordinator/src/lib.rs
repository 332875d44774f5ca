//! The learner's part in a cluster, without libtorch: the run's members, the addresses of its shards, and samples per
//! insert.
//!
//! [`control`] enforces samples per insert by arithmetic over the shards' counters ([`rate`]); [`sample_points`] distributes a
//! batch over all shards. [`pool`] holds the connections to the shards; [`shard_directory`] and [`discovery`] map shard
//! ids to addresses. [`hub`] is what the gRPC [`service`] shares with the trainer: members, published weights, reports,
//! and settings that an operator changes ([`adjust`]).
//!
//! Nothing here trains or plays. [`Hub`] and [`ShardPool`] take their clock, [`sample_points`] its random generator as an
//! argument; what waits for the network uses tokio's clock, which tests can pause.
#![forbid(unsafe_code)]

pub mod adjust;
pub mod clock;
pub mod control;
pub mod discovery;
mod hosts;
pub mod hub;
pub mod members;
pub mod pool;
pub mod rate;
pub mod reports;
pub mod sample_points;
pub mod service;
pub mod shard_directory;
mod watcher;

pub use adjust::store_options;
pub use clock::Clock;
pub use control::RateController;
pub use hub::{Hub, RunInfo};
pub use members::{Denied, MemberRole, Members};
pub use pool::ShardPool;
