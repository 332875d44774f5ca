//! Limits on the size of messages. Both ends enforce them.

/// Steps in a chunk. An actor sends a handful. Longer chunks would only lose more at once.
pub const CHUNK_STEPS_MAX: usize = 1024;
/// Items in a chunk. Every step can complete one item, and the end of a game completes a whole n-step window.
pub const CHUNK_ITEMS_MAX: usize = 1024;
/// Points in a sample request. A batch has 32 to a few thousand.
pub const POINTS_MAX: usize = 16_384;
/// Priority updates, or removals, in a message.
pub const UPDATES_MAX: usize = 65_536;
/// Episodes in a report. An actor with more sends several.
pub const EPISODES_MAX: usize = 256;
/// Largest magnitude of a score. Far beyond any game, and integers up to it, their sums and their squares stay exact enough
/// for a mean: a record must never hold an infinite one.
pub const SCORE_MAX: f64 = 1e15;
/// Largest priority. The square of a larger TD error would not fit into the learner's f32, so training would have diverged.
pub const PRIORITY_MAX: f64 = 1e18;
/// Scores of one player in an evaluation.
pub const SCORES_MAX: usize = 1 << 20;
/// Players in an evaluation: the agent, two baselines, and one for each of 18 actions.
pub const PLAYERS_MAX: usize = 64;
/// How long a grant may wait for inserts, in milliseconds.
pub const WAIT_MILLISECONDS_MAX: u32 = 10_000;
/// Bytes of one message to a shard: a full chunk of noise at 84×84 is 7.4 MB.
pub const INSERT_BYTES_MAX: usize = 8 << 20;
/// Bytes of an unpacked frame. Even if it does not compress, it fits into a message with room to spare.
pub const FRAME_BYTES_MAX: usize = INSERT_BYTES_MAX / 2;
/// Bytes of one message from a shard. 4,096 transitions of seven noisy frames are 205 MB. A larger batch of such frames
/// is refused.
pub const SAMPLE_BYTES_MAX: usize = 256 << 20;
/// Bytes of a version of the weights, all segments together. The Nature network is 6.8 MB, an MLP of 2 × 4,096 units 70 MB.
pub const WEIGHTS_BYTES_MAX: usize = 256 << 20;
/// Bytes of a segment of weights; the last one of a version may have fewer. At 1 Mbit/s a segment takes a second, far
/// less than a receiver waits for a message, and a version of the Nature network has 52 of them.
pub const SEGMENT_BYTES: usize = 128 << 10;
/// Bytes of any other message.
pub const OTHER_BYTES_MAX: usize = 4 << 20;
