//! The wire: types generated from `quiver/v1/*.proto`, and the one place where they become domain types.
//!
//! What comes from the network is checked in [`convert`], before memory is taken for it; what is deeper inside never
//! sees a message.
#![forbid(unsafe_code)]

pub mod batch;
pub mod convert;
pub mod limits;
pub mod play;
pub mod status;

mod steps;

pub use batch::{Batch, BatchBuilder, BatchItem};
pub use convert::{Invalid, StoreSpec, Updates};
pub use play::{Episode, Order, Player, Report, Weights};

/// The generated types.
#[expect(missing_docs, reason = "documented in the .proto files, whose comments are not all carried over")]
#[allow(clippy::all, unused_qualifications, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("quiver.v1");
}

/// The protocol that this build speaks.
pub const PROTOCOL: u32 = 2;

/// All messages and services, for reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/quiver.bin"));

/// This build as a caller in a run.
pub fn caller(run: &str) -> v1::Caller {
    v1::Caller { protocol: PROTOCOL, run: run.to_owned() }
}
