//! The shape of a run, and the bounds that follow from it.

use coordinator::rate::RateLimiter;

/// `FEW_INSERTS` of control.rs, which is private there: so few that each shard may have all of them.
const FEW_INSERTS: u64 = 64;

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub shards: usize,
    pub actors: usize,
    /// Of each actor. Lane l of actor a writes to shard (a·lanes + l) mod shards for ever.
    pub lanes: usize,
    /// Items in a chunk.
    pub chunk: u64,
    /// Items that one shard holds at most.
    pub capacity: u64,
    pub ratio: Option<f64>,
    pub batch: u64,
    pub min_size: u64,
    /// Batches being drawn or waiting to be trained on.
    pub prefetch: usize,
    /// Whether messages overtake each other.
    pub reorder: bool,
    /// Turns in ten that are the actors' and the learner's; the rest deliver messages.
    pub actor_turns: u32,
    pub learner_turns: u32,
}

impl Config {
    pub fn new(shards: usize, ratio: f64, batch: u64) -> Self {
        Self {
            shards,
            actors: 3,
            lanes: 2,
            chunk: 1,
            capacity: 600,
            ratio: Some(ratio),
            batch,
            min_size: 500,
            prefetch: 2,
            reorder: true,
            actor_turns: 3,
            learner_turns: 3,
        }
    }

    pub fn limiter(&self) -> RateLimiter {
        RateLimiter::new(self.ratio, self.min_size, self.batch, None).unwrap()
    }

    /// How far true inserts may be beyond what the samples allow, in a stretch without faults.
    ///
    /// Room is R = 2·slack/ratio at most, as samples are never more than slack ahead of the inserts reported. A shard is
    /// allowed E = max(min(R, 64), R/S) more than it had when it was last reported. Take the latest allowance under which
    /// anything went in. There was room then, so the inserts reported were within what is allowed, and each shard is at most
    /// E and the rest of a chunk beyond that.
    pub fn overdraw(&self) -> f64 {
        let Some(ratio) = self.ratio else { return f64::INFINITY };
        let room = (2.0 * self.limiter().slack() / ratio).floor();
        let each = (room / self.shards as f64).floor().max(room.min(FEW_INSERTS as f64));
        self.shards as f64 * (each + self.chunk as f64 - 1.0)
    }

    /// Turns within which a world in which everything is up makes progress. Filling and a few batches, at a chunk per
    /// fifty turns: more than ten times what is needed on average.
    pub fn patience_turns(&self) -> u64 {
        let inserts = 2 * self.min_size + (8.0 * self.batch as f64 / self.ratio.unwrap_or(1.0)) as u64;
        10_000 + 50 * inserts
    }
}
