//! Draws batches ahead of the update: rate control and sampling over all shards.
//!
//! One task owns the shards ([`ShardPool`]) and the state of samples per insert. It draws a batch when the ratio allows
//! it and a permit is free, and starts a job that unpacks it ([`crate::unpack`]). Small batches are drawn together if there are
//! permits for several: the round trip to a shard takes longer than its draws. The training thread awaits the jobs in order; at
//! most `prefetch_batches` may be unpacked or wait for it. While sampling is blocked, the task polls the shards and reports
//! what it is blocked on.
#![allow(clippy::disallowed_methods, reason = "the learner's process measures its work")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::adjust;
use coordinator::control::{BlockedOn, ShardCount};
use coordinator::pool::ShardPool;
use coordinator::sample_points::{SamplePoint, ShardMasses};
use envs::Spec;
use rand_chacha::ChaCha8Rng;
use replay::ReplayStatus;
use settings::{Resolved, Settings};
use telemetry::Health;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::replay::Sampled;
use crate::unpack::{self, Drawn, DrawnItems, Unpacker, length};

/// The channel to the training thread. After a failure it carries the reason, and nothing after that.
pub type Batches = mpsc::Sender<Result<Prefetched, String>>;

/// How long a shard may hold a poll back until it has new items.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Time between polls while the queue is full. A shard that has restarted gets its configuration with a poll.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Pause when no shard answers.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(50);

/// A longer wait is logged, then again every ten times this duration.
const LOG_AFTER: Duration = Duration::from_secs(2);

/// How long a full replay may stay below `min_size` without growing before that is an error.
const STUCK_MAX: Duration = Duration::from_secs(30);

/// How often the missing items of a batch are drawn again before the batch is abandoned.
const REDRAWS_MAX: usize = 16;

/// Items that are drawn together at the most: for larger batches the round trip no longer matters, and a shard's reply is bounded.
const DRAWN_TOGETHER_MAX: usize = 128;

/// A batch that is being unpacked or ready to train on, and its permit.
#[derive(Debug)]
pub struct Prefetched {
    /// Its result is `None` if the batch was abandoned.
    pub job: JoinHandle<Option<Sampled>>,
    /// Dropped when the training thread takes the batch, which lets the prefetcher prepare another one.
    pub permit: OwnedSemaphorePermit,
}

/// The phase of the run, which the training thread sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    Training,
    /// Training is over, the final evaluation is not: no more batches.
    Evaluating,
    /// The run has finished; the shards are notified.
    Finished,
}

/// The run's progress by the shards' own counts, as a checkpoint stores it.
#[derive(Clone, Debug, Default)]
pub struct RunCounts {
    /// Agent steps of the whole run.
    pub agent_steps: u64,
    /// What each shard incarnation has counted; empty before the first shard has answered.
    pub shard_counts: Vec<ShardCount>,
}

/// The channels through which the prefetcher publishes status.
pub struct StatusSenders {
    /// What the replay holds, and what sampling is blocked on.
    pub status: watch::Sender<ReplayStatus>,
    /// Agent steps and per-shard counts.
    pub counted: watch::Sender<RunCounts>,
}

/// Draws batches ahead of the training thread.
pub struct Prefetcher {
    parts: PrefetcherParts,
    unpacker: Unpacker,
    /// Batches drawn so far, over the whole run.
    drawn: u64,
    blocked_on: Option<String>,
    /// Start of the current wait, and when it was last logged.
    waiting_since: Option<(Instant, Instant)>,
    /// Since when a full replay has been below `min_size` without growing, and its number of items then.
    stuck: Option<(Instant, u64)>,
}

/// What a prefetcher is made of.
pub struct PrefetcherParts {
    pub pool: ShardPool,
    pub settings: Settings,
    /// The settings, updated whenever an operator changes them.
    pub adjusted: watch::Receiver<Resolved>,
    /// The environment's shape, which the shards need.
    pub environment: Spec,
    pub rng: ChaCha8Rng,
    pub metrics: Arc<Metrics>,
    pub health: Health,
    pub publish: StatusSenders,
}

impl Prefetcher {
    /// A prefetcher that unpacks batches with `unpacker`. The run has drawn `drawn` batches before.
    pub fn new(parts: PrefetcherParts, unpacker: Unpacker, drawn: u64) -> Self {
        parts.metrics.set_targets(&parts.settings, parts.pool.len());
        Self { parts, unpacker, drawn, blocked_on: None, waiting_since: None, stuck: None }
    }

    /// Prepares batches until training is over, then waits for the end of the run and tells the shards.
    ///
    /// A failure is the last message in `batches`.
    pub async fn run(mut self, batches: Batches, mut phase: watch::Receiver<RunPhase>) {
        let failed = tokio::select! {
            failed = self.draw_batches(&batches) => failed,
            _ = phase.wait_for(|phase| *phase != RunPhase::Training) => Ok(()),
        };
        if let Err(reason) = failed {
            let _ = batches.send(Err(reason)).await;
            return;
        }
        if phase.wait_for(|phase| *phase == RunPhase::Finished).await.is_ok() {
            self.parts.pool.finish().await;
        }
    }

    async fn draw_batches(&mut self, batches: &Batches) -> Result<(), String> {
        let free = Arc::new(Semaphore::new(self.parts.settings.prefetch_batches));
        loop {
            let permit = loop {
                tokio::select! {
                    permit = free.clone().acquire_owned() => break permit.expect("never closed"),
                    () = sleep(POLL_EVERY) => {
                        self.adjust().await?;
                        self.poll_shards(Duration::ZERO).await?;
                    }
                }
            };
            let abandoned = self.unpacker.take_abandoned();
            self.parts.pool.control.undo_sampled(abandoned);
            self.wait_until_allowed().await?;
            let permits = self.count_allowed(permit, &free);
            let drawn = self.draw(permits.len()).await?;
            for (drawn, permit) in drawn.into_iter().zip(permits) {
                let job = self.unpacker.start(drawn).await;
                if batches.send(Ok(Prefetched { job, permit })).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    /// Counts a batch for `permit`, and one for each further permit that is free, as long as the ratio allows it and they are drawn
    /// together. They count before the draw, so that the allowances granted with it include them.
    fn count_allowed(
        &mut self,
        permit: OwnedSemaphorePermit,
        free: &Arc<Semaphore>,
    ) -> Vec<OwnedSemaphorePermit> {
        let size = self.parts.settings.batch_size;
        let control = &mut self.parts.pool.control;
        let mut permits = vec![permit];
        control.sampled(size as u64);
        while (permits.len() + 1) * size <= DRAWN_TOGETHER_MAX && control.can_sample().is_ok() {
            let Ok(permit) = free.clone().try_acquire_owned() else { break };
            permits.push(permit);
            control.sampled(size as u64);
        }
        permits
    }

    /// Waits until samples per insert allow another batch.
    async fn wait_until_allowed(&mut self) -> Result<(), String> {
        self.adjust().await?;
        while let Err(blocked_on) = self.parts.pool.control.can_sample() {
            self.report_blocked(&blocked_on);
            self.adjust().await?;
            self.check_room()?;
            self.poll_shards(POLL_WAIT).await?;
        }
        if let Some((since, _)) = self.waiting_since.take() {
            if since.elapsed() >= LOG_AFTER {
                info!(blocked_seconds = since.elapsed().as_secs_f64(), "sampling resumed");
                self.parts.health.ready();
            }
            self.parts.metrics.set_blocked_on(None);
            self.blocked_on = None;
            self.publish();
        }
        Ok(())
    }

    /// Applies the settings that an operator has changed, if any.
    async fn adjust(&mut self) -> Result<(), String> {
        if !self.parts.adjusted.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let settings = self.parts.adjusted.borrow_and_update().settings.clone();
        match adjust::limiter(&settings) {
            Ok(limiter) => self.parts.pool.control.set_limiter(limiter),
            // The learner validated the change before it accepted it.
            Err(error) => {
                let (ratio, min_size) = (settings.samples_per_insert, settings.min_size.0);
                warn!(%error, samples_per_insert = ?ratio, min_size, "rate limiter not updated, keeping the previous one");
            }
        }
        let spec = adjust::shard_spec(&settings, &self.parts.environment, self.parts.pool.len());
        self.parts.pool.configure(&spec, &settings.without_shards.0)?;
        self.parts.metrics.set_targets(&settings, self.parts.pool.len());
        self.parts.settings = settings;
        // Grants carry the configuration. An unreachable shard gets it when it is back.
        self.poll_shards(Duration::ZERO).await
    }

    fn report_blocked(&mut self, blocked_on: &BlockedOn) {
        let text = blocked_on.to_string();
        self.parts.metrics.set_blocked_on(Some(blocked_on.name()));
        let now = Instant::now();
        let (since, logged) = *self.waiting_since.get_or_insert((now, now));
        let log_after = if since == logged { LOG_AFTER } else { LOG_AFTER * 10 };
        if logged.elapsed() >= log_after {
            self.waiting_since = Some((since, now));
            self.parts.health.waiting(text.clone());
            let unreachable = self.parts.pool.unreachable();
            info!(blocked_on = %text, blocked_seconds = since.elapsed().as_secs_f64(), ?unreachable, "sampling blocked");
        }
        self.blocked_on = Some(text);
        self.publish();
    }

    /// Fails if the replay can't hold `min_size` transitions: training would never start. A shard that died comes back
    /// empty and fills again, so only a state that lasts is an error.
    fn check_room(&mut self) -> Result<(), String> {
        let (items, wanted) = (self.parts.pool.control.items(), self.parts.settings.min_size.0);
        if !(items < wanted && self.parts.pool.is_full()) {
            self.stuck = None;
            return Ok(());
        }
        let (since, items_then) = *self.stuck.get_or_insert((Instant::now(), items));
        if items > items_then {
            self.stuck = Some((Instant::now(), items));
        } else if since.elapsed() >= STUCK_MAX {
            return Err(format!(
                "the shards hold {items} transitions and min_size is {wanted}: raise capacity or replay_bytes, or lower min_size"
            ));
        }
        Ok(())
    }

    async fn poll_shards(&mut self, wait: Duration) -> Result<(), String> {
        let any_answered = self.parts.pool.poll_shards(wait).await?;
        self.publish();
        if !any_answered {
            sleep(UNREACHABLE_PAUSE).await;
        }
        Ok(())
    }

    /// Draws this many batches, which have been counted: one if only some of the items arrive at first, and none if the shards became
    /// unreachable meanwhile.
    async fn draw(&mut self, mut count: usize) -> Result<Vec<Drawn>, String> {
        let started = Instant::now();
        let size = self.parts.settings.batch_size;
        let mut masses = self.parts.pool.control.masses();
        let (mut items, mut draws): (Vec<DrawnItems>, _) = (Vec::new(), 0);
        while draws < REDRAWS_MAX && !masses.is_empty() {
            draws += 1;
            let points = self.points(count, size * count - length(&items), &masses);
            let asked = Instant::now();
            let drawn = self.parts.pool.draw(&points, &mut masses).await?;
            // A shard without points answers too, with nothing.
            items.extend(drawn.into_iter().filter(|drawn| !drawn.batch.is_empty()).map(DrawnItems::all));
            self.parts.metrics.add_stage_time("sample", asked);
            self.publish();
            if items.iter().any(|items| masses.share(items.shard) <= 0.0) {
                // A shard that gave some of the items became unreachable: their probabilities are no longer known.
                items.clear();
            }
            if length(&items) == size * count {
                return Ok(self.batches(items, count, &points, &masses, started));
            }
            if count > 1 {
                // Further draws complete one batch; the others are drawn again later.
                self.parts.pool.control.undo_sampled((size * (count - 1)) as u64);
                (items, count) = (Vec::new(), 1);
            }
        }
        let reachable = self.parts.pool.control.present().count();
        warn!(
            items = length(&items),
            batch_size = size,
            draws,
            reachable,
            "batch incomplete: shards unreachable; retrying"
        );
        self.parts.pool.control.undo_sampled((size * count) as u64);
        sleep(UNREACHABLE_PAUSE).await;
        Ok(Vec::new())
    }

    /// Points of the `missing` items of this many batches, one batch after the other.
    fn points(&mut self, count: usize, missing: usize, masses: &ShardMasses) -> Vec<SamplePoint> {
        let PrefetcherParts { settings: Settings { batch_size, stratified, .. }, rng, .. } = &mut self.parts;
        if missing < *batch_size {
            // Strata only make sense over a whole batch.
            return masses.draw(missing, false, rng);
        }
        (0..count).flat_map(|_| masses.draw(*batch_size, *stratified, rng)).collect()
    }

    /// Divides complete items into batches. Those of several batches were drawn at `points`, of which each batch has its part.
    fn batches(
        &mut self,
        mut items: Vec<DrawnItems>,
        count: usize,
        points: &[SamplePoint],
        masses: &ShardMasses,
        started: Instant,
    ) -> Vec<Drawn> {
        let shares: Vec<f64> = (0..self.parts.pool.len()).map(|shard| masses.share(shard)).collect();
        let size = self.parts.settings.batch_size;
        let mut batches = Vec::with_capacity(count);
        for index in 0..count {
            let items = match count {
                // Its items may be from several draws.
                1 => std::mem::take(&mut items),
                _ => unpack::split_off(&mut items, &points[index * size..][..size]),
            };
            batches.push(Drawn { items, shares: shares.clone(), number: self.drawn, started });
            self.drawn += 1;
        }
        batches
    }

    fn publish(&self) {
        let control = &self.parts.pool.control;
        self.parts.metrics.raise_largest_priority(self.parts.pool.largest_priority());
        let status = ReplayStatus { blocked_on: self.blocked_on.clone(), ..control.status() };
        let counted = RunCounts { agent_steps: control.agent_steps(), shard_counts: control.shard_counts() };
        self.parts.publish.status.send_replace(status);
        self.parts.publish.counted.send_replace(counted);
    }
}
