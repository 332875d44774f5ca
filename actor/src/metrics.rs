//! Metrics of an actor or evaluator. `docs/metrics.md` explains each.

use prometheus::{Counter, Gauge, Histogram, IntCounter, IntGauge, IntGaugeVec};

/// Histogram buckets in seconds: first bound, factor, number.
const SECONDS: (f64, f64, usize) = (0.0001, 2.0, 16);

/// Label values of what an actor or evaluator can be blocked on.
pub const BLOCKED_ON: [&str; 4] = ["learner", "weights", "shard", "evaluation_request"];

telemetry::metrics! {
    #[derive(Clone, Debug)]
    pub struct Metrics(new) {
        pub frames: IntCounter = new.counter("quiver_actor_frames_total", "Emulator frames played"),
        pub agent_steps: IntCounter = new.counter("quiver_actor_agent_steps_total", "Agent steps: one action each"),
        pub episodes: IntCounter = new.counter("quiver_actor_episodes_total", "Completed episodes"),
        pub episode_score: Gauge = new.gauge("quiver_actor_episode_score", "Unclipped score of the newest episode"),
        pub reports_dropped: IntCounter =
            new.counter("quiver_actor_reports_dropped_total", "Episode reports dropped because the queue was full"),
        pub lanes: IntGauge = new.count("quiver_actor_lanes", "Environments stepped together"),
        pub step_seconds: Histogram =
            new.histogram("quiver_actor_step_seconds", "Time of one agent step in all lanes", SECONDS),
        pub chunks: IntCounter = new.counter("quiver_actor_chunks_total", "Chunks acknowledged by shards"),
        pub duplicates: IntCounter = new.counter(
            "quiver_actor_duplicate_chunks_total",
            "Resent chunks that the shard had already stored",
        ),
        pub reconnects: IntCounter =
            new.counter("quiver_actor_shard_reconnects_total", "Attempts to reopen an insert stream after a failure"),
        pub chunks_in_flight: IntGauge =
            new.count("quiver_actor_chunks_in_flight", "Chunks sent and not yet acknowledged"),
        pub blocked_seconds_total: Counter =
            new.sum("quiver_actor_blocked_seconds_total", "Time blocked because no shard accepted chunks"),
        pub blocked: IntGaugeVec =
            new.counts("quiver_actor_blocked", "Whether the actor is blocked, by cause (label `on`): 1 = blocked, 0 = not", "on", &BLOCKED_ON),
        pub weights_version: IntGauge = new.count("quiver_actor_weights_version", "Version of the weights in use, counted in updates"),
        pub weights_loads: IntCounter =
            new.counter("quiver_actor_weights_loads_total", "Newer weights loaded"),
        pub joins: IntCounter =
            new.counter("quiver_actor_joins_total", "Joins of this process as a new member: at the start, after an eviction, and after the set of shards changed"),
        pub evaluations: IntCounter =
            new.counter("quiver_actor_evaluations_total", "Completed evaluations"),
        pub evaluation_games: IntCounter =
            new.counter("quiver_actor_evaluation_games_total", "Episodes played in evaluations"),
    }
}

impl Metrics {
    /// Exports what the actor is blocked on; `None` if it is not blocked.
    pub fn set_blocked_on(&self, what: Option<&str>) {
        for label in BLOCKED_ON {
            self.blocked.with_label_values(&[label]).set(i64::from(what == Some(label)));
        }
    }
}
