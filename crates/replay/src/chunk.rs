//! What a writer sends: steps of one lane, and the items they complete.
//!
//! These are the domain's own types. Whatever carries them (a channel, gRPC) converts at its edge.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use value::priority::Priority;

/// One stream of steps: one environment of one process start of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneKey {
    /// The actor's index in its run.
    pub actor: u32,
    /// Larger for each start of that actor. A table that has seen a newer one refuses older ones.
    pub incarnation: u64,
    /// Which of the actor's environments.
    pub lane: u32,
}

/// Which weights acted. Ordered: a learner that came back from a checkpoint is newer than all
/// that it had published before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WeightsVersion {
    /// The learner's incarnation.
    pub incarnation: u32,
    /// How many versions that incarnation had published before this one.
    pub number: u64,
}

/// What was done on an observation, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Index into the environment's action set.
    pub action: u16,
    /// Reward of the step as the game gave it; clipping is the learner's business.
    pub reward: f32,
    /// The episode ended here and nothing follows: no bootstrap.
    pub terminated: bool,
    /// The episode was cut here: bootstrap from the final observation.
    pub truncated: bool,
    /// A life was lost. The frame stack goes on.
    pub life_lost: bool,
    /// Log-probability of the action under the policy that acted.
    pub log_probability: f32,
    /// The weights that acted.
    pub weights: WeightsVersion,
}

impl Taken {
    /// Whether the episode ends with this step, either way.
    pub fn ends_episode(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// One observation of a lane and what was done on it. Its packed frame lies in [`Chunk::frames`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Size of the packed frame. The store does not look inside.
    pub frame_bytes: u32,
    /// The frame can be unpacked alone. Any other one changes the frame before it, and at most
    /// [`KEY_DISTANCE_MAX`] of those follow one another.
    pub key_frame: bool,
    /// Whether this is the first observation of an episode, before which the stack does not reach.
    pub starts_episode: bool,
    /// What was done. `None` marks the final observation, which follows the step that ended the
    /// episode and comes before the next episode's first step.
    pub taken: Option<Taken>,
}

/// Frames that may lie between a frame and its key frame, counting itself.
pub const KEY_DISTANCE_MAX: u8 = 31;

/// The priority of a new item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InitialPriority {
    /// Computed by the writer.
    Of(Priority),
    /// The largest that the table has seen, see [`TableOptions::first_priority`].
    ///
    /// [`TableOptions::first_priority`]: crate::TableOptions::first_priority
    Largest,
}

/// A transition by reference: from the state at step `first` to the state `length` steps later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewItem {
    /// Number of the first step in its lane.
    pub first: u64,
    /// Number of actions in between: 1 for one-step learning, at most n for n-step.
    pub length: u8,
    /// Where it starts in the sampler.
    pub priority: InitialPriority,
    /// Which of the store's tables it goes to.
    pub table: u8,
}

/// The unit of writing, stored as a whole and exactly once.
///
/// Items refer backwards only: to steps of this chunk or of earlier ones of the same lane. They
/// come in order of `first` over the whole life of the lane, whatever table they go to, which is what
/// lets the store drop frames and items together in constant time.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Whose steps these are.
    pub lane: LaneKey,
    /// Number of the chunk in its lane, counting from 0.
    pub sequence: u64,
    /// Number in the lane of the first of `steps`, counting from 0.
    pub first_step: u64,
    /// The new steps, one after the other.
    pub steps: Vec<Step>,
    /// Their packed frames, one after the other without gaps.
    pub frames: Bytes,
    /// The items that these steps complete.
    pub items: Vec<NewItem>,
}
