//! Clients of the replay shards and the learner, and the parts that every server shares: listener, limits, TLS, roles.
#![forbid(unsafe_code)]

mod accept;
mod connection;
mod slots;

pub mod address;
pub mod backoff;
pub mod channel;
pub mod edge;
pub mod gate;
pub mod role;
pub mod secrets;
pub mod serve;

pub mod inspect;
pub mod membership;
pub mod sampler;
pub mod shard;
pub mod shard_entry;
pub mod snapshot;
pub mod ticket;
pub mod writer;
