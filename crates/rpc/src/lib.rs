//! Clients of replay shards and learner, and what every server has.
#![forbid(unsafe_code)]

mod accept;
mod connection;

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
pub mod place;
pub mod sampler;
pub mod shard;
pub mod snapshot;
pub mod writer;
