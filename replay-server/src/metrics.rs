//! The metrics of a shard. `docs/metrics.md` explains each one and what a bad value looks like.
#![allow(clippy::disallowed_methods, reason = "the shard's process measures and waits")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{Counter, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge};
use replay::store::Recovered;
use replay::{ShardStatus, TableCounters};
use tokio::time::Instant;

use crate::refusal::{Reason, Refusal};

/// Histogram buckets as (first, factor, number). From 10 µs, a chunk of a few steps, to about 0.7 s, a batch of
/// thousands on a busy machine.
const SECONDS: (f64, f64, usize) = (1e-5, 3.0, 11);
/// Priorities of sampled items, from 2⁻¹² to 32.
const PRIORITY: (f64, f64, usize) = (1.0 / 4096.0, 2.0, 18);
/// Ages of sampled items, from 64 inserts to two million.
const AGE: (f64, f64, usize) = (64.0, 2.0, 16);
/// Counters with labels, each as (name, help, label).
const CHUNKS: (&str, &str, &str) = ("quiver_replay_chunks_total", "Chunks by result", "result");
const UPDATES: (&str, &str, &str) =
    ("quiver_replay_priority_updates_total", "Priority updates by result", "result");
const EVICTIONS: (&str, &str, &str) = ("quiver_replay_removals_total", "Items removed, by cause", "cause");
/// Label values for kinds of damaged records.
const DAMAGES: [&str; 6] = ["chunk", "priority", "lane", "item", "state", "flush"];
/// Minimum interval between log lines about one kind of event, for all callers together. All refusals are one kind.
const LOG_PERIOD: Duration = Duration::from_secs(10);

telemetry::metrics! {
    /// The shard's metrics. Clones share the counts.
    #[derive(Clone)]
    pub struct Metrics(new) {
        items: IntGauge = new.count("quiver_replay_items", "Transitions that can be sampled"),
        capacity: IntGauge = new.count("quiver_replay_capacity", "Maximum number of transitions"),
        mass: Gauge = new.gauge("quiver_replay_mass", "Sum of all sampling weights, or the number of items if sampling is uniform"),
        bytes_used: IntGauge = new.count("quiver_replay_bytes_used", "Bytes of the ring that hold chunks"),
        bytes_max: IntGauge = new.count("quiver_replay_bytes_max", "Size of the ring in bytes"),
        inserts: IntCounter = new.counter("quiver_replay_inserts_total", "Transitions stored"),
        surcharge: IntCounter = new.counter("quiver_replay_surcharge_total", "Inserts charged for steps without items"),
        allowance: IntGauge =
            new.count("quiver_replay_insert_allowance", "Total number of inserts that the learner allows this shard"),
        agent_steps: IntCounter = new.counter("quiver_replay_agent_steps_total", "Agent steps stored: steps that have an action"),
        samples: IntCounter = new.counter("quiver_replay_samples_total", "Transitions sampled"),
        chunks_stored: IntCounter = new.counter_of(CHUNKS, "stored"),
        chunks_duplicate: IntCounter = new.counter_of(CHUNKS, "duplicate"),
        chunks_lost: IntCounter = new.counter_of(CHUNKS, "lost"),
        pub(crate) chunks_refused: IntCounter = new.counter_of(CHUNKS, "refused"),
        updates_applied: IntCounter = new.counter_of(UPDATES, "applied"),
        updates_stale: IntCounter = new.counter_of(UPDATES, "stale"),
        items_removed: IntCounter = new.counter_of(UPDATES, "removed"),
        evictions_capacity: IntCounter = new.counter_of(EVICTIONS, "capacity"),
        evictions_bytes: IntCounter = new.counter_of(EVICTIONS, "bytes"),
        evictions_used_up: IntCounter = new.counter_of(EVICTIONS, "used_up"),
        items_without_frames: IntCounter = new.counter(
            "quiver_replay_items_without_frames_total",
            "Items dropped because their frames were already evicted",
        ),
        pub(crate) writers_connected: IntGauge =
            new.count("quiver_replay_writers_connected", "Open insert streams"),
        pub(crate) writers_blocked: IntGauge =
            new.count("quiver_replay_writers_blocked", "Insert streams blocked on the learner's grant"),
        pub(crate) writer_wait_seconds: Counter =
            new.sum("quiver_replay_writer_wait_seconds_total", "Time that insert streams were blocked on the learner's grant"),
        pub(crate) sample_seconds: Histogram =
            new.histogram("quiver_replay_sample_seconds", "Time to sample the items of one request", SECONDS),
        pub(crate) insert_seconds: Histogram =
            new.histogram("quiver_replay_insert_seconds", "Time to store one chunk", SECONDS),
        sampled_priority: Histogram =
            new.histogram("quiver_replay_sampled_priority", "Priorities of sampled transitions", PRIORITY),
        sampled_age: Histogram = new.histogram(
            "quiver_replay_sampled_age_inserts",
            "Age of sampled transitions, in inserts since their own insert",
            AGE,
        ),
        pub(crate) grants_blocked: IntGauge =
            new.count("quiver_replay_grants_blocked", "Learner calls blocked on inserts into this shard"),
        pub(crate) syncs: IntCounter =
            new.counter("quiver_replay_syncs_total", "Completed flushes to disk"),
        pub(crate) sync_seconds: Histogram =
            new.histogram("quiver_replay_sync_seconds", "Time to flush changes to disk", SECONDS),
        pub(crate) flush_failed_time: Gauge = new.gauge(
            "quiver_replay_flush_failed_time_seconds",
            "Time of the last failed flush to disk, in seconds since 1970; 0 if none",
        ),
        damaged: IntCounterVec = new.counters(
            "quiver_replay_damaged_total",
            "Records that were damaged or missing at the start, by kind",
            "kind",
            &DAMAGES,
        ),
        pub(crate) calls_waiting: IntGauge =
            new.count("quiver_replay_calls_waiting", "Calls waiting for the store, which serves one call at a time"),
        refused: IntCounterVec = new.counters(
            "quiver_replay_requests_refused_total",
            "Calls and streams refused, by reason",
            "reason",
            &Reason::NAMES,
        ),
        pub(crate) refusals_logged: LogLimiter = LogLimiter::default(),
        pub(crate) waits_logged: LogLimiter = LogLimiter::default(),
    }
}

impl Metrics {
    /// Exports the shard's status. Only its owner calls this, once for each job.
    pub(crate) fn observe(&self, status: &ShardStatus) {
        let mut tables = TableCounters::default();
        status.tables.iter().for_each(|table| tables += table.counters);
        let counters = &status.counters;
        self.items.set(status.tables.iter().map(|table| table.items as i64).sum());
        self.capacity.set(status.tables.iter().map(|table| table.capacity as i64).sum());
        self.mass.set(status.tables.iter().map(|table| table.mass).sum());
        self.bytes_used.set(status.bytes_used as i64);
        self.bytes_max.set(status.bytes_max as i64);
        self.allowance.set(i64::try_from(status.allowance).unwrap_or(i64::MAX));
        for (counter, total) in [
            (&self.inserts, tables.inserts),
            (&self.surcharge, counters.surcharge),
            (&self.agent_steps, counters.agent_steps),
            (&self.samples, tables.samples),
            (&self.chunks_stored, counters.chunks),
            (&self.chunks_duplicate, counters.duplicate_chunks),
            (&self.chunks_lost, counters.lost_chunks),
            (&self.updates_applied, tables.updates),
            (&self.updates_stale, tables.stale_updates),
            (&self.items_removed, tables.removed_items),
            (&self.evictions_capacity, tables.evicted),
            (&self.evictions_bytes, tables.reclaimed_items),
            (&self.evictions_used_up, tables.used_up),
            (&self.items_without_frames, counters.items_without_frames),
        ] {
            // Totals only grow, and only this line counts. A recovered store starts with its former totals.
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }

    /// Records a sampled batch at once.
    pub(crate) fn record_sampled(&self, batch: &proto::v1::Batch) {
        let (priorities, ages) = (self.sampled_priority.local(), self.sampled_age.local());
        batch.priorities.iter().for_each(|&priority| priorities.observe(priority));
        batch.ages_inserts.iter().for_each(|&age| ages.observe(age as f64));
        priorities.flush();
        ages.flush();
    }

    /// Records a flush to disk.
    pub(crate) fn record_sync(&self, time: Duration) {
        self.syncs.inc();
        self.sync_seconds.observe(time.as_secs_f64());
    }

    /// Counts the damaged records that the shard found at its start.
    pub(crate) fn record_recovery(&self, recovered: &Recovered) {
        for (kind, count) in [
            ("chunk", recovered.damaged_chunks),
            ("priority", recovered.damaged_priorities),
            ("lane", recovered.damaged_lanes),
            ("item", recovered.lost_items),
            ("state", recovered.damaged_state.into()),
            ("flush", recovered.failed_flush.into()),
        ] {
            self.damaged.with_label_values(&[kind]).inc_by(count);
        }
    }

    pub(crate) fn record_refusal(&self, refusal: &Refusal) {
        if let Some(reason) = refusal.reason() {
            self.refused.with_label_values(&[reason.name()]).inc();
            if self.refusals_logged.allow() {
                tracing::warn!(reason = reason.name(), error = %refusal, "request refused");
            }
        }
    }
}

/// Limits the rate of one log message, which a thousand callers may cause at once.
#[derive(Clone, Default)]
pub(crate) struct LogLimiter(Arc<Mutex<Option<Instant>>>);

impl LogLimiter {
    /// Whether to log now.
    pub fn allow(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= LOG_PERIOD);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

/// Raises a gauge by one until it is dropped.
pub(crate) struct GaugeGuard<'a>(&'a IntGauge);

impl<'a> GaugeGuard<'a> {
    pub fn new(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
