//! What the learner measures. `docs/metrics.md` says what each means.

use std::time::Instant;

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};
use replay::ReplayStatus;
use run::record::Training;
use settings::Settings;

use crate::scores::Scores;

/// The learner's metrics.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is described where it is made, in the words of docs/metrics.md")]
pub struct Metrics {
    pub updates: IntCounter,
    pub frames: IntGauge,
    pub frames_budget: IntGauge,
    pub update_seconds: Histogram,
    pub prepare_seconds: Histogram,
    pub wait_seconds: Counter,
    pub stage_seconds: CounterVec,
    pub waiting: IntGaugeVec,
    pub loss: Gauge,
    pub td_error: Gauge,
    pub q: Gauge,
    pub entropy: Gauge,
    pub gradient_norm: Gauge,
    pub importance_weight: Gauge,
    pub samples: IntCounter,
    pub inserts: IntCounter,
    pub samples_per_insert: Gauge,
    pub samples_per_insert_target: Gauge,
    pub prefetched: IntGauge,
    pub prefetch_lag: Gauge,
    pub sample_age: Gauge,
    pub priorities: IntCounterVec,
    pub largest: Gauge,
    pub undecodable: IntCounter,
    pub weights_version: IntGauge,
    pub weights_bytes: IntGauge,
    pub members: IntGaugeVec,
    pub joins: IntCounterVec,
    pub shards: IntGauge,
    pub shards_wanted: IntGauge,
    pub replay_items: IntGauge,
    pub episodes: IntCounter,
    pub training_score: Gauge,
    pub scores: Scores,
    pub diverged_time: Gauge,
    pub checkpoints: IntCounter,
    pub checkpoint_seconds: Histogram,
    pub refused: IntCounterVec,
}

/// What takes time beside waiting and training, as labels.
const STAGES: [&str; 4] = ["draw", "unpack", "copy", "publish"];

/// What the learner can wait for, as labels.
pub const WAITS: [&str; 4] = ["shards", "filling", "inserts", "evaluation"];

impl Metrics {
    /// Makes and registers them.
    ///
    /// # Panics
    /// If two have one name.
    pub fn register(registry: &Registry) -> Self {
        let seconds = |name: &str, help: &str| {
            let buckets = prometheus::exponential_buckets(0.0005, 2.0, 16).expect("a valid series");
            add(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)))
        };
        let gauge = |name: &str, help: &str| add(registry, Gauge::new(name, help));
        let count = |name: &str, help: &str| add(registry, IntGauge::new(name, help));
        let total = |name: &str, help: &str| add(registry, IntCounter::new(name, help));
        let totals = |name: &str, help: &str, label: &str, values: &[&str]| {
            let vector = add(registry, IntCounterVec::new(Opts::new(name, help), &[label]));
            values.iter().for_each(|value| drop(vector.with_label_values(&[*value])));
            vector
        };
        let counts = |name: &str, help: &str, label: &str, values: &[&str]| {
            let vector = add(registry, IntGaugeVec::new(Opts::new(name, help), &[label]));
            values.iter().for_each(|value| drop(vector.with_label_values(&[*value])));
            vector
        };
        Self {
            updates: total("learner_updates_total", "Gradient steps of this process"),
            frames: count("learner_frames", "Emulator frames of the whole run"),
            frames_budget: count("learner_frames_budget", "Emulator frames at which training ends"),
            update_seconds: seconds("learner_update_seconds", "Time of one gradient step in libtorch"),
            prepare_seconds: seconds("learner_prepare_seconds", "Time to sample and unpack one batch"),
            wait_seconds: add(
                registry,
                Counter::new(
                    "learner_batch_wait_seconds_total",
                    "Time that the training thread waited for a batch",
                ),
            ),
            stage_seconds: {
                let help = "Time spent on this, beside waiting and training";
                let opts = Opts::new("learner_stage_seconds_total", help);
                let stages = add(registry, CounterVec::new(opts, &["stage"]));
                STAGES.iter().for_each(|stage| drop(stages.with_label_values(&[*stage])));
                stages
            },
            waiting: counts("learner_waiting", "1 while the learner waits for this", "for", &WAITS),
            loss: gauge("learner_loss", "Weighted mean loss, over the last 200 updates"),
            td_error: gauge("learner_td_error", "Mean absolute TD error, over the last 200 updates"),
            q: gauge("learner_q", "Mean Q-value, over the last 200 updates"),
            entropy: gauge(
                "learner_policy_entropy_nats",
                "Mean entropy of the policy, over the last 200 updates",
            ),
            gradient_norm: gauge("learner_gradient_norm", "Mean length of the gradient before clamping"),
            importance_weight: gauge("learner_importance_weight", "Mean importance weight"),
            samples: total("learner_samples_total", "Transitions sampled by this process"),
            inserts: total(
                "learner_inserts_total",
                "Transitions inserted into all shards, as this process heard",
            ),
            samples_per_insert: gauge(
                "learner_samples_per_insert",
                "Samples per insert since the ratio began",
            ),
            samples_per_insert_target: gauge(
                "learner_samples_per_insert_target",
                "Samples per insert as the settings want it, 0 if both sides run free",
            ),
            prefetched: count("learner_prefetched_batches", "Batches that wait for the training thread"),
            prefetch_lag: gauge(
                "learner_prefetch_lag_updates",
                "Updates between drawing a batch and learning from it",
            ),
            sample_age: gauge(
                "learner_sample_age_inserts",
                "Mean number of inserts into its shard after a sampled transition",
            ),
            priorities: totals(
                "learner_priorities_total",
                "New priorities by what became of them",
                "result",
                &["applied", "stale", "lost", "dropped"],
            ),
            largest: gauge("learner_largest_priority", "The largest priority seen in any shard"),
            undecodable: total(
                "learner_undecodable_items_total",
                "Sampled transitions that could not be unpacked",
            ),
            weights_version: count("learner_weights_version", "Number of the newest published weights"),
            weights_bytes: count("learner_weights_bytes", "Size of the published weights"),
            members: counts("learner_members", "Members that are connected", "role", &["actor", "evaluator"]),
            joins: totals(
                "learner_joins_total",
                "Members that joined as new ones",
                "role",
                &["actor", "evaluator"],
            ),
            shards: count("learner_shards_reachable", "Shards that answer"),
            shards_wanted: count("learner_shards", "Shards that shall answer"),
            replay_items: count("learner_replay_items", "Transitions in all shards that answer"),
            episodes: total("learner_episodes_total", "Training games that ended"),
            training_score: {
                let score = gauge("learner_training_score", "Mean score of the newest 20 training games");
                // As with evaluations, 0 could be a good one.
                score.set(f64::NAN);
                score
            },
            scores: Scores::register(registry),
            diverged_time: gauge(
                "learner_diverged_time_seconds",
                "When an update last was no number, in seconds since 1970; 0: never",
            ),
            checkpoints: total("learner_checkpoints_total", "Checkpoints written"),
            checkpoint_seconds: seconds("learner_checkpoint_seconds", "Time to write a checkpoint"),
            refused: totals(
                "learner_requests_refused_total",
                "Calls refused, by reason",
                "reason",
                &["protocol", "run", "fenced", "full", "invalid"],
            ),
        }
    }

    /// Says what the settings aim at, in a run of so many shards.
    pub fn aims(&self, settings: &Settings, shards: usize) {
        self.frames_budget.set(settings.frames.0 as i64);
        self.samples_per_insert_target.set(settings.samples_per_insert.0.unwrap_or(0.0));
        self.shards_wanted.set((shards - settings.without_shards.0.len()) as i64);
    }

    /// Shows what the replay holds.
    pub fn show_replay(&self, replay: &ReplayStatus) {
        self.shards.set(replay.shards.into());
        self.replay_items.set(replay.items as i64);
        self.samples.inc_by(replay.samples.saturating_sub(self.samples.get()));
        self.inserts.inc_by(replay.inserts.saturating_sub(self.inserts.get()));
        if let Some(ratio) = replay.samples_per_insert {
            self.samples_per_insert.set(ratio);
        }
    }

    /// Shows the means of a stretch of training.
    pub fn show_training(&self, training: &Training) {
        self.loss.set(training.loss);
        self.td_error.set(training.td_error);
        self.q.set(training.q);
        self.entropy.set(training.entropy);
        self.gradient_norm.set(training.gradient_norm);
        self.importance_weight.set(training.importance_weight);
    }

    /// Counts the time since `started` for a stage.
    pub fn spent(&self, stage: &str, started: Instant) {
        self.stage_seconds.with_label_values(&[stage]).inc_by(started.elapsed().as_secs_f64());
    }

    /// Takes in a priority and gives the largest so far.
    pub fn largest_priority(&self, priority: f64) -> f64 {
        if priority.is_finite() && priority > self.largest.get() {
            self.largest.set(priority);
        }
        self.largest.get()
    }

    /// Says what the learner waits for, or that it does not.
    pub fn waits_for(&self, what: Option<&str>) {
        for wait in WAITS {
            self.waiting.with_label_values(&[wait]).set(i64::from(what == Some(wait)));
        }
    }
}

pub(crate) fn add<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("a valid name");
    registry.register(Box::new(metric.clone())).expect("names differ");
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aims_are_those_of_the_settings() {
        let metrics = Metrics::register(&Registry::new());
        let mut settings = settings::resolve::Layers::default().resolve(Some("cartpole")).unwrap().settings;
        for (key, text) in [("samples_per_insert", "4"), ("without_shards", "1"), ("frames", "5000")] {
            settings.set(key, text).unwrap().unwrap();
        }
        metrics.aims(&settings, 3);
        assert_eq!(metrics.samples_per_insert_target.get(), 4.0);
        assert_eq!((metrics.shards_wanted.get(), metrics.frames_budget.get()), (2, 5000));
        settings.set("samples_per_insert", "none").unwrap().unwrap();
        metrics.aims(&settings, 3);
        assert_eq!(metrics.samples_per_insert_target.get(), 0.0);
    }
}
