//! The input of the store: steps of one lane, and the items they complete.
//!
//! These are domain types. The transport (a channel, gRPC) converts to and from its own types at its edge.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use value::priority::Priority;

/// Identifies one stream of steps: one environment of one incarnation of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneKey {
    /// The actor's index in its run.
    pub actor: u32,
    /// Grows with each start of that actor. A store that has seen a newer one refuses older ones.
    pub incarnation: u64,
    /// Index of the actor's environment.
    pub lane: u32,
}

/// Identifies published weights. Ordered: a restarted learner has a larger incarnation, so its versions are newer than
/// all it published before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WeightsVersion {
    pub incarnation: u32,
    /// The learner's number of updates when it published this version.
    pub number: u64,
}

/// The action taken on an observation, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Index into the environment's action set.
    pub action: u16,
    /// Reward of the step as returned by the game. The learner clips it.
    pub reward: f32,
    /// The episode ended by its own rules: no bootstrap.
    pub terminated: bool,
    /// The episode was cut off: bootstrap from the final observation.
    pub truncated: bool,
    /// A life was lost, and the game continues. So does the frame stack, unless `terminated` is set too.
    pub life_lost: bool,
    /// Log-probability of the action under the policy that chose it.
    pub log_probability: f32,
    /// Version of the weights that chose the action.
    pub weights: WeightsVersion,
}

impl Taken {
    /// Whether the episode ends with this step, either way.
    pub fn ends_episode(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// One observation of a lane and the action taken on it. Its packed frame is in [`Chunk::frames`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Size of the packed frame. The store does not decode it.
    pub frame_bytes: u32,
    /// The frame decodes alone. Any other frame is a difference to the frame before it. At most [`KEY_DISTANCE_MAX`] of
    /// those follow one another.
    pub key_frame: bool,
    /// The first observation of an episode. Frame stacks do not reach back before it.
    pub starts_episode: bool,
    /// The action taken. `None` marks the final observation, which follows the step that ended the episode and precedes
    /// the first step of the next episode.
    pub taken: Option<Taken>,
}

/// The largest distance of a frame from its key frame.
pub const KEY_DISTANCE_MAX: u8 = 31;

/// The priority of a new item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InitialPriority {
    /// As computed by the writer.
    Of(Priority),
    /// The largest priority that the table has seen, see [`TableOptions::first_priority`].
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
    pub priority: InitialPriority,
    /// Index of the store's table that the item goes to.
    pub table: u8,
}

/// The unit of writing. A chunk is stored as a whole and exactly once.
///
/// Items refer only to steps of this chunk or of earlier chunks of the same lane. Over the whole lifetime of the lane
/// they come in order of `first`, whatever their table. This order lets the store drop frames and items together in
/// constant time.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub lane: LaneKey,
    /// Sequence number of the chunk in its lane, from 0.
    pub sequence: u64,
    /// Number in the lane of the first of `steps`, from 0.
    pub first_step: u64,
    pub steps: Vec<Step>,
    /// The packed frames of the steps, without gaps.
    pub frames: Bytes,
    /// The items that these steps complete.
    pub items: Vec<NewItem>,
}
