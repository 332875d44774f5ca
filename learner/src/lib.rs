//! Learns: sampled transitions in, better weights and new priorities out.
//!
//! [`batch`] turns stored transitions into tensors, [`importance`] weighs them, [`trainer`] makes the update. These three
//! know nothing of where samples come from or where weights go, and lockstep uses them as they are.
//!
//! Around them is the process: [`intake`] prepares batches, [`training`] learns and keeps the run's record,
//! [`priorities`] go back, [`hub`] and [`service`] are what actors see, [`lookout`] what people see. [`start`] puts it
//! together.
#![forbid(unsafe_code)]

pub mod adjust;
pub mod batch;
pub mod importance;
pub mod setup;
pub mod trainer;

pub mod discovery;
pub mod divergence;
pub mod evaluations;
pub mod events;
pub mod fleet;
mod hosts;
pub mod hub;
pub mod intake;
pub mod lookout;
pub mod metrics;
pub mod places;
pub mod priorities;
pub mod scores;
pub mod service;
pub mod start;
pub mod state;
pub mod training;

pub use batch::Assembler;
pub use trainer::{Learner, Update};
