//! An independent account of what shards reported: every count of every incarnation, which `RateController` does not keep.

use std::collections::BTreeMap;

use crate::shard_counts::ShardCounts;

#[derive(Clone, Debug)]
pub struct Book {
    /// The largest counts reported by each incarnation of each shard: inserts, agent steps.
    counts: BTreeMap<(usize, u32), (u64, u64)>,
    newest: Vec<Option<ShardCounts>>,
    present: Vec<bool>,
    /// Drawn by this learner.
    pub samples: u64,
    /// Inserts and samples when the ratio began.
    pub began: Option<(u64, u64)>,
}

impl Book {
    pub fn new(shards: usize) -> Self {
        let (newest, present) = (vec![None; shards], vec![false; shards]);
        Self { counts: BTreeMap::new(), newest, present, samples: 0, began: None }
    }

    /// The book of a learner that resumes from a checkpoint with this one: what was counted stays counted.
    pub fn again(&self) -> Self {
        Self { counts: self.counts.clone(), ..Self::new(self.newest.len()) }
    }

    pub fn reported(&mut self, shard: usize, counts: ShardCounts, min_size: u64) {
        let order = |reported: ShardCounts| (reported.inserts, reported.agent_steps);
        let older =
            |newest: ShardCounts| newest.incarnation == counts.incarnation && order(counts) < order(newest);
        if self.newest[shard].is_some_and(older) {
            return;
        }
        let count = self.counts.entry((shard, counts.incarnation)).or_default();
        *count = (count.0.max(counts.inserts), count.1.max(counts.agent_steps));
        (self.newest[shard], self.present[shard]) = (Some(counts), true);
        self.settle(min_size);
    }

    pub fn lost(&mut self, shard: usize, min_size: u64) {
        self.present[shard] = false;
        self.settle(min_size);
    }

    fn settle(&mut self, min_size: u64) {
        let enough = self.strangers().is_empty() && self.items() >= min_size;
        self.began = enough.then(|| self.began.unwrap_or((self.inserts(), self.samples)));
    }

    pub fn strangers(&self) -> Vec<usize> {
        (0..self.newest.len()).filter(|&shard| self.newest[shard].is_none()).collect()
    }

    /// Held by the shards that can be reached.
    pub fn items(&self) -> u64 {
        self.reachable().map(|shard| self.newest(shard).items).sum()
    }

    pub fn reachable(&self) -> impl Iterator<Item = usize> {
        (0..self.present.len()).filter(|&shard| self.present[shard])
    }

    pub fn newest(&self, shard: usize) -> ShardCounts {
        self.newest[shard].expect("reported")
    }

    /// Of all incarnations.
    pub fn inserts(&self) -> u64 {
        self.counts.values().map(|count| count.0).sum()
    }

    /// Of all incarnations.
    pub fn agent_steps(&self) -> u64 {
        self.counts.values().map(|count| count.1).sum()
    }

    pub fn steps_of(&self, shard: usize, incarnation: u32) -> u64 {
        self.counts.get(&(shard, incarnation)).map_or(0, |count| count.1)
    }
}
