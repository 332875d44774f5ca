//! Sends new priorities to the shards in the background.
//!
//! A bounded queue and one task. If the shards are slower than training, the newest batch of priorities is dropped and
//! counted. Its items keep their old priorities, which costs a little accuracy and never blocks training.

use std::sync::Arc;
use std::time::Duration;

use proto::Updates;
use rpc::shard::{Updater, describe};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;
use value::priority::Priority;

use crate::metrics::Metrics;
use crate::replay::ItemId;

/// Batches whose priorities may be queued.
const WAITING_MAX: usize = 64;

/// How long a shard may take to apply one batch of priorities.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

/// Cloneable handle to the queue.
#[derive(Clone, Debug)]
pub struct Priorities {
    queue: mpsc::Sender<Work>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Work {
    updates: Vec<(ItemId, Priority)>,
    remove: Vec<ItemId>,
}

impl Priorities {
    /// Starts the task, with one updater per shard in the order of shard numbers. It ends when the last handle is
    /// dropped.
    pub fn spawn(shards: Vec<Updater>, metrics: Arc<Metrics>) -> Self {
        let (queue, work) = mpsc::channel(WAITING_MAX);
        tokio::spawn(send(shards, metrics.clone(), work));
        Self { queue, metrics }
    }

    /// Queues new priorities. Drops and counts them if the queue is full.
    pub fn update(&self, updates: Vec<(ItemId, Priority)>) {
        let count = updates.len();
        if self.queue.try_send(Work { updates, remove: Vec::new() }).is_err() {
            self.metrics.priorities.with_label_values(&["dropped"]).inc_by(count as u64);
        }
    }

    /// Asks the shards to remove items that can't be decoded.
    pub fn remove(&self, remove: Vec<ItemId>) {
        // If the queue is full, the item is drawn and reported again.
        let _ = self.queue.try_send(Work { updates: Vec::new(), remove });
    }
}

async fn send(shards: Vec<Updater>, metrics: Arc<Metrics>, mut work: mpsc::Receiver<Work>) {
    let mut largest_sent = vec![0.0; shards.len()];
    while let Some(Work { updates, remove }) = work.recv().await {
        let largest = updates.iter().map(|(_, priority)| priority.get()).fold(0.0, f64::max);
        let largest = metrics.raise_largest_priority(largest);
        let calls = shards.iter().cloned().enumerate().filter_map(|(shard, updater)| {
            let updates = Updates {
                table: 0,
                priorities: updates
                    .iter()
                    .filter(|((at, _), _)| *at == shard)
                    .map(|&((_, key), priority)| (key, priority))
                    .collect(),
                removed: remove.iter().filter(|(at, _)| *at == shard).map(|(_, key)| *key).collect(),
                largest: Priority::try_new(largest).ok(),
            };
            let is_due = largest > largest_sent[shard]
                || !updates.priorities.is_empty()
                || !updates.removed.is_empty();
            is_due.then(|| call(shard, updater, updates, &metrics))
        });
        futures_util::future::join_all(calls).await;
        // Every update carries the largest priority, so a shard that missed this one gets it with its next update.
        largest_sent.fill(largest);
    }
}

async fn call(shard: usize, updater: Updater, updates: Updates, metrics: &Metrics) {
    let counted = |result: &str, count| metrics.priorities.with_label_values(&[result]).inc_by(count);
    match timeout(ANSWER_WAIT_MAX, updater.update(&updates)).await {
        Ok(Ok((applied, stale))) => {
            counted("applied", applied);
            counted("stale", stale);
        }
        Ok(Err(status)) => {
            // The shard is unreachable or has restarted, possibly without these items. Training does not retry.
            let count = updates.priorities.len() as u64;
            debug!(shard, count, error = describe(&status), "priority update failed");
            counted("lost", count);
        }
        Err(_) => {
            let count = updates.priorities.len() as u64;
            debug!(
                shard,
                count,
                timeout_seconds = ANSWER_WAIT_MAX.as_secs_f64(),
                "priority update timed out"
            );
            counted("lost", count);
        }
    }
}
