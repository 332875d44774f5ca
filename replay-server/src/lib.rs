//! One replay shard behind gRPC: the service `quiver.v1.Replay`, whose `.proto` file says what each call promises.
//!
//! ```text
//!  wire ──► service ──► Insert: writers ──┐
//!                   ──► Sample: samplers ─┼─ jobs ──► owner: one at a time has the Shard
//!                   ──► the rest ─────────┘                      │
//!                              ▲─── phase, inserts, turn ────────┘
//! ```
//!
//! Reading order: [`shard`] for what is decided, [`home`] for where it lives, [`owner`] for who decides it, [`service`] for the wire, `writers` for
//! the one thing that waits. `convert` holds every rejection of a message, [`Refusal`] every status.
#![forbid(unsafe_code)]

pub mod config;
pub mod home;
pub mod shard;

pub mod metrics;
pub mod owner;
pub mod server;
pub mod service;

mod codec;
mod convert;
mod refusal;
mod samplers;
mod waiting;
mod wire;
mod writers;

pub use config::{Args, Config};
pub use refusal::Refusal;
pub use server::Server;
pub use wire::Wire;
