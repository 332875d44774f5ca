//! One replay shard behind gRPC: the service `quiver.v1.Replay`, whose `.proto` file says what each call promises.
//!
//! ```text
//!  wire ──► service ──► Insert: writers ──┐
//!                   ──► Sample: samplers ─┼─ jobs ──► worker: one thread owns the Shard
//!                   ──► the rest ─────────┘  (bounded)           │
//!                              ▲─── phase, inserts, turn ────────┘
//! ```
//!
//! Reading order: [`shard`] for what is decided, [`home`] for where it lives, [`worker`] for who decides it, [`service`] for the wire, `writers` for
//! the one thing that waits. `convert` holds every rejection of a message, [`Refusal`] every status.
#![forbid(unsafe_code)]

pub mod config;
pub mod home;
pub mod shard;

pub mod metrics;
pub mod server;
pub mod service;
pub mod worker;

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
