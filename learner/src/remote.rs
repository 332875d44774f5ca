//! A replay of remote shards: [`crate::prefetcher`] samples ahead, [`crate::priorities`] sends priorities back.
#![allow(clippy::disallowed_methods, reason = "the learner's process measures its work")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use replay::ReplayStatus;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use value::priority::Priority;

use crate::metrics::Metrics;
use crate::prefetcher::{Prefetched, Prefetcher, PrefetcherParts, RunCounts, RunPhase};
use crate::priorities::Priorities;
use crate::replay::{ItemId, Replay, Sampled};
use crate::unpack::Unpacker;

/// How long [`Replay::sample`] waits for a batch before the training thread does its periodic work.
const SAMPLE_WAIT: Duration = Duration::from_millis(100);

/// Capacity of the channel of prefetched batches. The prefetcher limits their number to `prefetch_batches`.
const BATCHES_MAX: usize = 1024;

/// The training thread's handle to the prefetcher.
pub struct RemoteReplay {
    batches: mpsc::Receiver<Result<Prefetched, String>>,
    /// The next batch, while it is unpacked.
    next: Option<Prefetched>,
    status: watch::Receiver<ReplayStatus>,
    counted: watch::Receiver<RunCounts>,
    priorities: Priorities,
    phase: watch::Sender<RunPhase>,
    prefetcher: Option<JoinHandle<()>>,
    metrics: Arc<Metrics>,
    handle: Handle,
    batch_size: u64,
    /// Batches that earlier starts of the learner trained on.
    batches_before: u64,
    /// Number of the newest batch, and the mean age of its items in inserts.
    newest: (u64, f64),
}

impl RemoteReplay {
    /// Starts a prefetcher on the runtime. The learner has made `updates` updates before.
    pub fn start(
        parts: PrefetcherParts,
        unpacker: Unpacker,
        priorities: Priorities,
        updates: u64,
        handle: Handle,
    ) -> Self {
        let (sender, batches) = mpsc::channel(BATCHES_MAX);
        let (phase, phases) = watch::channel(RunPhase::Training);
        Self {
            batches,
            next: None,
            status: parts.publish.status.subscribe(),
            counted: parts.publish.counted.subscribe(),
            priorities,
            phase,
            metrics: parts.metrics.clone(),
            batch_size: parts.settings.batch_size as u64,
            batches_before: updates,
            newest: (0, 0.0),
            prefetcher: Some(handle.spawn(Prefetcher::new(parts, unpacker, updates).run(sender, phases))),
            handle,
        }
    }

    /// Agent steps and per-shard counts, as the shards last reported them.
    pub fn counted(&self) -> watch::Ref<'_, RunCounts> {
        self.counted.borrow()
    }

    /// Stops sampling: training is over, the final evaluation is not.
    pub fn stop_sampling(&self) {
        self.phase.send_replace(RunPhase::Evaluating);
    }

    /// Tells the shards that the run has finished, and waits at most `wait` until they have answered.
    pub fn finish(&mut self, wait: Duration) {
        self.phase.send_replace(RunPhase::Finished);
        if let Some(prefetcher) = self.prefetcher.take() {
            let _ = self.handle.block_on(async { timeout(wait, prefetcher).await });
        }
    }

    /// Exports how far prefetching is ahead. Measured after the update: the prefetcher has refilled the queue by then, so
    /// an empty queue means that sampling is too slow.
    fn record_prefetch_metrics(&self) {
        let (number, age_inserts) = self.newest;
        let drawn = self.batches_before + self.status.borrow().samples / self.batch_size;
        self.metrics.prefetched.set(self.batches.len() as i64);
        self.metrics.prefetch_lag.set(drawn.saturating_sub(number + 1) as f64);
        self.metrics.sample_age.set(age_inserts);
    }
}

impl Replay for RemoteReplay {
    fn sample(&mut self) -> Result<Option<Sampled>> {
        let asked = Instant::now();
        let (batches, next) = (&mut self.batches, &mut self.next);
        let unpacked = async {
            let prefetched = match next {
                Some(prefetched) => prefetched,
                None => match batches.recv().await {
                    Some(Ok(prefetched)) => next.insert(prefetched),
                    Some(Err(reason)) => bail!(reason),
                    None => bail!(
                        "internal error: the prefetcher task ended; see the log above, and resume the run"
                    ),
                },
            };
            (&mut prefetched.job).await.context(
                "internal error: a batch could not be unpacked; see the log above, and resume the run",
            )
        };
        let unpacked = self.handle.block_on(async { timeout(SAMPLE_WAIT, unpacked).await });
        self.metrics.wait_seconds.inc_by(asked.elapsed().as_secs_f64());
        let Ok(unpacked) = unpacked else { return Ok(None) };
        // Dropping the permit lets the prefetcher draw another batch during this update.
        self.next = None;
        let sampled = unpacked?;
        if let Some(sampled) = &sampled {
            self.newest = (sampled.number, sampled.age_inserts);
        }
        Ok(sampled)
    }

    fn update_priorities(&mut self, updates: Vec<(ItemId, Priority)>) {
        self.priorities.update(updates);
        self.record_prefetch_metrics();
    }

    fn status(&self) -> ReplayStatus {
        self.status.borrow().clone()
    }
}
