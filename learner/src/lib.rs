//! Learns: sampled transitions in, better weights and new priorities out.
//!
//! [`trainer`] is the one training step: it samples a batch from a [`replay`], has the [`learner`] update its networks,
//! and returns new priorities. The replay is a store in this process ([`local`]; lockstep trains on it) or the pool of
//! remote shards ([`remote`], fed by [`intake`]). [`batch`] turns stored transitions into tensors, [`importance`] weighs
//! them. [`journal`] and [`checkpoint`] are what a run writes down.
//!
//! Around the trainer is the process: [`cluster`] is its training thread, [`priorities`] go back to the shards,
//! [`lookout`] is what people see. [`start`] puts it together with `coordinator`, which knows the members and the shards.
#![forbid(unsafe_code)]

pub mod batch;
pub mod checkpoint;
pub mod importance;
pub mod journal;
pub mod learner;
pub mod local;
pub mod replay;
pub mod setup;
pub mod trainer;

pub mod cluster;
pub mod divergence;
pub mod evaluations;
pub mod events;
pub mod intake;
pub mod lookout;
pub mod metrics;
mod open;
pub mod priorities;
pub mod remote;
pub mod scores;
pub mod start;

pub use batch::Assembler;
pub use learner::{Learner, Update};
pub use local::LocalReplay;
pub use trainer::{Trainer, Watch};
