//! The wire: types generated from `quiver/v1/*.proto`, and the one place where they become domain types.
//!
//! [`convert`] checks what comes from the network before it allocates for it. Nothing deeper inside sees a message,
//! with one exception: a shard copies sampled items from its ring straight into the reply ([`BatchBuilder`]).
#![forbid(unsafe_code)]

pub mod batch;
pub mod convert;
pub mod limits;
pub mod play;
pub mod status;
pub mod weights;

mod steps;

pub use batch::{BatchBuilder, BatchItem, PackedBatch};
pub use convert::{Invalid, StoreSpec, Updates};
pub use play::{EpisodeReport, PlayerScores, Report};
pub use steps::agent_steps;
pub use weights::{EvaluationRequest, Segments, Weights, WeightsAssembly};
#[allow(clippy::all, unused_qualifications, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("quiver.v1");
}

/// The protocol version of this build. Peers with another version refuse each other.
pub const PROTOCOL: u32 = 5;

/// Descriptors of all messages and services, for gRPC reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/quiver.bin"));

/// Identifies this build as a caller of a run.
pub fn caller(run: &str) -> v1::Caller {
    v1::Caller { protocol: PROTOCOL, run: run.to_owned() }
}
