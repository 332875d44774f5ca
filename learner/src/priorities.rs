//! New priorities on their way back to the shards, beside the training.
//!
//! A bounded queue and one task. If shards are slower than training, the newest batch of priorities is dropped and
//! counted: an item then keeps its old priority, which costs a little and stalls nothing.

use std::sync::Arc;
use std::time::Duration;

use proto::v1::replay_client::ReplayClient;
use proto::{convert, v1};
use replay::ItemKey;
use rpc::shard::{Told, describe};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Channel;
use tracing::debug;
use value::priority::Priority;

use crate::metrics::Metrics;

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
    updates: Vec<(usize, ItemKey, Priority)>,
    remove: Vec<(usize, ItemKey)>,
}

impl Priorities {
    /// Starts the task. Clients come in the order of shards. Ends when all senders are gone.
    pub fn spawn(clients: Vec<ReplayClient<Channel>>, told: Told, metrics: Arc<Metrics>) -> Self {
        let (queue, work) = mpsc::channel(WAITING_MAX);
        tokio::spawn(send(clients, told, metrics.clone(), work));
        Self { queue, metrics }
    }

    /// Gives items new priorities, sooner or later.
    pub fn update(&self, updates: Vec<(usize, ItemKey, Priority)>) {
        let count = updates.len();
        if self.queue.try_send(Work { updates, remove: Vec::new() }).is_err() {
            self.metrics.priorities.with_label_values(&["dropped"]).inc_by(count as u64);
        }
    }

    /// Has items removed that nobody can use.
    pub fn remove(&self, items: &[(usize, ItemKey)]) {
        let _ = self.queue.try_send(Work { updates: Vec::new(), remove: items.to_vec() });
    }
}

async fn send(
    clients: Vec<ReplayClient<Channel>>,
    told: Told,
    metrics: Arc<Metrics>,
    mut work: mpsc::Receiver<Work>,
) {
    let mut largest_told = vec![0.0; clients.len()];
    while let Some(Work { updates, remove }) = work.recv().await {
        let largest = updates.iter().map(|(.., priority)| priority.get()).fold(0.0, f64::max);
        let largest = metrics.largest_priority(largest);
        let calls = clients.iter().cloned().enumerate().filter_map(|(shard, client)| {
            let updates: Vec<_> =
                updates.iter().filter(|(at, ..)| *at == shard).map(|&(_, key, p)| (key, p)).collect();
            let remove: Vec<_> = remove.iter().filter(|(at, _)| *at == shard).map(|(_, key)| *key).collect();
            let news = largest > largest_told[shard];
            (news || !updates.is_empty() || !remove.is_empty()).then(|| {
                let request = v1::UpdatePrioritiesRequest {
                    caller: Some(told.caller.clone()),
                    learner_incarnation: told.learner_incarnation,
                    updates: convert::updates_message(&updates),
                    remove: remove.into_iter().map(convert::key_message).collect(),
                    largest_priority: largest,
                };
                call(shard, client, request, &metrics)
            })
        });
        futures_util::future::join_all(calls).await;
        // Every update carries the largest; a shard that missed it hears it with its next ones.
        largest_told.fill(largest);
    }
}

async fn call(
    shard: usize,
    mut client: ReplayClient<Channel>,
    request: v1::UpdatePrioritiesRequest,
    metrics: &Metrics,
) {
    let count = request.updates.len() as u64;
    let counted = |result: &str, count| metrics.priorities.with_label_values(&[result]).inc_by(count);
    match timeout(ANSWER_WAIT_MAX, client.update_priorities(request)).await {
        Ok(Ok(reply)) => {
            let reply = reply.into_inner();
            counted("applied", reply.applied);
            counted("stale", reply.stale);
        }
        Ok(Err(status)) => {
            // The shard is gone or new: its items are too, or it will ask for nothing less.
            debug!(shard, reason = describe(&status), "priorities were lost");
            counted("lost", count);
        }
        Err(_) => counted("lost", count),
    }
}
