//! Learns: sampled transitions in, better weights and new priorities out.
//!
//! [`batch`] turns stored transitions into tensors, [`importance`] weighs them, [`trainer`] makes the update.
//! Nothing here knows where samples come from or where weights go.
#![forbid(unsafe_code)]

pub mod batch;
pub mod importance;
pub mod setup;
pub mod trainer;

pub use batch::Assembler;
pub use trainer::{Learner, Update};
