//! Turns the items that shards have drawn into batches, several at a time on blocking threads.
//!
//! A job decodes frames, computes returns and importance weights, and asks the target network for its values, all off the
//! training thread. Jobs end in any order; the training thread awaits them in the order of their draws.
#![allow(clippy::disallowed_methods, reason = "the learner's process measures its work")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use coordinator::pool::ShardBatch;
use replay::LaneKey;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::metrics::Metrics;
use crate::priorities::Priorities;
use crate::replay::{BatchAssembler, ItemId, Sampled};
use crate::shared_target::SharedTarget;

/// What jobs share.
pub struct Unpacker {
    /// Those that no job uses.
    assemblers: mpsc::Receiver<BatchAssembler>,
    returned: mpsc::Sender<BatchAssembler>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Values batches ahead of their update.
    target: Option<SharedTarget>,
    /// Sends removals of items that can't be decoded.
    priorities: Priorities,
    metrics: Arc<Metrics>,
    /// Transitions of batches that were abandoned.
    abandoned: AtomicU64,
}

/// What a job unpacks.
pub struct Drawn {
    pub items: Vec<ShardBatch>,
    /// The probability with which one draw falls on each shard.
    pub shares: Vec<f64>,
    /// Batches drawn before this one, over the whole run.
    pub number: u64,
    /// When the draw started.
    pub started: Instant,
}

impl Unpacker {
    /// Runs as many jobs at a time as there are assemblers. With `target` they also compute its values.
    pub fn new(
        assemblers: Vec<BatchAssembler>,
        target: Option<SharedTarget>,
        priorities: Priorities,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (returned, idle) = mpsc::channel(assemblers.len().max(1));
        for assembler in assemblers {
            returned.try_send(assembler).expect("there is a place for each");
        }
        let shared = Arc::new(Shared { target, priorities, metrics, abandoned: AtomicU64::new(0) });
        Self { assemblers: idle, returned, shared }
    }

    /// Starts a job; waits while all assemblers are in use. Its result is `None` if an item can't be decoded: that item is removed
    /// from its shard and the batch is abandoned.
    pub async fn start(&mut self, drawn: Drawn) -> JoinHandle<Option<Sampled>> {
        let mut assembler = self.assemblers.recv().await.expect("this end has a sender too");
        let (shared, returned) = (self.shared.clone(), self.returned.clone());
        tokio::task::spawn_blocking(move || {
            let sampled = shared.unpack(&mut assembler, &drawn);
            // There is a place for each assembler, and after the end of the run none is needed.
            let _ = returned.try_send(assembler);
            sampled
        })
    }

    /// Transitions of batches that were abandoned since the last call: they were drawn and not trained on.
    pub fn take_abandoned(&self) -> u64 {
        self.shared.abandoned.swap(0, Ordering::Relaxed)
    }
}

impl Shared {
    fn unpack(&self, assembler: &mut BatchAssembler, drawn: &Drawn) -> Option<Sampled> {
        let started = Instant::now();
        let undecodable = decode(assembler, &drawn.items);
        self.metrics.add_stage_time("decode", started);
        if !undecodable.is_empty() {
            assembler.clear();
            self.metrics.undecodable.inc_by(undecodable.len() as u64);
            self.priorities.remove(undecodable);
            let transitions = drawn.items.iter().map(|items| items.batch.len() as u64).sum();
            self.abandoned.fetch_add(transitions, Ordering::Relaxed);
            return None;
        }
        let started = Instant::now();
        let mut sampled = assembler.finish(drawn.number, |shard| drawn.shares[shard]);
        self.metrics.add_stage_time("assemble", started);
        if let Some(target) = &self.target {
            let started = Instant::now();
            target.value_ahead(&mut sampled.batch);
            self.metrics.add_stage_time("target", started);
        }
        self.metrics.prepare_seconds.observe(drawn.started.elapsed().as_secs_f64());
        Some(sampled)
    }
}

/// Adds the drawn items to the batch, and returns those that can't be decoded.
fn decode(assembler: &mut BatchAssembler, drawn: &[ShardBatch]) -> Vec<ItemId> {
    let mut undecodable = Vec::new();
    for ShardBatch { shard, batch } in drawn {
        for item in batch.items() {
            let added = assembler.add(
                *shard,
                item.draw(),
                item.lead(),
                item.frames(),
                item.steps(),
                item.reliability(),
            );
            if let Err(error) = added {
                let LaneKey { actor, incarnation, lane } = item.lane();
                warn!(shard, actor, incarnation, lane, %error, "undecodable item removed from its shard");
                undecodable.push((*shard, item.key()));
            }
        }
    }
    undecodable
}
