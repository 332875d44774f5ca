//! One replay shard behind gRPC: the service `quiver.v1.Replay`, whose `.proto` file says what each call promises.
//!
//! ```text
//! router ─► service ──► Insert: writers ─────────┐
//!                   ──► Sample: sample_streams ──┼─ jobs ──► shared_shard: one call at a time
//!                   ──► the rest ────────────────┘                      │
//!                              ▲─── phase, inserts, turn ───────────────┘
//! ```
//!
//! The arrow back is what tasks wait for: the run's phase, the number of inserts, and a blocked writer's turn.
//!
//! Reading order: [`shard`] checks each call and decides what it does to the store, [`store_backend`] is where its store lives, [`shared_shard`] is the lock around it,
//! [`service`] handles the calls, `writers` holds insert streams that wait for their allowance. Messages are bounded in
//! `message_bounds` before they are decoded, and validated in `proto` and `convert`; [`Refusal`] lists the reasons why
//! the shard itself refuses a call.
#![forbid(unsafe_code)]

pub mod config;
pub mod shard;
pub mod store_backend;

pub mod metrics;
pub mod server;
pub mod service;
pub mod shared_shard;

mod blocked;
mod convert;
mod insert_budget;
mod insert_streams;
mod message_bounds;
mod refusal;
mod router;
mod sample_streams;
mod writers;

pub use config::{Args, Config};
pub use refusal::Refusal;
pub use router::ReplayRouter;
pub use server::{BoundServer, Server};
