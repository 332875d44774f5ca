//! Metrics of an actor or evaluator. `docs/metrics.md` explains each.

use prometheus::{Counter, Gauge, Histogram, IntCounter, IntGauge, IntGaugeVec};

/// Buckets in seconds: first, factor, number.
const SECONDS: (f64, f64, usize) = (0.0001, 2.0, 16);

/// Values of the metric label `for`: what an actor can be blocked on.
pub const WAITS: [&str; 4] = ["learner", "weights", "shard", "order"];

telemetry::metrics! {
    /// An actor's metrics.
    #[derive(Clone, Debug)]
    pub struct Metrics(new) {
        pub frames: IntCounter = new.counter("quiver_actor_frames_total", "Emulator frames played"),
        pub agent_steps: IntCounter = new.counter("quiver_actor_agent_steps_total", "Decisions made"),
        pub episodes: IntCounter = new.counter("quiver_actor_episodes_total", "Games that ended"),
        pub episode_score: Gauge = new.gauge("quiver_actor_episode_score", "Unclipped score of the newest game"),
        pub reports_dropped: IntCounter =
            new.counter("quiver_actor_reports_dropped_total", "Reports of games that could not be sent"),
        pub lanes: IntGauge = new.count("quiver_actor_lanes", "Environments stepped side by side"),
        pub step_seconds: Histogram =
            new.histogram("quiver_actor_step_seconds", "Time of one decision in all lanes", SECONDS),
        pub chunks: IntCounter = new.counter("quiver_actor_chunks_total", "Chunks that shards have acknowledged"),
        pub duplicates: IntCounter = new.counter(
            "quiver_actor_duplicate_chunks_total",
            "Chunks that a shard had already when they were sent again",
        ),
        pub reconnects: IntCounter =
            new.counter("quiver_actor_shard_reconnects_total", "Times that a stream to a shard was opened again"),
        pub chunks_in_flight: IntGauge =
            new.count("quiver_actor_chunks_in_flight", "Chunks sent and not acknowledged"),
        pub wait_seconds: Counter =
            new.sum("quiver_actor_wait_seconds_total", "Time that nothing was played because shards took nothing"),
        pub waiting: IntGaugeVec =
            new.counts("quiver_actor_waiting", "1 while the actor waits for this", "for", &WAITS),
        pub weights_version: IntGauge = new.count("quiver_actor_weights_version", "Number of the weights that act"),
        pub weights_loads: IntCounter =
            new.counter("quiver_actor_weights_loads_total", "Times that newer weights were taken over"),
        pub incarnations: IntCounter =
            new.counter("quiver_actor_incarnations_total", "Times that this process joined as a new member"),
        pub evaluations: IntCounter =
            new.counter("quiver_actor_evaluations_total", "Evaluations played to their end"),
        pub evaluation_games: IntCounter =
            new.counter("quiver_actor_evaluation_games_total", "Games played in evaluations"),
    }
}

impl Metrics {
    /// Sets what the actor is blocked on; `None` if it is not blocked.
    pub fn waits_for(&self, what: Option<&str>) {
        for wait in WAITS {
            self.waiting.with_label_values(&[wait]).set(i64::from(what == Some(wait)));
        }
    }
}
