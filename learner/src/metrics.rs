//! The learner's metrics. `docs/metrics.md` explains each.

use std::time::Instant;

use prometheus::{Counter, CounterVec, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use replay::ReplayStatus;
use run::record::Training;
use settings::Settings;

use crate::scores::ScoreGauges;

/// Histogram buckets in seconds: the first, the factor between two, their number.
const SECONDS: (f64, f64, usize) = (0.0005, 2.0, 16);

/// Labels of the stages that are timed besides waiting and training.
const STAGES: [&str; 5] = ["sample", "decode", "assemble", "target", "publish"];

/// Labels of what the learner can be blocked on.
pub const BLOCKED_ON: [&str; 5] = ["shards", "filling", "inserts", "evaluation", DISK];
/// The label of a run directory that cannot be written. Another part of the process sets it than sets the others.
const DISK: &str = "disk";

telemetry::metrics! {
    #[derive(Clone, Debug)]
    pub struct Metrics(new) {
        pub updates: IntCounter = new.counter("quiver_learner_updates_total", "Gradient steps of this process"),
        pub frames: IntGauge = new.count("quiver_learner_frames", "Emulator frames of the run, including those before a resume"),
        pub frames_budget: IntGauge =
            new.count("quiver_learner_frames_budget", "Emulator frames at which training ends"),
        pub update_seconds: Histogram =
            new.histogram("quiver_learner_update_seconds", "Time of one gradient step in libtorch", SECONDS),
        pub prepare_seconds: Histogram =
            new.histogram("quiver_learner_prepare_seconds", "Time to sample and unpack one batch", SECONDS),
        pub wait_seconds: Counter =
            new.sum("quiver_learner_batch_wait_seconds_total", "Time that the training thread was blocked on a batch"),
        pub stage_seconds: CounterVec = new.sums(
            "quiver_learner_stage_seconds_total",
            "Time spent in each stage other than gradient steps and blocking on a batch",
            "stage",
            &STAGES,
        ),
        pub blocked: IntGaugeVec =
            new.counts("quiver_learner_blocked", "Whether the learner is blocked, by cause (label `on`): 1 = blocked, 0 = not", "on", &BLOCKED_ON),
        pub loss: Gauge = new.gauge("quiver_learner_loss", "Weighted mean loss, over the last 200 updates"),
        pub td_error: Gauge =
            new.gauge("quiver_learner_td_error", "Mean absolute TD error, over the last 200 updates"),
        pub q: Gauge = new.gauge("quiver_learner_q_mean", "Mean Q-value, over the last 200 updates"),
        pub entropy: Gauge =
            new.gauge("quiver_learner_softmax_entropy_nats", "Mean entropy of softmax(Q), over the last 200 updates: of the policy for soft-dqn, of the target policy for munchausen-dqn, at temperature 1 for dqn"),
        pub gradient_norm: Gauge =
            new.gauge("quiver_learner_gradient_norm", "Mean L2 norm of the gradient before clamping, over the last 200 updates"),
        pub importance_weight: Gauge = new.gauge("quiver_learner_importance_weight", "Mean importance weight, over the last 200 updates"),
        pub samples: IntCounter = new.counter("quiver_learner_samples_total", "Transitions sampled by this process"),
        pub inserts: IntCounter = new.counter(
            "quiver_learner_inserts_total",
            "Transitions inserted into all shards, as shards reported to this process",
        ),
        pub samples_per_insert: Gauge =
            new.gauge("quiver_learner_samples_per_insert", "Samples / inserts after the first min_size, since the counts last began"),
        pub samples_per_insert_target: Gauge = new.gauge(
            "quiver_learner_samples_per_insert_target",
            "Configured samples per insert; 0 if unlimited",
        ),
        pub prefetched: IntGauge =
            new.count("quiver_learner_prefetched_batches", "Batches drawn for the training thread, being unpacked or ready"),
        pub prefetch_lag: Gauge =
            new.gauge("quiver_learner_prefetch_lag_updates", "Batches sampled after the one in training: the age of its priorities"),
        pub sample_age: Gauge = new.gauge(
            "quiver_learner_sample_age_inserts",
            "Mean age of sampled transitions, in inserts into their shard since their own",
        ),
        pub priorities: IntCounterVec = new.counters(
            "quiver_learner_priorities_total",
            "Priority updates by result",
            "result",
            &["applied", "stale", "lost", "dropped"],
        ),
        pub largest: Gauge = new.gauge("quiver_learner_largest_priority", "Largest priority seen in any shard"),
        pub undecodable: IntCounter =
            new.counter("quiver_learner_undecodable_items_total", "Sampled transitions that could not be decoded"),
        pub weights_version: IntGauge =
            new.count("quiver_learner_weights_version", "Version of the newest published weights, counted in updates"),
        pub publications: IntCounter =
            new.counter("quiver_learner_publications_total", "Publications of weights to the actors"),
        pub weights_bytes: IntGauge = new.count("quiver_learner_weights_bytes", "Size of the published weights"),
        pub members: IntGaugeVec =
            new.counts("quiver_learner_members", "Connected members", "role", &["actor", "evaluator"]),
        pub joins: IntCounterVec = new.counters(
            "quiver_learner_joins_total",
            "Joins of new members: starts and restarts",
            "role",
            &["actor", "evaluator"],
        ),
        pub shards: IntGauge = new.count("quiver_learner_shards_reachable", "Reachable shards"),
        pub shards_wanted: IntGauge = new.count("quiver_learner_shards_expected", "Expected shards: all of the run except those of without_shards"),
        pub replay_items: IntGauge =
            new.count("quiver_learner_replay_items", "Transitions in all reachable shards"),
        pub episodes: IntCounter = new.counter("quiver_learner_episodes_total", "Completed training episodes"),
        pub episodes_dropped: IntCounter =
            new.counter("quiver_learner_episodes_dropped_total", "Episodes reported beyond the agent steps counted, and not recorded"),
        pub training_score: Gauge =
            new.score("quiver_learner_training_score", "Mean score of the newest 20 training episodes; NaN before the first"),
        pub scores: ScoreGauges = ScoreGauges::register(new.0),
        pub diverged_time: Gauge = new.gauge(
            "quiver_learner_diverged_time_seconds",
            "Time of the last NaN or infinite update, in seconds since 1970; 0 if none",
        ),
        pub checkpoints: IntCounter = new.counter("quiver_learner_checkpoints_total", "Checkpoints written"),
        pub checkpoint_seconds: Histogram =
            new.histogram("quiver_learner_checkpoint_seconds", "Time to write a checkpoint", SECONDS),
        pub refused: IntCounterVec = new.counters(
            "quiver_learner_requests_refused_total",
            "Calls refused, by reason",
            "reason",
            &["protocol", "run", "role", "identity", "fenced", "held", "full", "invalid"],
        ),
    }
}

impl Metrics {
    /// Exports the targets of the settings, in a run of `shards` shards.
    pub fn set_targets(&self, settings: &Settings, shards: usize) {
        self.frames_budget.set(settings.frames.0 as i64);
        self.samples_per_insert_target.set(settings.samples_per_insert.0.unwrap_or(0.0));
        self.shards_wanted.set((shards - settings.without_shards.0.len()) as i64);
    }

    /// Exports what the replay holds.
    pub fn show_replay(&self, replay: &ReplayStatus) {
        self.shards.set(replay.shards.into());
        self.replay_items.set(replay.items as i64);
        // The status has totals; a counter takes the difference.
        self.samples.inc_by(replay.samples.saturating_sub(self.samples.get()));
        self.inserts.inc_by(replay.inserts.saturating_sub(self.inserts.get()));
        if let Some(ratio) = replay.samples_per_insert {
            self.samples_per_insert.set(ratio);
        }
    }

    /// Exports the averages over the last updates.
    pub fn show_training(&self, training: &Training) {
        self.loss.set(training.loss);
        self.td_error.set(training.td_error);
        self.q.set(training.q);
        self.entropy.set(training.entropy);
        self.gradient_norm.set(training.gradient_norm);
        self.importance_weight.set(training.importance_weight);
    }

    /// Adds the time since `started` to a stage.
    pub fn add_stage_time(&self, stage: &str, started: Instant) {
        self.stage_seconds.with_label_values(&[stage]).inc_by(started.elapsed().as_secs_f64());
    }

    /// Raises the largest priority so far to `priority` if that is larger, and returns it.
    pub fn raise_largest_priority(&self, priority: f64) -> f64 {
        if priority.is_finite() && priority > self.largest.get() {
            self.largest.set(priority);
        }
        self.largest.get()
    }

    /// Exports whether training is paused because the run directory cannot be written.
    pub fn set_blocked_on_disk(&self, is_blocked: bool) {
        self.blocked.with_label_values(&[DISK]).set(is_blocked.into());
    }

    /// Exports what else the learner is blocked on, if anything.
    pub fn set_blocked_on(&self, what: Option<&str>) {
        for label in BLOCKED_ON.into_iter().filter(|label| *label != DISK) {
            self.blocked.with_label_values(&[label]).set(i64::from(what == Some(label)));
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn the_targets_are_those_of_the_settings() {
        let metrics = Metrics::register(&Registry::new());
        let mut settings = settings::resolve::Layers::default().resolve(Some("cartpole")).unwrap().settings;
        for (key, text) in [("samples_per_insert", "4"), ("without_shards", "1"), ("frames", "5000")] {
            settings.set(key, text).unwrap().unwrap();
        }
        metrics.set_targets(&settings, 3);
        assert_eq!(metrics.samples_per_insert_target.get(), 4.0);
        assert_eq!((metrics.shards_wanted.get(), metrics.frames_budget.get()), (2, 5000));
        settings.set("samples_per_insert", "none").unwrap().unwrap();
        metrics.set_targets(&settings, 3);
        assert_eq!(metrics.samples_per_insert_target.get(), 0.0);
    }
}
