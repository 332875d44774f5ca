//! One replay shard behind gRPC: the service `quiver.v1.Replay`, whose `.proto` file says what each call promises.
//!
//! ```text
//!  wire ──► service ──► Insert: writers ──┐
//!                   ──► Sample: samplers ─┼─ jobs ──► owner: one at a time has the Shard
//!                   ──► the rest ─────────┘                      │
//!                              ▲─── phase, inserts, turn ────────┘
//! ```
//!
//! Reading order: [`shard`] decides, [`home`] is where its store lives, [`owner`] serialises access to it, [`service`]
//! handles the calls, `writers` holds insert streams that wait for their allowance. Messages are bounded in
//! `message_bounds` before they are decoded, and validated in `proto` and `convert`; [`Refusal`] lists the reasons why
//! the shard itself refuses a call.
#![forbid(unsafe_code)]

pub mod config;
pub mod home;
pub mod shard;

pub mod metrics;
pub mod owner;
pub mod server;
pub mod service;

mod blocked;
mod convert;
mod message_bounds;
mod refusal;
mod samplers;
mod wire;
mod writers;

pub use config::{Args, Config};
pub use refusal::Refusal;
pub use server::Server;
pub use wire::Wire;
