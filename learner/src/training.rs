//! The training thread: batches in, weights and priorities out, and the run's record kept.
//!
//! It owns network, record and directory. It never waits for an actor or a shard: batches come from [`crate::intake`],
//! priorities and weights go to tasks of their own, reports are taken when they are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use proto::{Order, Player, Report, Weights};
use replay::WeightsVersion;
use run::RunDir;
use run::averages::{Averages, Counts, Figures, RecentScores, Speed};
use run::checkpoint::{self, Checkpoint};
use run::event::{Event, Outcome};
use run::record::{AGENT, Episode, Evaluation, Record};
use settings::Resolved;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::divergence;
use crate::evaluations::{Evaluated, Evaluations};
use crate::events::Events;
use crate::hub::{Hub, Role};
use crate::intake::{Phase, Prepared, Standing};
use crate::metrics::Metrics;
use crate::priorities::Priorities;
use crate::state::{self, State};
use crate::trainer::{Diverged, Learner};

/// How long the thread waits for a batch before it looks around.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time between two standings.
const STANDING_EVERY: Duration = Duration::from_millis(200);

/// How long members that are there get to hear that the run has ended.
const FAREWELL: Duration = Duration::from_secs(3);

/// The checkpoint of a run that has ended.
const FINAL: &str = "final";

const RECORD_FAILED: &str = "can't write the run's record (free some space, then go on with --resume)";

/// Everything the training thread owns.
pub struct Training {
    /// The run's directory, locked.
    pub directory: RunDir,
    /// Its record.
    pub record: Record,
    /// Its settings.
    pub resolved: Resolved,
    /// What learns.
    pub learner: Learner,
    /// What is shared with the service.
    pub hub: Arc<Hub>,
    /// What is measured.
    pub metrics: Arc<Metrics>,
    /// Batches.
    pub batches: mpsc::Receiver<Prepared>,
    /// How the replay stands.
    pub replay: watch::Receiver<Standing>,
    /// What intake shall do.
    pub phase: watch::Sender<Phase>,
    /// Intake itself, to be waited for at the end.
    pub intake: Option<JoinHandle<()>>,
    /// Where priorities go.
    pub priorities: Priorities,
    /// What members report.
    pub reports: mpsc::Receiver<Report>,
    /// What a launcher hears.
    pub events: Events,
    /// Counters of the checkpoint that the run went on from.
    pub state: State,
    /// Set when the process shall end.
    pub stop: Arc<AtomicBool>,
    /// How long to stay at the end for whoever is not there.
    pub farewell: Duration,
    /// The runtime of everything else.
    pub handle: Handle,
    /// What changes from turn to turn.
    pub course: Course,
}

/// What changes from turn to turn.
pub struct Course {
    evaluations: Evaluations,
    averages: Averages,
    recent: RecentScores,
    frames_speed: Speed,
    updates_speed: Speed,
    evaluation_score: Option<f64>,
    since: Instant,
    shown: Instant,
    looked: u64,
}

impl Course {
    /// The course of a learner that starts at `state`.
    pub fn new(incarnation: u32, state: &State) -> Self {
        let now = Instant::now();
        Self {
            evaluations: Evaluations::new(incarnation),
            averages: Averages::new(state.frames, now),
            recent: RecentScores::default(),
            frames_speed: Speed::new(state.frames, now),
            updates_speed: Speed::new(state.updates, now),
            evaluation_score: None,
            since: now,
            shown: now,
            looked: state.frames,
        }
    }
}

impl Training {
    /// Trains until the frame budget, or until told to stop.
    pub fn run(&mut self) -> Result<()> {
        let budget = self.resolved.settings.frames.0;
        self.metrics.frames.set(self.state.frames as i64);
        let recorded = run::record::evaluations(self.directory.path())?;
        self.metrics.scores.go_on(&recorded);
        if self.state.frames >= budget && self.directory.checkpoints().join(FINAL).is_dir() {
            return self.repeat_the_end();
        }
        checkpoint::remove(&self.directory.checkpoints(), FINAL).context("can't delete the former end")?;
        self.publish();
        if recorded.is_empty() {
            self.order_evaluation(self.resolved.settings.evaluate_episodes, false);
        }
        while self.state.frames < budget {
            if self.stop.load(Ordering::Relaxed) {
                return self.stopped();
            }
            self.turn()?;
        }
        self.finish()
    }

    /// One batch, or a moment without one, and whatever is due then.
    fn turn(&mut self) -> Result<()> {
        let asked = Instant::now();
        let batch = self.handle.block_on(timeout(LOOK_EVERY, self.batches.recv()));
        self.metrics.wait_seconds.inc_by(asked.elapsed().as_secs_f64());
        match batch {
            Ok(Some(prepared)) => self.learn(prepared)?,
            Ok(None) => {
                bail!(self.replay.borrow().failed.clone().unwrap_or_else(|| "sampling has ended".into()))
            }
            Err(_) => {}
        }
        self.look_around()
    }

    fn learn(&mut self, prepared: Prepared) -> Result<()> {
        let Prepared { batch, keys, importance_weight, number, age_inserts, place } = prepared;
        // Its place is free as soon as the batch is taken: the next one is prepared meanwhile.
        drop(place);
        let progress = self.state.frames as f64 / self.resolved.settings.frames.0 as f64;
        let started = Instant::now();
        let update = self.learner.update(&batch, progress).inspect_err(|diverged| self.remember(diverged))?;
        self.metrics.update_seconds.observe(started.elapsed().as_secs_f64());
        let priorities = keys.into_iter().zip(&update.priorities);
        self.priorities.update(priorities.map(|((shard, key), priority)| (shard, key, *priority)).collect());

        self.metrics.updates.inc();
        self.metrics.prefetched.set(self.batches.len() as i64);
        self.metrics.prefetch_lag.set((self.drawn_by_now().saturating_sub(number + 1)) as f64);
        self.metrics.sample_age.set(age_inserts);
        self.course.averages.add(&Figures {
            loss: update.loss,
            td_error: update.td_error,
            q: update.q,
            entropy: update.entropy,
            gradient_norm: update.gradient_norm,
            importance_weight,
        });
        if self.learner.updates().is_multiple_of(self.resolved.settings.publish_every_updates.0) {
            self.publish();
        }
        Ok(())
    }

    /// This learner ends with it, so that only its successor can show it.
    fn remember(&self, diverged: &Diverged) {
        if let Err(error) = divergence::keep(self.directory.path(), diverged, SystemTime::now()) {
            warn!("can't remember that training diverged: {error:#}");
        }
    }

    /// Batches drawn in this life: learned from, or waiting.
    fn drawn_by_now(&self) -> u64 {
        self.replay.borrow().totals.0 / self.resolved.settings.batch_size as u64
    }

    fn look_around(&mut self) -> Result<()> {
        self.take_standing();
        self.take_reports()?;
        self.keep_averages()?;
        self.show();
        let settings = &self.resolved.settings;
        let (before, now) = (self.course.looked, self.state.frames);
        let passed = |every: u64| now / every > before / every;
        let evaluate = passed(settings.evaluate_every_frames.0) && now < settings.frames.0;
        let checkpoint = passed(settings.checkpoint_every_frames.0) && now < settings.frames.0;
        self.course.looked = now;
        if evaluate {
            self.order_evaluation(settings.evaluate_episodes, false);
        }
        if checkpoint {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn take_standing(&mut self) {
        let replay = self.replay.borrow();
        if replay.marks.is_empty() {
            return;
        }
        self.state.agent_steps = replay.agent_steps;
        self.state.frames = replay.agent_steps * u64::from(self.resolved.settings.frame_skip);
        self.state.marks.clone_from(&replay.marks);
        self.hub.agent_steps.send_replace(replay.agent_steps);
        self.hub.held.send_replace((replay.items, replay.bytes));
        let metrics = &self.metrics;
        metrics.frames.set(self.state.frames as i64);
        metrics.shards.set(replay.shards.into());
        metrics.replay_items.set(replay.items as i64);
        let (samples, inserts) = replay.totals;
        metrics.samples.inc_by(samples.saturating_sub(metrics.samples.get()));
        metrics.inserts.inc_by(inserts.saturating_sub(metrics.inserts.get()));
        if let Some(ratio) = replay.ratio {
            metrics.samples_per_insert.set(ratio);
        }
        for role in [Role::Actor, Role::Evaluator] {
            metrics.members.with_label_values(&[role.name()]).set(self.hub.present(role).into());
            let joins = metrics.joins.with_label_values(&[role.name()]);
            joins.inc_by(self.hub.joins(role).saturating_sub(joins.get()));
        }
    }

    fn take_reports(&mut self) -> Result<()> {
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::Episodes(episodes) => self.keep_episodes(&episodes)?,
                Report::Evaluation { number, players } => {
                    if let Some(evaluated) = self.reported(number, players) {
                        self.keep_evaluation(&evaluated)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn keep_episodes(&mut self, episodes: &[proto::Episode]) -> Result<()> {
        for episode in episodes {
            self.metrics.episodes.inc();
            self.course.recent.add(episode.score);
            let proto::Episode { score, steps, truncated } = *episode;
            let episode = Episode { frames: self.state.frames, score, steps, truncated };
            self.record.episode(&episode).context(RECORD_FAILED)?;
        }
        if let Some(score) = self.course.recent.mean() {
            self.metrics.training_score.set(score);
        }
        Ok(())
    }

    fn reported(&mut self, number: u64, players: Vec<Player>) -> Option<Evaluated> {
        let policy = self.resolved.settings.evaluation_policy;
        let evaluated = self.course.evaluations.reported(number, players, policy);
        if evaluated.is_none() {
            info!(number, "an evaluation came that nobody waits for");
        }
        // Whoever joins now need not play it again.
        self.hub.evaluation.send_if_modified(|waiting| {
            let waits = waiting.as_ref().and_then(|weights| weights.order);
            if waits.is_some_and(|order| order.number == number) {
                *waiting = None;
            }
            false
        });
        evaluated
    }

    fn keep_evaluation(&mut self, evaluated: &Evaluated) -> Result<()> {
        for evaluation in &evaluated.players {
            self.record.evaluation(evaluation).context(RECORD_FAILED)?;
            self.events.send(&Event::Evaluation(evaluation.clone()));
        }
        let agent = &evaluated.players[0];
        self.metrics.scores.add(agent);
        self.course.evaluation_score = Some(agent.mean);
        info!(frames = agent.frames, mean = agent.mean, standard_error = agent.standard_error, "evaluated");
        if agent.frames > 0 && self.state.best.is_none_or(|best| agent.mean > best) {
            self.state.best = Some(agent.mean);
            let state = State { frames: agent.frames, updates: agent.updates, ..self.state.clone() };
            checkpoint::write(&self.directory.checkpoints(), "best", |writer| {
                state::save_weights(&evaluated.weights, &state, writer)
            })?;
        }
        Ok(())
    }

    fn keep_averages(&mut self) -> Result<()> {
        let replay = self.replay.borrow();
        let counts = Counts {
            frames: self.state.frames,
            updates: self.learner.updates(),
            replay_items: replay.items,
            replay_bytes: replay.bytes,
        };
        drop(replay);
        let Some(training) = self.course.averages.take(counts, Instant::now()) else { return Ok(()) };
        let metrics = &self.metrics;
        metrics.loss.set(training.loss);
        metrics.td_error.set(training.td_error);
        metrics.q.set(training.q);
        metrics.entropy.set(training.entropy);
        metrics.gradient_norm.set(training.gradient_norm);
        metrics.importance_weight.set(training.importance_weight);
        self.record.training(&training).context(RECORD_FAILED)
    }

    fn show(&mut self) {
        if self.course.shown.elapsed() < STANDING_EVERY {
            return;
        }
        let now = Instant::now();
        self.course.shown = now;
        let replay = self.replay.borrow().clone();
        let standing = run::event::Standing {
            frames: self.state.frames,
            updates: self.learner.updates(),
            frames_per_second: self.course.frames_speed.at(self.state.frames, now),
            updates_per_second: self.course.updates_speed.at(self.learner.updates(), now),
            loss: self.course.averages.loss(),
            training_score: self.course.recent.mean(),
            evaluation_score: self.course.evaluation_score,
            replay_items: replay.items,
            replay_bytes: replay.bytes,
            actors: self.hub.present(Role::Actor),
            waiting: replay.waiting,
        };
        self.events.send(&Event::Standing(standing));
    }

    /// The weights of now, for whoever acts.
    fn publish(&mut self) {
        let started = Instant::now();
        let weights = Arc::new(self.weights());
        self.metrics.weights_version.set(self.learner.updates() as i64);
        self.metrics.weights_bytes.set(weights.safetensors.len() as i64);
        self.hub.weights.send_replace(Some(weights));
        self.metrics.spent("publish", started);
    }

    fn weights(&self) -> Weights {
        let version =
            WeightsVersion { incarnation: self.hub.charter.incarnation, number: self.learner.updates() };
        let safetensors = self.learner.online().parameters().to_safetensors().into();
        Weights { version, safetensors, order: None }
    }

    fn order_evaluation(&mut self, episodes: u32, baselines: bool) -> u64 {
        let order = Order {
            number: 0,
            frames: self.state.frames,
            updates: self.learner.updates(),
            episodes,
            baselines,
        };
        let weights = self.course.evaluations.order(self.weights(), order);
        let number = weights.order.map_or(0, |order| order.number);
        self.hub.evaluation.send_replace(Some(weights));
        number
    }

    fn checkpoint(&mut self) -> Result<()> {
        let started = Instant::now();
        self.record.cut().context(RECORD_FAILED)?;
        self.state.seconds += self.course.since.elapsed().as_secs_f64();
        self.course.since = Instant::now();
        self.state.updates = self.learner.updates();
        let folder = self.directory.checkpoints();
        checkpoint::write(&folder, &self.state.frames.to_string(), |writer| {
            state::save(&self.learner, &self.state, writer)
        })?;
        checkpoint::prune(&folder, self.resolved.settings.checkpoints_kept as usize)
            .context("can't delete old checkpoints")?;
        self.metrics.checkpoints.inc();
        self.metrics.checkpoint_seconds.observe(started.elapsed().as_secs_f64());
        Ok(())
    }

    fn stopped(&mut self) -> Result<()> {
        info!("stopping: writing a checkpoint");
        self.take_reports()?;
        self.checkpoint()?;
        self.events.send(&Event::Stopped { frames: self.state.frames });
        Ok(())
    }

    /// The end: the last checkpoint first, so that whoever stops this can have the rest again by resuming.
    fn finish(&mut self) -> Result<()> {
        self.phase.send_replace(Phase::Over);
        self.publish();
        self.checkpoint()?;
        let settings = self.resolved.settings.clone();
        let number = self.order_evaluation(settings.evaluate_final_episodes, settings.baselines);
        let Some(evaluations) = self.wait_for_evaluation(number)? else { return self.stopped() };
        for evaluation in &evaluations {
            self.record.evaluation(evaluation).context(RECORD_FAILED)?;
        }
        let folder = self.directory.checkpoints();
        let newest = Checkpoint::newest(&folder)?;
        checkpoint::write(&folder, FINAL, |writer| {
            state::FILES_OF_AN_AGENT.iter().try_for_each(|file| writer.link(&newest, file))
        })?;
        let outcome = Outcome {
            frames: self.state.frames,
            updates: self.learner.updates(),
            seconds: self.state.seconds,
            evaluations,
        };
        info!(frames = outcome.frames, updates = outcome.updates, "finished");
        self.events.send(&Event::Finished(outcome));
        self.say_farewell(self.farewell);
        Ok(())
    }

    /// A run that had ended: whoever comes learns it.
    fn repeat_the_end(&mut self) -> Result<()> {
        let recorded = run::record::evaluations(self.directory.path())?;
        let last = recorded.iter().rposition(|evaluation| evaluation.player == AGENT).unwrap_or_default();
        let outcome = Outcome {
            frames: self.state.frames,
            updates: self.learner.updates(),
            seconds: self.state.seconds,
            evaluations: recorded[last..].to_vec(),
        };
        info!(frames = outcome.frames, "the run has ended already: give it more frames to go on");
        self.events.send(&Event::Finished(outcome));
        // Nobody has joined yet: whoever is looking for the learner gets the time to find it.
        self.say_farewell(self.farewell.max(FAREWELL));
        Ok(())
    }

    fn wait_for_evaluation(&mut self, number: u64) -> Result<Option<Vec<Evaluation>>> {
        self.metrics.waits_for(Some("evaluation"));
        let mut told = None;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let report = self.handle.block_on(timeout(LOOK_EVERY, self.reports.recv()));
            match report {
                Ok(Some(Report::Episodes(episodes))) => self.keep_episodes(&episodes)?,
                Ok(Some(Report::Evaluation { number: played, players })) => {
                    let last = played == number;
                    let Some(evaluated) = self.reported(played, players) else { continue };
                    if last {
                        self.metrics.waits_for(None);
                        self.metrics.scores.add(&evaluated.players[0]);
                        return Ok(Some(evaluated.players));
                    }
                    self.keep_evaluation(&evaluated)?;
                }
                _ => {}
            }
            let text = match self.hub.present(Role::Evaluator) {
                0 => "an evaluator: start one with quiver-actor --evaluate".to_owned(),
                _ => format!(
                    "the final evaluation over {} games",
                    self.resolved.settings.evaluate_final_episodes
                ),
            };
            if told.as_ref() != Some(&text) {
                warn!(for_what = text, "waiting");
                told = Some(text.clone());
            }
            self.show_waiting(text);
        }
    }

    fn show_waiting(&mut self, text: String) {
        if self.course.shown.elapsed() >= STANDING_EVERY {
            self.course.shown = Instant::now();
            let standing = run::event::Standing {
                frames: self.state.frames,
                updates: self.learner.updates(),
                evaluation_score: self.course.evaluation_score,
                training_score: self.course.recent.mean(),
                replay_items: self.replay.borrow().items,
                replay_bytes: self.replay.borrow().bytes,
                actors: self.hub.present(Role::Actor),
                waiting: Some(text),
                ..run::event::Standing::default()
            };
            self.events.send(&Event::Standing(standing));
        }
    }

    /// Members and shards hear that the run has ended, and leave by themselves. Whoever is not there has at least so long
    /// to come; being asked to stop ends that.
    fn say_farewell(&mut self, least: Duration) {
        self.phase.send_replace(Phase::Finished);
        self.hub.finished.send_replace(true);
        let (at_most, at_least) = (Instant::now() + FAREWELL.max(least), Instant::now() + least);
        if let Some(intake) = self.intake.take() {
            let _ = self.handle.block_on(timeout(FAREWELL, intake));
        }
        let left = |hub: &Hub| hub.present(Role::Actor) + hub.present(Role::Evaluator);
        let waits = |now| now < at_least || (now < at_most && left(&self.hub) > 0);
        while waits(Instant::now()) && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
