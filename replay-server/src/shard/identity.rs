//! Who calls a shard: the newest learner counts, and a writer proves who it is.

use bytes::Bytes;
use replay::TicketKey;
use replay::codec::Codec;
use rpc::ticket::{Identity, TicketRole};

use crate::refusal::Refusal;

/// The learner that makes a call.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnerIdentity {
    pub run: String,
    /// Grows with every start.
    pub incarnation: u32,
}

/// The writer that opens a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct WriterIdentity {
    pub run: String,
    /// The actor's index in the run.
    pub actor: u32,
    /// Grows with every start.
    pub incarnation: u64,
    /// How the writer packs frames.
    pub codec: Codec,
    /// Size of an unpacked frame.
    pub frame_bytes: usize,
    /// Frames in a state.
    pub stack: usize,
    /// The id of the shard that the writer wants. Empty for any.
    pub shard: String,
    /// Proves run, actor and incarnation.
    pub ticket: Bytes,
}

impl WriterIdentity {
    /// Checks that the writer's ticket proves its identity.
    pub(super) fn check_ticket(&self, key: &TicketKey) -> Result<(), Refusal> {
        let Self { run, actor, incarnation, .. } = self;
        match actor_identity(run, *actor, *incarnation).is_proven(key, &self.ticket) {
            true => Ok(()),
            false => Err(Refusal::UnprovenIdentity { actor: *actor, incarnation: *incarnation }),
        }
    }
}

pub(super) fn actor_identity(run: &str, index: u32, incarnation: u64) -> Identity<'_> {
    Identity { run, role: TicketRole::Actor, index, incarnation }
}
