//! The replay as a pool of remote shards: [`crate::intake`] samples ahead, priorities go back beside the training.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use replay::ReplayStatus;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use value::priority::Priority;

use crate::intake::{Counted, Intake, Parts, Phase, Prefetched};
use crate::metrics::Metrics;
use crate::priorities::Priorities;
use crate::replay::{Collector, ItemId, Replay, Sampled};

/// How long [`Replay::sample`] waits for a batch before the training thread does its other work.
const SAMPLE_WAIT: Duration = Duration::from_millis(100);

/// Capacity of the channel of prefetched batches. The intake bounds their number by `prefetch_batches`.
const BATCHES_MAX: usize = 1024;

/// The training thread's end of the intake.
pub struct RemoteReplay {
    batches: mpsc::Receiver<Result<Prefetched, String>>,
    status: watch::Receiver<ReplayStatus>,
    counted: watch::Receiver<Counted>,
    priorities: Priorities,
    phase: watch::Sender<Phase>,
    intake: Option<JoinHandle<()>>,
    metrics: Arc<Metrics>,
    handle: Handle,
    batch_size: u64,
    /// Batches of the run before this start of the learner.
    batches_before: u64,
}

impl RemoteReplay {
    /// Starts an intake on the runtime.
    pub fn start(parts: Parts, collector: Collector, handle: Handle) -> Self {
        let (sender, batches) = mpsc::channel(BATCHES_MAX);
        let (phase, phases) = watch::channel(Phase::Training);
        Self {
            batches,
            status: parts.publish.status.subscribe(),
            counted: parts.publish.counted.subscribe(),
            priorities: parts.priorities.clone(),
            phase,
            metrics: parts.metrics.clone(),
            batch_size: parts.settings.batch_size as u64,
            batches_before: collector.batches(),
            intake: Some(handle.spawn(Intake::new(parts, collector).run(sender, phases))),
            handle,
        }
    }

    /// How far the shards have counted.
    pub fn counted(&self) -> watch::Ref<'_, Counted> {
        self.counted.borrow()
    }

    /// Ends sampling: training is over, the evaluation is not.
    pub fn stop_sampling(&self) {
        self.phase.send_replace(Phase::Over);
    }

    /// Tells the shards that the run has ended; waits at most `wait` for that.
    pub fn finish(&mut self, wait: Duration) {
        self.phase.send_replace(Phase::Finished);
        if let Some(intake) = self.intake.take() {
            let _ = self.handle.block_on(async { timeout(wait, intake).await });
        }
    }

    fn show(&self, sampled: &Sampled) {
        let drawn = self.batches_before + self.status.borrow().samples / self.batch_size;
        self.metrics.prefetched.set(self.batches.len() as i64);
        self.metrics.prefetch_lag.set(drawn.saturating_sub(sampled.number + 1) as f64);
        self.metrics.sample_age.set(sampled.age_inserts);
    }
}

impl Replay for RemoteReplay {
    fn sample(&mut self) -> Result<Option<Sampled>> {
        let asked = Instant::now();
        let received = self.handle.block_on(async { timeout(SAMPLE_WAIT, self.batches.recv()).await });
        self.metrics.wait_seconds.inc_by(asked.elapsed().as_secs_f64());
        match received {
            // Dropping its place lets the intake prepare the next batch during this update.
            Ok(Some(Ok(Prefetched { sampled, place: _ }))) => {
                self.show(&sampled);
                Ok(Some(sampled))
            }
            Ok(Some(Err(reason))) => bail!(reason),
            Ok(None) => bail!("sampling has ended"),
            Err(_) => Ok(None),
        }
    }

    fn update_priorities(&mut self, updates: Vec<(ItemId, Priority)>) {
        self.priorities.update(updates);
    }

    fn status(&self) -> ReplayStatus {
        self.status.borrow().clone()
    }
}
