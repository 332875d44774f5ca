//! Q-networks on libtorch, and the vectorised twin of the `value` crate.
//!
//! A network's parameters are views of one flat tensor ([`parameters`]), so that Adam makes a few passes over one
//! piece of memory and weights are published by one copy. [`objective`] holds the loss of soft and plain DQN with
//! the new priorities; it is tested against `value`, which computes the same numbers one by one in f64.
//! Knows nothing of replay, environments or runs.
#![deny(unsafe_code)]

pub mod adam;
pub mod architecture;
pub mod device;
mod memory;
pub mod network;
pub mod objective;
pub mod parameters;
pub mod soft;

pub use adam::Adam;
pub use architecture::{Architecture, Input, Trunk};
pub use network::QNetwork;
pub use objective::{Batch, Objective, Pass};
pub use tch::Device;
