//! New priorities on their way back to the shards, beside the training.
//!
//! A bounded queue and one task. If shards are slower than training, the newest batch of priorities is dropped and
//! counted: an item then keeps its old priority, which costs a little and stalls nothing.

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

/// Batches whose priorities may wait.
const WAITING_MAX: usize = 64;

/// How long a shard may take to apply them.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

/// The sending end.
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
    /// Starts the task. Updaters come in the order of shards. Ends when all senders are gone.
    pub fn spawn(shards: Vec<Updater>, metrics: Arc<Metrics>) -> Self {
        let (queue, work) = mpsc::channel(WAITING_MAX);
        tokio::spawn(send(shards, metrics.clone(), work));
        Self { queue, metrics }
    }

    /// Gives items new priorities, sooner or later.
    pub fn update(&self, updates: Vec<(ItemId, Priority)>) {
        let count = updates.len();
        if self.queue.try_send(Work { updates, remove: Vec::new() }).is_err() {
            self.metrics.priorities.with_label_values(&["dropped"]).inc_by(count as u64);
        }
    }

    /// Has items removed that nobody can use.
    pub fn remove(&self, remove: Vec<ItemId>) {
        let _ = self.queue.try_send(Work { updates: Vec::new(), remove });
    }
}

async fn send(shards: Vec<Updater>, metrics: Arc<Metrics>, mut work: mpsc::Receiver<Work>) {
    let mut largest_told = vec![0.0; shards.len()];
    while let Some(Work { updates, remove }) = work.recv().await {
        let largest = updates.iter().map(|(_, priority)| priority.get()).fold(0.0, f64::max);
        let largest = metrics.largest_priority(largest);
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
            let news = largest > largest_told[shard];
            let any = news || !updates.priorities.is_empty() || !updates.removed.is_empty();
            any.then(|| call(shard, updater, updates, &metrics))
        });
        futures_util::future::join_all(calls).await;
        // Every update carries the largest; a shard that missed it hears it with its next ones.
        largest_told.fill(largest);
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
            // The shard is gone or new: its items are too, or it will ask for nothing less.
            debug!(shard, reason = describe(&status), "priorities were lost");
            counted("lost", updates.priorities.len() as u64);
        }
        Err(_) => counted("lost", updates.priorities.len() as u64),
    }
}
