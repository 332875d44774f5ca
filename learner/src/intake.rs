//! Batches ahead of the update: rate control, sampling over all shards, decoding.
//!
//! One task owns the shards ([`ShardPool`]) and with them the state of the ratio. It draws a batch when the ratio allows and
//! there is room, has it unpacked on a blocking thread straight into the tensors of the update, and hands it on. At most
//! `prefetch_batches` wait for the training thread. What can't be unpacked is removed from its shard and another item
//! drawn. While the ratio holds it back it asks the shards for news, and says what it waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::adjust;
use coordinator::control::{Mark, Wait};
use coordinator::pool::{Drawn, ShardPool};
use envs::Spec;
use rand_chacha::ChaCha8Rng;
use replay::{LaneKey, ReplayStatus};
use settings::{Resolved, Settings};
use telemetry::Health;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::priorities::Priorities;
use crate::replay::{Collector, ItemId, Sampled};

/// Batches on their way to the training thread; after a failure its reason, and nothing more.
pub type Batches = mpsc::Sender<Result<Prefetched, String>>;

/// How long one request for news waits at a shard.
const NEWS_WAIT: Duration = Duration::from_millis(100);

/// News are asked for this often while there is nothing to draw, so that a shard that came back is told what it holds.
const NEWS_EVERY: Duration = Duration::from_secs(1);

/// Pause when no shard answers.
const SILENCE_PAUSE: Duration = Duration::from_millis(50);

/// A wait longer than this is worth a line in the log, and then one for every ten of these.
const COMPLAIN_AFTER: Duration = Duration::from_secs(2);

/// How long a full replay may be below `min_size` without growing before that is an error.
const STUCK_MAX: Duration = Duration::from_secs(30);

/// How often missing items of one batch are drawn anew before the batch is given up.
const REDRAWS_MAX: usize = 16;

/// A batch, ready to learn from, and its place in the queue.
#[derive(Debug)]
pub struct Prefetched {
    /// The batch.
    pub sampled: Sampled,
    /// Frees its place when the batch is taken.
    pub place: OwnedSemaphorePermit,
}

/// What intake shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Prepare batches.
    Training,
    /// No more: training is over, the evaluation is not.
    Over,
    /// The run has ended: say so to the shards.
    Finished,
}

/// How far the run is by the shards' own counts; a checkpoint keeps it.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Agent steps of the whole run.
    pub agent_steps: u64,
    /// How far each shard has counted; none before a shard was heard.
    pub marks: Vec<Mark>,
}

/// Where intake publishes.
pub struct Publish {
    /// What the replay holds.
    pub status: watch::Sender<ReplayStatus>,
    /// How far the shards have counted.
    pub counted: watch::Sender<Counted>,
}

/// Draws batches ahead of the training thread.
pub struct Intake {
    parts: Parts,
    /// `None` while a blocking thread unpacks into it.
    collector: Option<Collector>,
    blocked_on: Option<String>,
    waiting_since: Option<(Instant, Instant)>,
    /// Since when a full replay has held too few items, and how many.
    stuck: Option<(Instant, u64)>,
}

/// What an intake is made of.
pub struct Parts {
    /// The shards.
    pub pool: ShardPool,
    /// The run's settings.
    pub settings: Settings,
    /// The same, whenever an operator changes them.
    pub adjusted: watch::Receiver<Resolved>,
    /// What is played, as replay has to know it.
    pub environment: Spec,
    /// Draws.
    pub rng: ChaCha8Rng,
    /// Where removals go.
    pub priorities: Priorities,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Reports readiness.
    pub health: Health,
    /// Where the status goes.
    pub publish: Publish,
}

impl Intake {
    /// An intake that makes batches with `collector`.
    pub fn new(parts: Parts, collector: Collector) -> Self {
        parts.metrics.aims(&parts.settings, parts.pool.len());
        Self { parts, collector: Some(collector), blocked_on: None, waiting_since: None, stuck: None }
    }

    /// Draws while there is training, then waits for the end, of which it tells the shards.
    ///
    /// A failure is the last that goes through `batches`.
    pub async fn run(mut self, batches: Batches, mut phase: watch::Receiver<Phase>) {
        let failed = tokio::select! {
            failed = self.draw_batches(&batches) => failed,
            _ = phase.wait_for(|phase| *phase != Phase::Training) => Ok(()),
        };
        if let Err(reason) = failed {
            let _ = batches.send(Err(reason)).await;
            return;
        }
        if phase.wait_for(|phase| *phase == Phase::Finished).await.is_ok() {
            self.parts.pool.tell_the_end().await;
        }
    }

    async fn draw_batches(&mut self, batches: &Batches) -> Result<(), String> {
        let places = Arc::new(Semaphore::new(self.parts.settings.prefetch_batches));
        loop {
            let place = loop {
                tokio::select! {
                    place = places.clone().acquire_owned() => break place.expect("never closed"),
                    () = sleep(NEWS_EVERY) => {
                        self.adjust().await?;
                        self.ask_for_news(Duration::ZERO).await?;
                    }
                }
            };
            self.wait_for_the_ratio().await?;
            let started = Instant::now();
            let Some(sampled) = self.prepare().await? else { continue };
            self.parts.metrics.prepare_seconds.observe(started.elapsed().as_secs_f64());
            if batches.send(Ok(Prefetched { sampled, place })).await.is_err() {
                return Ok(());
            }
        }
    }

    async fn wait_for_the_ratio(&mut self) -> Result<(), String> {
        self.adjust().await?;
        while let Err(wait) = self.parts.pool.control.can_sample() {
            self.waits(&wait);
            self.adjust().await?;
            self.check_room()?;
            self.ask_for_news(NEWS_WAIT).await?;
        }
        if let Some((since, _)) = self.waiting_since.take() {
            if since.elapsed() >= COMPLAIN_AFTER {
                info!(seconds = since.elapsed().as_secs_f64(), "goes on");
                self.parts.health.ready();
            }
            self.parts.metrics.waits_for(None);
            self.blocked_on = None;
            self.publish();
        }
        Ok(())
    }

    /// Goes on by changed settings, if an operator has changed some.
    async fn adjust(&mut self) -> Result<(), String> {
        if !self.parts.adjusted.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let settings = self.parts.adjusted.borrow_and_update().settings.clone();
        match adjust::limiter(&settings) {
            Ok(limiter) => self.parts.pool.control.set_limiter(limiter),
            // It was checked with the change.
            Err(error) => warn!(%error, "the ratio can't be changed"),
        }
        let spec = adjust::shard_spec(&settings, &self.parts.environment, self.parts.pool.len());
        self.parts.pool.tell(&spec, &settings.without_shards.0)?;
        self.parts.metrics.aims(&settings, self.parts.pool.len());
        self.parts.settings = settings;
        // Grants carry it. A shard that is away hears of it when it is back.
        self.ask_for_news(Duration::ZERO).await
    }

    fn waits(&mut self, wait: &Wait) {
        let what = wait.to_string();
        self.parts.metrics.waits_for(Some(wait.name()));
        let now = Instant::now();
        let (since, told) = *self.waiting_since.get_or_insert((now, now));
        let long_ago = if since == told { COMPLAIN_AFTER } else { COMPLAIN_AFTER * 10 };
        if told.elapsed() >= long_ago {
            self.waiting_since = Some((since, now));
            self.parts.health.waiting(what.clone());
            let silent = self.parts.pool.silent();
            info!(for_what = %what, seconds = since.elapsed().as_secs_f64(), ?silent, "waiting");
        }
        self.blocked_on = Some(what);
        self.publish();
    }

    /// Frames that do not fit take their transitions along; a replay that can't hold `min_size` would never begin. A
    /// shard that died held more a moment ago and fills again, so only what lasts is an error.
    fn check_room(&mut self) -> Result<(), String> {
        let (items, wanted) = (self.parts.pool.control.items(), self.parts.settings.min_size.0);
        if !(items < wanted && self.parts.pool.is_full()) {
            self.stuck = None;
            return Ok(());
        }
        let (since, was) = *self.stuck.get_or_insert((Instant::now(), items));
        if items > was {
            self.stuck = Some((Instant::now(), items));
        } else if since.elapsed() >= STUCK_MAX {
            return Err(format!(
                "the shards hold {items} transitions and min_size is {wanted}: raise capacity or replay_bytes, or lower min_size"
            ));
        }
        Ok(())
    }

    async fn ask_for_news(&mut self, wait: Duration) -> Result<(), String> {
        let heard_any = self.parts.pool.ask_for_news(wait).await?;
        self.publish();
        if !heard_any {
            sleep(SILENCE_PAUSE).await;
        }
        Ok(())
    }

    /// Draws and unpacks one batch; `None` if the shards went away meanwhile.
    async fn prepare(&mut self) -> Result<Option<Sampled>, String> {
        let wanted = self.parts.settings.batch_size;
        self.parts.pool.control.sampled(wanted as u64);
        let mut masses = self.parts.pool.control.masses();
        for _ in 0..REDRAWS_MAX {
            if masses.is_empty() {
                break;
            }
            let missing = wanted - self.collector().len();
            let stratified = self.parts.settings.stratified && missing == wanted;
            let points = masses.draw(missing, stratified, &mut self.parts.rng);
            let started = Instant::now();
            let drawn = self.parts.pool.draw(&points, &mut masses).await?;
            self.parts.metrics.spent("draw", started);
            self.publish();
            if self.collector().shards().any(|shard| masses.share(shard) <= 0.0) {
                // A shard that gave items before is lost: their probability is not known any more.
                self.collector().clear();
            }
            let started = Instant::now();
            self.unpack(drawn).await;
            self.parts.metrics.spent("unpack", started);
            if self.collector().len() == wanted {
                let started = Instant::now();
                let sampled = self.collector().finish(|shard| masses.share(shard));
                self.parts.metrics.spent("copy", started);
                return Ok(Some(sampled));
            }
        }
        warn!(got = self.collector().len(), wanted, "a batch was given up");
        self.collector().clear();
        self.parts.pool.control.not_sampled(wanted as u64);
        sleep(SILENCE_PAUSE).await;
        Ok(None)
    }

    fn collector(&mut self) -> &mut Collector {
        self.collector.as_mut().expect("given back after each use")
    }

    /// Unpacks on a blocking thread, and has shards remove what can't be unpacked.
    async fn unpack(&mut self, drawn: Vec<Drawn>) {
        let mut collector = self.collector.take().expect("given back after each use");
        let work = move || {
            let undecodable = unpack(&mut collector, &drawn);
            (collector, undecodable)
        };
        let (collector, undecodable) =
            tokio::task::spawn_blocking(work).await.expect("unpacking does not panic");
        self.collector = Some(collector);
        if !undecodable.is_empty() {
            self.parts.metrics.undecodable.inc_by(undecodable.len() as u64);
            self.parts.priorities.remove(undecodable);
        }
    }

    fn publish(&self) {
        let control = &self.parts.pool.control;
        self.parts.metrics.largest_priority(self.parts.pool.largest_priority());
        let status = ReplayStatus { blocked_on: self.blocked_on.clone(), ..control.status() };
        let counted = Counted { agent_steps: control.agent_steps(), marks: control.marks() };
        self.parts.publish.status.send_replace(status);
        self.parts.publish.counted.send_replace(counted);
    }
}

/// Adds what was drawn to the batch, and returns the items that can't be decoded.
fn unpack(collector: &mut Collector, drawn: &[Drawn]) -> Vec<ItemId> {
    let mut undecodable = Vec::new();
    for Drawn { shard, batch } in drawn {
        for item in batch.items() {
            let added = collector.add(
                *shard,
                item.draw(),
                item.lead(),
                item.frames(),
                item.steps(),
                item.reliability(),
            );
            if let Err(error) = added {
                let LaneKey { actor, incarnation, lane } = item.lane();
                warn!(actor, incarnation, lane, %error, "undecodable");
                undecodable.push((*shard, item.key()));
            }
        }
    }
    undecodable
}
