//! The training thread of a cluster: trains on batches, publishes weights, and writes the run's journal.
//!
//! It owns the trainer and the journal. It never blocks on an actor or a shard: batches are prefetched by
//! [`crate::remote`], tasks of their own send priorities and weights, and reports are read from a queue.
#![allow(clippy::disallowed_methods, reason = "the learner's process measures its work")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use agents::TensorBatch;
use anyhow::Result;
use coordinator::reports::Reports;
use coordinator::{Hub, MemberRole};
use prometheus::Histogram;
use proto::{EpisodeReport, EvaluationRequest, PlayerScores, Weights};
use replay::{ReplayStatus, WeightsVersion};
use run::event::Event;
use run::record::{AGENT, Episode, Evaluation};
use settings::Resolved;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::{debug, error, info, warn};

use crate::checkpoint;
use crate::divergence;
use crate::episode_budget::EpisodeBudget;
use crate::evaluations::{Evaluated, Evaluations};
use crate::events::Events;
use crate::journal::Journal;
use crate::learner::{Diverged, Learner};
use crate::metrics::Metrics;
use crate::patience::until_written;
use crate::publishing::Publisher;
use crate::remote::RemoteReplay;
use crate::replay::Replay;
use crate::trainer::{Trainer, UpdateObserver};

/// How long the thread waits for a report of the final evaluation before it checks whether to stop.
const STOP_POLL_EVERY: Duration = Duration::from_millis(100);

/// Time between two progress events.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// How long connected members and shards get to learn that the run has finished.
const FINISH_WAIT: Duration = Duration::from_secs(3);

/// The training thread's state.
pub struct TrainingThread {
    /// Trains on the remote shards.
    pub trainer: Trainer<RemoteReplay>,
    /// Writes the run's record and checkpoints.
    pub journal: Journal,
    pub members: RunMembers,
    pub process: ProcessHandles,
    pub resolved: Resolved,
    publisher: Publisher,
    /// When the last progress event was sent.
    shown: Instant,
    /// Frames at the last check for a due evaluation or checkpoint.
    frames_checked: u64,
    episode_budget: EpisodeBudget,
}

/// The run's members, their reports, and the evaluations requested of them.
pub struct RunMembers {
    /// State shared with the gRPC service.
    pub hub: Arc<Hub>,
    pub reports: Reports,
    pub evaluations: Evaluations,
}

impl RunMembers {
    /// Logs evaluations that will probably never be reported: each is a score that the run's record lacks.
    fn log_superseded(&mut self) {
        for EvaluationRequest { number, frames, updates, .. } in self.evaluations.take_superseded() {
            warn!(
                evaluation = number,
                frames, updates, "evaluation superseded by a newer one before it was completed"
            );
        }
    }
}

/// What the training thread uses of its process.
pub struct ProcessHandles {
    pub metrics: Arc<Metrics>,
    /// Events for the launcher.
    pub events: Events,
    /// Set when the process must stop.
    pub stop: Arc<AtomicBool>,
    /// How long to stay after the run has finished, for members that are not connected.
    pub linger: Duration,
    /// The runtime of all other tasks.
    pub handle: Handle,
}

impl ProcessHandles {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Measures the duration of gradient steps.
struct Timer<'a> {
    started: Instant,
    seconds: &'a Histogram,
}

impl UpdateObserver for Timer<'_> {
    fn before(&mut self, _learner: &Learner, _batch: &TensorBatch) {
        self.started = Instant::now();
    }

    fn after(&mut self, _learner: &Learner, _batch: &TensorBatch) {
        self.seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

impl TrainingThread {
    pub fn new(
        trainer: Trainer<RemoteReplay>,
        journal: Journal,
        members: RunMembers,
        process: ProcessHandles,
        resolved: Resolved,
    ) -> Self {
        let (frames_checked, shown) = (journal.state.frames, Instant::now());
        let episode_budget = EpisodeBudget::new(journal.state.agent_steps);
        let publisher = Publisher::new(&resolved.settings);
        Self {
            trainer,
            journal,
            members,
            process,
            resolved,
            publisher,
            shown,
            frames_checked,
            episode_budget,
        }
    }

    /// Trains until the frame budget is reached or the process must stop.
    pub fn run(&mut self) -> Result<()> {
        let budget = self.resolved.settings.frames.0;
        self.process.metrics.frames.set(self.journal.state.frames as i64);
        let recorded = self.journal.evaluations()?;
        self.process.metrics.scores.resume(&recorded, self.journal.state.best);
        if self.journal.state.frames >= budget && self.journal.has_ended() {
            return self.announce_finished_run(&recorded);
        }
        self.journal.remove_final_checkpoint()?;
        self.publish();
        // The first evaluation is of the untrained network.
        if recorded.is_empty() {
            self.request_evaluation(self.resolved.settings.evaluate_episodes, false);
        }
        while self.journal.state.frames < budget {
            if self.process.is_stopped() {
                return self.stopped();
            }
            self.learn()?;
            if self.publisher.is_due(self.trainer.learner.updates(), Instant::now()) {
                self.publish();
            }
            self.do_periodic_work()?;
        }
        self.finish()
    }

    /// Trains on one batch, or waits briefly for one.
    fn learn(&mut self) -> Result<()> {
        let progress = self.journal.state.frames as f64 / self.resolved.settings.frames.0 as f64;
        let metrics = &self.process.metrics;
        let mut timer = Timer { started: Instant::now(), seconds: &metrics.update_seconds };
        let step = self.trainer.step(progress, &mut timer);
        let Some(update) = step.inspect_err(|error| self.save_divergence(error))? else { return Ok(()) };
        metrics.updates.inc();
        self.journal.update(&update);
        Ok(())
    }

    /// The learner exits after a divergence, so only the next start can export it as a metric.
    fn save_divergence(&self, error: &anyhow::Error) {
        let Some(diverged) = error.downcast_ref::<Diverged>() else { return };
        let Diverged { update, loss, gradient_norm, quantity } = diverged;
        error!(update, loss, gradient_norm, quantity, "training diverged");
        if let Err(error) = divergence::save(self.journal.path(), diverged, SystemTime::now()) {
            warn!(%error, "divergence file not written");
        }
    }

    /// Everything that is not a gradient step: counts, reports, progress, evaluations and checkpoints.
    fn do_periodic_work(&mut self) -> Result<()> {
        let replay = self.trainer.replay.status();
        self.update_counts(&replay);
        self.process_reports()?;
        let recorded = |thread: &mut Self| thread.journal.training(thread.trainer.learner.updates(), &replay);
        if let Some(training) = self.record(recorded)? {
            self.process.metrics.show_training(&training);
        }
        self.show_progress(replay);
        let settings = &self.resolved.settings;
        let (before, now) = (self.frames_checked, self.journal.state.frames);
        // At the budget, `finish` evaluates and writes the last checkpoint.
        let passed = |every: u64| now / every > before / every && now < settings.frames.0;
        let evaluate = passed(settings.evaluate_every_frames.0);
        let checkpoint = passed(settings.checkpoint_every_frames.0);
        self.frames_checked = now;
        if evaluate {
            self.request_evaluation(settings.evaluate_episodes, false);
        }
        if checkpoint {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Writes to the run directory. Training is paused while that is full.
    fn record<T>(&mut self, write: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let mut paused = false;
        let written = until_written(self, write, |thread, error, wait| {
            paused = true;
            thread.wait_for_space(error, wait)
        });
        if paused {
            self.process.metrics.set_blocked_on_disk(false);
            if written.is_ok() {
                info!("run directory written again, training resumed");
            }
        }
        written
    }

    /// Waits so long, and reports what for. False if the process must stop.
    fn wait_for_space(&mut self, error: &anyhow::Error, wait: Duration) -> bool {
        let (path, retry_seconds) = (self.journal.path().display().to_string(), wait.as_secs());
        warn!(
            error = format!("{error:#}"),
            run_dir = path,
            retry_seconds,
            "training paused, free some disk space"
        );
        self.process.metrics.set_blocked_on_disk(true);
        let (until, text) = (Instant::now() + wait, format!("space in {path}: {error:#}"));
        while Instant::now() < until && !self.process.is_stopped() {
            let replay = self.trainer.replay.status();
            self.show_progress(ReplayStatus { blocked_on: Some(text.clone()), ..replay });
            std::thread::sleep(STOP_POLL_EVERY);
        }
        !self.process.is_stopped()
    }

    /// Updates frames and agent steps from the shards' counts, once a shard has answered.
    fn update_counts(&mut self, replay: &ReplayStatus) {
        let counted = self.trainer.replay.counted();
        if counted.shard_counts.is_empty() {
            return;
        }
        let state = &mut self.journal.state;
        state.agent_steps = counted.agent_steps;
        state.frames = counted.agent_steps * u64::from(self.resolved.settings.frame_skip);
        state.shard_counts.clone_from(&counted.shard_counts);
        let metrics = &self.process.metrics;
        metrics.frames.set(state.frames as i64);
        metrics.show_replay(replay);
        for role in [MemberRole::Actor, MemberRole::Evaluator] {
            metrics.members.with_label_values(&[role.name()]).set(self.members.hub.present(role).into());
            let joins = metrics.joins.with_label_values(&[role.name()]);
            joins.inc_by(self.members.hub.joins(role).saturating_sub(joins.get()));
        }
    }

    fn process_reports(&mut self) -> Result<()> {
        self.record_episodes()?;
        for (number, players) in self.members.reports.take_evaluations() {
            if let Some(evaluated) = self.complete_evaluation(number, players) {
                self.record_evaluation(&evaluated)?;
            }
        }
        Ok(())
    }

    fn record_episodes(&mut self) -> Result<()> {
        let reported = self.members.reports.take_episodes();
        if reported.is_empty() {
            return Ok(());
        }
        let (metrics, state) = (&self.process.metrics, &self.journal.state);
        let admitted = self.episode_budget.admit(reported.len(), state.agent_steps);
        let dropped = (reported.len() - admitted) as u64;
        if dropped > 0 && metrics.episodes_dropped.get() == 0 {
            warn!(
                "more episodes reported than agent steps counted, further ones are dropped and only counted"
            );
        }
        metrics.episodes_dropped.inc_by(dropped);
        metrics.episodes.inc_by(admitted as u64);
        let frames = state.frames;
        let episode =
            |&EpisodeReport { score, steps, truncated }| Episode { frames, score, steps, truncated };
        let episodes: Vec<Episode> = reported[..admitted].iter().map(episode).collect();
        self.record(|thread| thread.journal.episodes(&episodes))?;
        self.trainer.learner.end_episodes(admitted as u64);
        if let Some(score) = self.journal.training_score() {
            self.process.metrics.training_score.set(score);
        }
        Ok(())
    }

    /// Matches a report to its request, and withdraws the request so that no other evaluator plays it.
    fn complete_evaluation(&mut self, number: u64, players: Vec<PlayerScores>) -> Option<Evaluated> {
        let policy = self.resolved.settings.evaluation_policy;
        let evaluated = self.members.evaluations.complete(number, players, policy);
        if evaluated.is_none() {
            // Not above debug: a member could fill the log.
            debug!(evaluation = number, "evaluation report ignored: unknown, duplicate or of other games");
        }
        self.members.log_superseded();
        if evaluated.is_some() {
            self.members.hub.withdraw_evaluation(number);
        }
        evaluated
    }

    fn record_evaluation(&mut self, evaluated: &Evaluated) -> Result<()> {
        for evaluation in &evaluated.players {
            self.record(|thread| thread.journal.record_evaluation(evaluation))?;
            self.record(|thread| {
                thread.journal.save_best(evaluation, |state, writer| {
                    checkpoint::save_weights(&evaluated.weights.safetensors, state, writer)
                })
            })?;
            self.process.events.send(&Event::Evaluation(evaluation.clone()));
        }
        let agent = &evaluated.players[0];
        self.process.metrics.scores.add(agent, self.journal.state.best);
        let Evaluation { frames, updates, mean, standard_error, .. } = agent;
        let (games, best) = (agent.scores.len(), self.journal.state.best);
        info!(frames, updates, games, mean, standard_error, best, "evaluation recorded");
        Ok(())
    }

    /// Sends a progress event if one is due.
    fn show_progress(&mut self, replay: ReplayStatus) {
        if self.shown.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.shown = Instant::now();
        let actors = self.members.hub.present(MemberRole::Actor);
        let progress = self.journal.progress(self.trainer.learner.updates(), actors, replay);
        self.process.events.send(&Event::Progress(progress));
    }

    /// Publishes the current weights to all actors.
    fn publish(&mut self) {
        let started = Instant::now();
        let weights = self.weights();
        let metrics = &self.process.metrics;
        metrics.weights_version.set(weights.version.number as i64);
        metrics.weights_bytes.set(weights.safetensors.len() as i64);
        metrics.publications.inc();
        self.publisher.published(weights.version.number, started);
        self.members.hub.publish(Arc::new(weights));
        metrics.add_stage_time("publish", started);
    }

    fn weights(&mut self) -> Weights {
        let (learner, incarnation) = (&self.trainer.learner, self.members.hub.run_info().incarnation);
        let version = WeightsVersion { incarnation, number: learner.updates() };
        self.publisher.weights(version, learner.online().parameters())
    }

    fn request_evaluation(&mut self, episodes: u32, baselines: bool) -> u64 {
        let (frames, updates) = (self.journal.state.frames, self.trainer.learner.updates());
        // The request gets its number below.
        let request = EvaluationRequest { number: 0, frames, updates, episodes, baselines };
        let weights = self.weights();
        let weights = self.members.evaluations.request(weights, request);
        let number = weights.evaluation.map_or(0, |request| request.number);
        self.members.hub.request_evaluation(weights);
        self.members.log_superseded();
        number
    }

    fn checkpoint(&mut self) -> Result<()> {
        let (started, kept) = (Instant::now(), self.resolved.settings.checkpoints_kept);
        self.record(|thread| {
            let learner = &thread.trainer.learner;
            let save = |state: &_, writer: &mut _| checkpoint::save(learner, state, writer);
            thread.journal.checkpoint(learner.updates(), kept, save)
        })?;
        self.process.metrics.checkpoints.inc();
        let elapsed_seconds = started.elapsed().as_secs_f64();
        self.process.metrics.checkpoint_seconds.observe(elapsed_seconds);
        let (frames, updates) = (self.journal.state.frames, self.journal.state.updates);
        info!(frames, updates, elapsed_seconds, "checkpoint written");
        Ok(())
    }

    fn stopped(&mut self) -> Result<()> {
        info!(frames = self.journal.state.frames, "stop requested, writing a checkpoint");
        self.process_reports()?;
        self.checkpoint()?;
        self.process.events.send(&Event::Stopped { frames: self.journal.state.frames });
        Ok(())
    }

    /// Finishes the run. The last checkpoint comes first: a run stopped after it completes the rest when resumed.
    fn finish(&mut self) -> Result<()> {
        self.trainer.replay.stop_sampling();
        self.publish();
        self.checkpoint()?;
        let settings = &self.resolved.settings;
        let number = self.request_evaluation(settings.evaluate_final_episodes, settings.baselines);
        let Some(evaluations) = self.wait_for_evaluation(number)? else { return self.stopped() };
        for evaluation in &evaluations {
            self.record(|thread| thread.journal.record_evaluation(evaluation))?;
        }
        self.record(|thread| thread.journal.save_final())?;
        let outcome = self.journal.outcome(evaluations);
        info!(frames = outcome.frames, updates = outcome.updates, "run finished");
        self.process.events.send(&Event::Finished(outcome));
        self.notify_finished(self.process.linger);
        Ok(())
    }

    /// Handles a run that had finished before this start: members that connect receive the end of the run.
    fn announce_finished_run(&mut self, recorded: &[Evaluation]) -> Result<()> {
        let last = recorded.iter().rposition(|evaluation| evaluation.player == AGENT).unwrap_or_default();
        let outcome = self.journal.outcome(recorded[last..].to_vec());
        info!(frames = outcome.frames, "run already finished; raise frames to continue it");
        self.process.events.send(&Event::Finished(outcome));
        // No member has joined this start yet: give those that are reconnecting time to do so.
        self.notify_finished(self.process.linger.max(FINISH_WAIT));
        Ok(())
    }

    /// Waits for the final evaluation. `None` if the process must stop before it is reported.
    fn wait_for_evaluation(&mut self, number: u64) -> Result<Option<Vec<Evaluation>>> {
        self.process.metrics.set_blocked_on(Some("evaluation"));
        let mut logged = None;
        while !self.process.is_stopped() {
            self.record_episodes()?;
            let reports = &mut self.members.reports;
            let next = async { timeout(STOP_POLL_EVERY, reports.next_evaluation()).await };
            if let Ok(Some((played, players))) = self.process.handle.block_on(next) {
                let Some(evaluated) = self.complete_evaluation(played, players) else { continue };
                if played == number {
                    self.process.metrics.set_blocked_on(None);
                    self.process.metrics.scores.add(&evaluated.players[0], self.journal.state.best);
                    return Ok(Some(evaluated.players));
                }
                self.record_evaluation(&evaluated)?;
            }
            let games = self.resolved.settings.evaluate_final_episodes;
            let text = match self.members.hub.present(MemberRole::Evaluator) {
                0 => "an evaluator: start one with quiver-actor --evaluate".to_owned(),
                _ => format!("the final evaluation over {games} games"),
            };
            if logged.as_ref() != Some(&text) {
                // Without an evaluator the run can't finish.
                match self.members.hub.present(MemberRole::Evaluator) {
                    0 => warn!(blocked_on = text, "final evaluation pending"),
                    _ => info!(blocked_on = text, "final evaluation pending"),
                }
                logged = Some(text.clone());
            }
            self.show_progress(ReplayStatus { blocked_on: Some(text), ..self.trainer.replay.status() });
        }
        Ok(None)
    }

    /// Tells members and shards that the run has finished. Connected members exit by themselves; members that are not
    /// connected get at least `least` to reconnect. A request to stop ends the wait.
    fn notify_finished(&mut self, least: Duration) {
        self.members.hub.finish();
        let (at_most, at_least) = (Instant::now() + FINISH_WAIT.max(least), Instant::now() + least);
        self.trainer.replay.finish(FINISH_WAIT);
        let connected = |hub: &Hub| hub.present(MemberRole::Actor) + hub.present(MemberRole::Evaluator);
        let must_wait = |now| now < at_least || (now < at_most && connected(&self.members.hub) > 0);
        while must_wait(Instant::now()) && !self.process.is_stopped() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
