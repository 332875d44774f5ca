//! The training thread of a cluster: batches in, weights and priorities out, and the run's journal kept.
//!
//! It owns trainer and journal. It never waits for an actor or a shard: batches come from [`crate::remote`], priorities
//! and weights go to tasks of their own, reports are taken when they are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use agents::Batch;
use anyhow::Result;
use coordinator::{Hub, Role};
use prometheus::Histogram;
use proto::{Order, Player, Report, Weights};
use replay::{ReplayStatus, WeightsVersion};
use run::event::Event;
use run::record::{AGENT, Evaluation};
use settings::Resolved;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::checkpoint;
use crate::divergence;
use crate::evaluations::{Evaluated, Evaluations};
use crate::events::Events;
use crate::journal::Journal;
use crate::learner::{Diverged, Learner};
use crate::metrics::Metrics;
use crate::remote::RemoteReplay;
use crate::replay::Replay;
use crate::trainer::{Trainer, Watch};

/// How long the thread waits for a report of the final evaluation before it looks around.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time between two progress events.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// How long members that are connected get to hear that the run has ended.
const FAREWELL: Duration = Duration::from_secs(3);

/// A run on a cluster.
pub struct Cluster {
    /// What learns, on the remote shards.
    pub trainer: Trainer<RemoteReplay>,
    /// What is written down.
    pub journal: Journal,
    /// Actors and evaluators.
    pub crew: Crew,
    /// This process.
    pub process: Process,
    /// The run's settings.
    pub resolved: Resolved,
    shown: Instant,
    /// Frames when evaluations and checkpoints were last looked for.
    looked: u64,
}

/// Members of the run, what they report and what was asked of them.
pub struct Crew {
    /// What is shared with the gRPC service.
    pub hub: Arc<Hub>,
    /// What members report.
    pub reports: mpsc::Receiver<Report>,
    /// Evaluations that were ordered.
    pub evaluations: Evaluations,
}

/// What the training thread needs of its process.
pub struct Process {
    /// What is measured.
    pub metrics: Arc<Metrics>,
    /// What a launcher hears.
    pub events: Events,
    /// Set when the process shall end.
    pub stop: Arc<AtomicBool>,
    /// How long to stay at the end for members that are not connected.
    pub farewell: Duration,
    /// The runtime of everything else.
    pub handle: Handle,
}

impl Process {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Measures how long gradient steps take.
struct Timer<'a> {
    started: Instant,
    seconds: &'a Histogram,
}

impl Watch for Timer<'_> {
    fn before(&mut self, _learner: &Learner, _batch: &Batch) {
        self.started = Instant::now();
    }

    fn after(&mut self, _learner: &Learner, _batch: &Batch) {
        self.seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

impl Cluster {
    /// A run of which nothing has happened yet in this process.
    pub fn new(
        trainer: Trainer<RemoteReplay>,
        journal: Journal,
        crew: Crew,
        process: Process,
        resolved: Resolved,
    ) -> Self {
        let looked = journal.state.frames;
        Self { trainer, journal, crew, process, resolved, shown: Instant::now(), looked }
    }

    /// Trains until the frame budget, or until told to stop.
    pub fn run(&mut self) -> Result<()> {
        let budget = self.resolved.settings.frames.0;
        self.process.metrics.frames.set(self.journal.state.frames as i64);
        let recorded = run::record::evaluations(self.journal.path())?;
        self.process.metrics.scores.go_on(&recorded);
        if self.journal.state.frames >= budget && self.journal.has_ended() {
            return self.repeat_the_end(&recorded);
        }
        self.journal.forget_the_end()?;
        self.publish();
        if recorded.is_empty() {
            self.order_evaluation(self.resolved.settings.evaluate_episodes, false);
        }
        while self.journal.state.frames < budget {
            if self.process.is_stopped() {
                return self.stopped();
            }
            self.learn()?;
            self.look_around()?;
        }
        self.finish()
    }

    /// Learns from one batch, or waits a moment for one.
    fn learn(&mut self) -> Result<()> {
        let progress = self.journal.state.frames as f64 / self.resolved.settings.frames.0 as f64;
        let metrics = &self.process.metrics;
        let mut timer = Timer { started: Instant::now(), seconds: &metrics.update_seconds };
        let step = self.trainer.step(progress, &mut timer);
        let Some(figures) = step.inspect_err(|error| self.keep_divergence(error))? else { return Ok(()) };
        metrics.updates.inc();
        self.journal.update(&figures);
        if self.trainer.learner.updates().is_multiple_of(self.resolved.settings.publish_every_updates.0) {
            self.publish();
        }
        Ok(())
    }

    /// This learner ends with a divergence, so only its successor can show it.
    fn keep_divergence(&self, error: &anyhow::Error) {
        let Some(diverged) = error.downcast_ref::<Diverged>() else { return };
        if let Err(error) = divergence::keep(self.journal.path(), diverged, SystemTime::now()) {
            warn!("can't remember that training diverged: {error:#}");
        }
    }

    fn look_around(&mut self) -> Result<()> {
        let replay = self.trainer.replay.status();
        self.take_counts(&replay);
        self.take_reports()?;
        if let Some(training) = self.journal.training(self.trainer.learner.updates(), &replay)? {
            self.process.metrics.show_training(&training);
        }
        self.show_progress(replay);
        let settings = &self.resolved.settings;
        let (before, now) = (self.looked, self.journal.state.frames);
        let passed = |every: u64| now / every > before / every && now < settings.frames.0;
        let evaluate = passed(settings.evaluate_every_frames.0);
        let checkpoint = passed(settings.checkpoint_every_frames.0);
        self.looked = now;
        if evaluate {
            self.order_evaluation(settings.evaluate_episodes, false);
        }
        if checkpoint {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Takes over how far the shards have counted, once a shard has answered.
    fn take_counts(&mut self, replay: &ReplayStatus) {
        let counted = self.trainer.replay.counted();
        if counted.marks.is_empty() {
            return;
        }
        let state = &mut self.journal.state;
        state.agent_steps = counted.agent_steps;
        state.frames = counted.agent_steps * u64::from(self.resolved.settings.frame_skip);
        state.marks.clone_from(&counted.marks);
        let metrics = &self.process.metrics;
        metrics.frames.set(state.frames as i64);
        metrics.show_replay(replay);
        for role in [Role::Actor, Role::Evaluator] {
            metrics.members.with_label_values(&[role.name()]).set(self.crew.hub.present(role).into());
            let joins = metrics.joins.with_label_values(&[role.name()]);
            joins.inc_by(self.crew.hub.joins(role).saturating_sub(joins.get()));
        }
    }

    fn take_reports(&mut self) -> Result<()> {
        while let Ok(report) = self.crew.reports.try_recv() {
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
        for &proto::Episode { score, steps, truncated } in episodes {
            self.process.metrics.episodes.inc();
            self.journal.episode(score, steps, truncated)?;
        }
        if let Some(score) = self.journal.training_score() {
            self.process.metrics.training_score.set(score);
        }
        Ok(())
    }

    fn reported(&mut self, number: u64, players: Vec<Player>) -> Option<Evaluated> {
        let policy = self.resolved.settings.evaluation_policy;
        let evaluated = self.crew.evaluations.reported(number, players, policy);
        if evaluated.is_none() {
            info!(number, "an evaluation was reported that was not ordered, or was reported before");
        }
        self.crew.hub.withdraw_evaluation(number);
        evaluated
    }

    fn keep_evaluation(&mut self, evaluated: &Evaluated) -> Result<()> {
        for evaluation in &evaluated.players {
            self.journal.evaluation(evaluation, |state, writer| {
                checkpoint::save_weights(&evaluated.weights.safetensors, state, writer)
            })?;
            self.process.events.send(&Event::Evaluation(evaluation.clone()));
        }
        let agent = &evaluated.players[0];
        self.process.metrics.scores.add(agent);
        info!(frames = agent.frames, mean = agent.mean, standard_error = agent.standard_error, "evaluated");
        Ok(())
    }

    /// Sends a progress event if one is due.
    fn show_progress(&mut self, replay: ReplayStatus) {
        if self.shown.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.shown = Instant::now();
        let actors = self.crew.hub.present(Role::Actor);
        let progress = self.journal.progress(self.trainer.learner.updates(), actors, replay);
        self.process.events.send(&Event::Progress(progress));
    }

    /// Publishes the weights of now to all actors.
    fn publish(&self) {
        let (started, metrics) = (Instant::now(), &self.process.metrics);
        let weights = Arc::new(self.weights());
        metrics.weights_version.set(self.trainer.learner.updates() as i64);
        metrics.weights_bytes.set(weights.safetensors.len() as i64);
        self.crew.hub.publish(weights);
        metrics.spent("publish", started);
    }

    fn weights(&self) -> Weights {
        let (learner, incarnation) = (&self.trainer.learner, self.crew.hub.charter().incarnation);
        let version = WeightsVersion { incarnation, number: learner.updates() };
        let safetensors = learner.online().parameters().to_safetensors().into();
        Weights { version, safetensors, order: None }
    }

    fn order_evaluation(&mut self, episodes: u32, baselines: bool) -> u64 {
        let (frames, updates) = (self.journal.state.frames, self.trainer.learner.updates());
        let order = Order { number: 0, frames, updates, episodes, baselines };
        let weights = self.weights();
        let weights = self.crew.evaluations.order(weights, order);
        let number = weights.order.map_or(0, |order| order.number);
        self.crew.hub.order_evaluation(weights);
        number
    }

    fn checkpoint(&mut self) -> Result<()> {
        let (started, learner) = (Instant::now(), &self.trainer.learner);
        let kept = self.resolved.settings.checkpoints_kept;
        self.journal
            .checkpoint(learner.updates(), kept, |state, writer| checkpoint::save(learner, state, writer))?;
        self.process.metrics.checkpoints.inc();
        self.process.metrics.checkpoint_seconds.observe(started.elapsed().as_secs_f64());
        Ok(())
    }

    fn stopped(&mut self) -> Result<()> {
        info!("stopping: writing a checkpoint");
        self.take_reports()?;
        self.checkpoint()?;
        self.process.events.send(&Event::Stopped { frames: self.journal.state.frames });
        Ok(())
    }

    /// The end: the last checkpoint first, so that a run that is stopped now gets the rest by resuming.
    fn finish(&mut self) -> Result<()> {
        self.trainer.replay.stop_sampling();
        self.publish();
        self.checkpoint()?;
        let settings = &self.resolved.settings;
        let number = self.order_evaluation(settings.evaluate_final_episodes, settings.baselines);
        let Some(evaluations) = self.wait_for_evaluation(number)? else { return self.stopped() };
        let outcome = self.journal.finish(evaluations)?;
        info!(frames = outcome.frames, updates = outcome.updates, "finished");
        self.process.events.send(&Event::Finished(outcome));
        self.say_farewell(self.process.farewell);
        Ok(())
    }

    /// A run that had ended: members that connect hear it.
    fn repeat_the_end(&mut self, recorded: &[Evaluation]) -> Result<()> {
        let last = recorded.iter().rposition(|evaluation| evaluation.player == AGENT).unwrap_or_default();
        let outcome = self.journal.outcome(recorded[last..].to_vec());
        info!(frames = outcome.frames, "the run has ended already: give it more frames to continue it");
        self.process.events.send(&Event::Finished(outcome));
        // No member has joined yet: those that look for the learner get the time to find it.
        self.say_farewell(self.process.farewell.max(FAREWELL));
        Ok(())
    }

    /// The final evaluation, or `None` if the process shall end before it is reported.
    fn wait_for_evaluation(&mut self, number: u64) -> Result<Option<Vec<Evaluation>>> {
        self.process.metrics.waits_for(Some("evaluation"));
        let mut told = None;
        while !self.process.is_stopped() {
            let reports = &mut self.crew.reports;
            let report = self.process.handle.block_on(async { timeout(LOOK_EVERY, reports.recv()).await });
            match report {
                Ok(Some(Report::Episodes(episodes))) => self.keep_episodes(&episodes)?,
                Ok(Some(Report::Evaluation { number: played, players })) => {
                    let Some(evaluated) = self.reported(played, players) else { continue };
                    if played == number {
                        self.process.metrics.waits_for(None);
                        self.process.metrics.scores.add(&evaluated.players[0]);
                        return Ok(Some(evaluated.players));
                    }
                    self.keep_evaluation(&evaluated)?;
                }
                _ => {}
            }
            let games = self.resolved.settings.evaluate_final_episodes;
            let text = match self.crew.hub.present(Role::Evaluator) {
                0 => "an evaluator: start one with quiver-actor --evaluate".to_owned(),
                _ => format!("the final evaluation over {games} games"),
            };
            if told.as_ref() != Some(&text) {
                warn!(for_what = text, "waiting");
                told = Some(text.clone());
            }
            self.show_progress(ReplayStatus { blocked_on: Some(text), ..self.trainer.replay.status() });
        }
        Ok(None)
    }

    /// Members and shards hear that the run has ended, and leave by themselves. Members that are not connected have at
    /// least `least` to come back; a request to stop ends the wait.
    fn say_farewell(&mut self, least: Duration) {
        self.crew.hub.finish();
        let (at_most, at_least) = (Instant::now() + FAREWELL.max(least), Instant::now() + least);
        self.trainer.replay.finish(FAREWELL);
        let left = |hub: &Hub| hub.present(Role::Actor) + hub.present(Role::Evaluator);
        let waits = |now| now < at_least || (now < at_most && left(&self.crew.hub) > 0);
        while waits(Instant::now()) && !self.process.is_stopped() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
