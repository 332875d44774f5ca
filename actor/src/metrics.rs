//! What an actor or evaluator measures. `docs/metrics.md` says what each means.

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, IntGaugeVec, Opts, Registry,
};

/// An actor's metrics.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is described where it is made, in the words of docs/metrics.md")]
pub struct Metrics {
    pub frames: IntCounter,
    pub agent_steps: IntCounter,
    pub episodes: IntCounter,
    pub episode_score: Gauge,
    pub reports_dropped: IntCounter,
    pub lanes: IntGauge,
    pub step_seconds: Histogram,
    pub chunks: IntCounter,
    pub duplicates: IntCounter,
    pub reconnects: IntCounter,
    pub chunks_under_way: IntGauge,
    pub wait_seconds: Counter,
    pub waiting: IntGaugeVec,
    pub weights_version: IntGauge,
    pub weights_loads: IntCounter,
    pub incarnations: IntCounter,
    pub evaluations: IntCounter,
    pub evaluation_games: IntCounter,
}

/// What an actor can wait for, as labels.
pub const WAITS: [&str; 4] = ["learner", "weights", "shard", "order"];

impl Metrics {
    /// Makes and registers them.
    ///
    /// # Panics
    /// If two have one name.
    pub fn register(registry: &Registry) -> Self {
        let count = |name: &str, help: &str| add(registry, IntGauge::new(name, help));
        let total = |name: &str, help: &str| add(registry, IntCounter::new(name, help));
        let buckets = prometheus::exponential_buckets(0.0001, 2.0, 16).expect("a valid series");
        let step =
            HistogramOpts::new("actor_step_seconds", "Time of one decision in all lanes").buckets(buckets);
        let waiting = Opts::new("actor_waiting", "1 while the actor waits for this");
        let waiting = add(registry, IntGaugeVec::new(waiting, &["for"]));
        WAITS.iter().for_each(|wait| drop(waiting.with_label_values(&[*wait])));
        Self {
            frames: total("actor_frames_total", "Emulator frames played"),
            agent_steps: total("actor_agent_steps_total", "Decisions made"),
            episodes: total("actor_episodes_total", "Games that ended"),
            episode_score: add(
                registry,
                Gauge::new("actor_episode_score", "Unclipped score of the newest game"),
            ),
            reports_dropped: total("actor_reports_dropped_total", "Reports of games that could not be sent"),
            lanes: count("actor_lanes", "Environments stepped side by side"),
            step_seconds: add(registry, Histogram::with_opts(step)),
            chunks: total("actor_chunks_total", "Chunks that shards have acknowledged"),
            duplicates: total(
                "actor_duplicate_chunks_total",
                "Chunks that a shard had already when they were sent again",
            ),
            reconnects: total(
                "actor_shard_reconnects_total",
                "Times that a stream to a shard was opened again",
            ),
            chunks_under_way: count("actor_chunks_under_way", "Chunks sent and not acknowledged"),
            wait_seconds: add(
                registry,
                Counter::new(
                    "actor_wait_seconds_total",
                    "Time that nothing was played because shards took nothing",
                ),
            ),
            waiting,
            weights_version: count("actor_weights_version", "Number of the weights that act"),
            weights_loads: total("actor_weights_loads_total", "Times that newer weights were taken over"),
            incarnations: total("actor_incarnations_total", "Times that this process joined as a new member"),
            evaluations: total("actor_evaluations_total", "Evaluations played to their end"),
            evaluation_games: total("actor_evaluation_games_total", "Games played in evaluations"),
        }
    }

    /// Says what the actor waits for, or that it does not.
    pub fn waits_for(&self, what: Option<&str>) {
        for wait in WAITS {
            self.waiting.with_label_values(&[wait]).set(i64::from(what == Some(wait)));
        }
    }
}

fn add<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("a valid name");
    registry.register(Box::new(metric.clone())).expect("names differ");
    metric
}
