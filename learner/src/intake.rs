//! Batches ahead of the update: rate control, sampling over all shards, decoding.
//!
//! One task owns the shards ([`Fleet`]) and with them the state of the ratio. It draws a batch when the ratio allows and
//! there is room, has it unpacked on a blocking thread straight into the tensors of the update, and hands it on. At most
//! `prefetch_batches` wait for the training thread. What can't be unpacked is removed from its shard and another item
//! drawn. While the ratio holds it back it asks the shards for news, and says what it waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agents::Batch;
use envs::Spec;
use rand_chacha::ChaCha8Rng;
use replay::control::{Mark, Wait};
use replay::spread::Masses;
use replay::{ItemKey, LaneKey};
use settings::Resolved;
use settings::Settings;
use settings::networks::Input;
use tch::Device;
use telemetry::Health;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::adjust;
use crate::batch::Assembler;
use crate::fleet::{Drawn, Fleet};
use crate::importance::{self, Importance};
use crate::metrics::Metrics;
use crate::priorities::Priorities;

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

/// A batch, ready to be learned from.
#[derive(Debug)]
pub struct Prepared {
    /// Its tensors.
    pub batch: Batch,
    /// Shard and name of each item, in the batch's order.
    pub keys: Vec<(usize, ItemKey)>,
    /// Mean importance weight.
    pub importance_weight: f64,
    /// Batches drawn before it, in this life of the learner.
    pub number: u64,
    /// Mean number of items inserted after an item of it, in its shard.
    pub age_inserts: f64,
    /// Gives back its place when the batch is taken.
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

/// Where the replay stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Agent steps of the whole run.
    pub agent_steps: u64,
    /// Transitions in all shards that answer.
    pub items: u64,
    /// Their packed frames.
    pub bytes: u64,
    /// What is waited for, if anything.
    pub waiting: Option<String>,
    /// How far the shards have counted.
    pub marks: Vec<Mark>,
    /// Shards that answer.
    pub shards: u32,
    /// Samples drawn and inserts counted in this life of the learner.
    pub totals: (u64, u64),
    /// Samples per insert since the ratio began.
    pub ratio: Option<f64>,
    /// Why there will be no more batches.
    pub failed: Option<String>,
}

/// All that intake needs.
pub struct Intake {
    fleet: Fleet,
    settings: Settings,
    adjusted: watch::Receiver<Resolved>,
    environment: Spec,
    importance: Importance,
    assembler: Option<Assembler>,
    input: Input,
    device: Device,
    rng: ChaCha8Rng,
    priorities: Priorities,
    metrics: Arc<Metrics>,
    health: Health,
    standing: watch::Sender<Standing>,
    first_update: u64,
    drawn: u64,
    waiting_since: Option<(Instant, Instant)>,
    /// Since when a full replay has held too few items, and how many.
    stuck: Option<(Instant, u64)>,
}

/// What an intake is made of.
pub struct Parts {
    /// The shards.
    pub fleet: Fleet,
    /// The run's settings.
    pub settings: Settings,
    /// The same, whenever an operator changes them.
    pub adjusted: watch::Receiver<Resolved>,
    /// What is played, as replay has to know it.
    pub environment: Spec,
    /// Unpacks.
    pub assembler: Assembler,
    /// The network's input.
    pub input: Input,
    /// Where the network lives.
    pub device: Device,
    /// Draws.
    pub rng: ChaCha8Rng,
    /// Where removals go.
    pub priorities: Priorities,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Says how it is.
    pub health: Health,
    /// Updates made before.
    pub updates: u64,
}

/// Items that were unpacked, and those that could not be.
struct Unpacked {
    assembler: Assembler,
    /// Shard, name, in-shard probability, age.
    good: Vec<(usize, ItemKey, f64, u64)>,
    bad: Vec<(usize, ItemKey)>,
}

impl Intake {
    /// An intake, and where to see how it stands.
    pub fn new(parts: Parts) -> (Self, watch::Receiver<Standing>) {
        let (standing, receiver) = watch::channel(Standing::default());
        parts.metrics.aims(&parts.settings, parts.fleet.len());
        let intake = Self {
            fleet: parts.fleet,
            importance: Importance::new(&parts.settings),
            settings: parts.settings,
            adjusted: parts.adjusted,
            environment: parts.environment,
            assembler: Some(parts.assembler),
            input: parts.input,
            device: parts.device,
            rng: parts.rng,
            priorities: parts.priorities,
            metrics: parts.metrics,
            health: parts.health,
            standing,
            first_update: parts.updates,
            drawn: 0,
            waiting_since: None,
            stuck: None,
        };
        (intake, receiver)
    }

    /// Draws while there is training, then waits for the end, of which it tells the shards.
    pub async fn run(mut self, batches: mpsc::Sender<Prepared>, mut phase: watch::Receiver<Phase>) {
        let failed = tokio::select! {
            failed = self.draw_batches(&batches) => failed,
            _ = phase.wait_for(|phase| *phase != Phase::Training) => Ok(()),
        };
        if let Err(reason) = failed {
            self.standing.send_modify(|standing| standing.failed = Some(reason));
            return;
        }
        if phase.wait_for(|phase| *phase == Phase::Finished).await.is_ok() {
            self.fleet.tell_the_end().await;
        }
    }

    async fn draw_batches(&mut self, batches: &mpsc::Sender<Prepared>) -> Result<(), String> {
        let places = Arc::new(Semaphore::new(self.settings.prefetch_batches));
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
            let Some(prepared) = self.prepare(place).await? else { continue };
            self.metrics.prepare_seconds.observe(started.elapsed().as_secs_f64());
            if batches.send(prepared).await.is_err() {
                return Ok(());
            }
        }
    }

    async fn wait_for_the_ratio(&mut self) -> Result<(), String> {
        self.adjust().await?;
        while let Err(wait) = self.fleet.control.can_sample() {
            self.waits(&wait);
            self.adjust().await?;
            self.check_room()?;
            self.ask_for_news(NEWS_WAIT).await?;
        }
        if let Some((since, _)) = self.waiting_since.take() {
            if since.elapsed() >= COMPLAIN_AFTER {
                info!(seconds = since.elapsed().as_secs_f64(), "goes on");
                self.health.ready();
            }
            self.metrics.waits_for(None);
            self.standing.send_modify(|standing| standing.waiting = None);
        }
        Ok(())
    }

    /// Goes on by changed settings, if an operator has changed some.
    async fn adjust(&mut self) -> Result<(), String> {
        if !self.adjusted.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let settings = self.adjusted.borrow_and_update().settings.clone();
        match adjust::limiter(&settings) {
            Ok(limiter) => self.fleet.control.set_limiter(limiter),
            // It was checked with the change.
            Err(error) => warn!(%error, "the ratio can't be changed"),
        }
        let spec = adjust::store(&settings, &self.environment, self.fleet.len());
        self.fleet.tell(&spec, &settings.without_shards.0)?;
        self.metrics.aims(&settings, self.fleet.len());
        self.settings = settings;
        // Grants carry it. A shard that is away hears of it when it is back.
        self.ask_for_news(Duration::ZERO).await
    }

    fn waits(&mut self, wait: &Wait) {
        let what = wait.to_string();
        self.metrics.waits_for(Some(wait.name()));
        let now = Instant::now();
        let (since, told) = *self.waiting_since.get_or_insert((now, now));
        let long_ago = if since == told { COMPLAIN_AFTER } else { COMPLAIN_AFTER * 10 };
        if told.elapsed() >= long_ago {
            self.waiting_since = Some((since, now));
            self.health.waiting(what.clone());
            let silent = self.fleet.silent();
            info!(for_what = %what, seconds = since.elapsed().as_secs_f64(), ?silent, "waiting");
        }
        self.standing.send_modify(|standing| standing.waiting = Some(what));
    }

    /// Frames that do not fit take their transitions along; a replay that can't hold `min_size` would never begin. A
    /// shard that died held more a moment ago and fills again, so only what lasts is an error.
    fn check_room(&mut self) -> Result<(), String> {
        let (items, wanted) = (self.fleet.control.items(), self.settings.min_size.0);
        if !(items < wanted && self.fleet.is_full()) {
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
        let heard_any = self.fleet.ask_for_news(wait).await?;
        self.publish();
        if !heard_any {
            sleep(SILENCE_PAUSE).await;
        }
        Ok(())
    }

    /// Draws and unpacks one batch; `None` if the shards went away meanwhile.
    async fn prepare(&mut self, place: OwnedSemaphorePermit) -> Result<Option<Prepared>, String> {
        let wanted = self.settings.batch_size;
        self.fleet.control.sampled(wanted as u64);
        let mut masses = self.fleet.control.masses();
        let mut good: Vec<(usize, ItemKey, f64, u64)> = Vec::with_capacity(wanted);
        for _ in 0..REDRAWS_MAX {
            if masses.is_empty() {
                break;
            }
            let missing = wanted - good.len();
            let stratified = self.settings.stratified && missing == wanted;
            let points = masses.draw(missing, stratified, &mut self.rng);
            let started = Instant::now();
            let drawn = self.fleet.draw(&points, &mut masses).await?;
            self.metrics.spent("draw", started);
            self.publish();
            if good.iter().any(|(shard, ..)| masses.share(*shard) <= 0.0) {
                // A shard that gave items before is lost: their probability is not known any more.
                good.clear();
                self.assembler.as_mut().expect("given back").clear();
            }
            let started = Instant::now();
            let unpacked = self.unpack(drawn).await;
            self.metrics.spent("unpack", started);
            self.forget(&unpacked);
            good.extend(unpacked.good);
            self.assembler = Some(unpacked.assembler);
            if good.len() == wanted {
                return Ok(Some(self.finish(good, &masses, place)));
            }
        }
        warn!(got = good.len(), wanted, "a batch was given up");
        self.assembler.as_mut().expect("given back").clear();
        self.fleet.control.not_sampled(wanted as u64);
        sleep(SILENCE_PAUSE).await;
        Ok(None)
    }

    /// Decoding is work for a thread of its own.
    async fn unpack(&mut self, drawn: Vec<Drawn>) -> Unpacked {
        let assembler = self.assembler.take().expect("given back after each use");
        let work = move || unpack(assembler, &drawn);
        tokio::task::spawn_blocking(work).await.expect("unpacking does not panic")
    }

    fn forget(&self, unpacked: &Unpacked) {
        if !unpacked.bad.is_empty() {
            self.metrics.undecodable.inc_by(unpacked.bad.len() as u64);
            self.priorities.remove(&unpacked.bad);
        }
    }

    fn finish(
        &mut self,
        good: Vec<(usize, ItemKey, f64, u64)>,
        masses: &Masses,
        place: OwnedSemaphorePermit,
    ) -> Prepared {
        let exponent = self.importance.exponent(self.first_update + self.drawn);
        let weights = exponent.map(|exponent| {
            let probabilities: Vec<f64> =
                good.iter().map(|(shard, _, probability, _)| masses.share(*shard) * probability).collect();
            importance::weights(&probabilities, exponent)
        });
        let importance_weight =
            weights.as_ref().map_or(1.0, |weights| weights.iter().sum::<f64>() / weights.len() as f64);
        let assembler = self.assembler.as_mut().expect("given back");
        let started = Instant::now();
        let batch = assembler.finish(&self.input, self.device, weights.as_deref());
        self.metrics.spent("copy", started);
        let age_inserts = good.iter().map(|(.., age)| *age as f64).sum::<f64>() / good.len() as f64;
        let keys = good.into_iter().map(|(shard, key, ..)| (shard, key)).collect();
        let number = self.drawn;
        self.drawn += 1;
        Prepared { batch, keys, importance_weight, number, age_inserts, place }
    }

    fn publish(&self) {
        let (bytes, control) = (self.fleet.bytes(), &self.fleet.control);
        self.standing.send_modify(|standing| {
            standing.agent_steps = control.agent_steps();
            standing.items = control.items();
            standing.bytes = bytes.iter().sum();
            standing.marks = control.marks();
            standing.shards = bytes.len() as u32;
            standing.totals = control.totals();
            standing.ratio = control.ratio();
        });
    }
}

fn unpack(mut assembler: Assembler, drawn: &[Drawn]) -> Unpacked {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for Drawn { shard, batch } in drawn {
        for item in batch.items() {
            match assembler.add(item.lead(), item.frames(), item.steps()) {
                Ok(()) => {
                    item.reliability().into_iter().for_each(|share| assembler.rely(share));
                    good.push((*shard, item.key(), item.probability(), item.age_inserts()));
                }
                Err(error) => {
                    let LaneKey { actor, incarnation, lane } = item.lane();
                    warn!(actor, incarnation, lane, %error, "undecodable");
                    bad.push((*shard, item.key()));
                }
            }
        }
    }
    Unpacked { assembler, good, bad }
}
