//! What the shard exports. `docs/metrics.md` says what each one means and what a bad value looks like.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{Counter, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge};
use replay::store::Recovered;
use replay::{ShardStatus, TableCounters};
use tokio::time::Instant;

use crate::refusal::{Reason, Refusal};

/// Buckets as first, factor, number. From 10 µs, a chunk of a few steps, to about 0.7 s, a batch of thousands on a busy
/// machine.
const SECONDS: (f64, f64, usize) = (1e-5, 3.0, 11);
/// Priorities of sampled items, from 2⁻¹² to 32.
const PRIORITY: (f64, f64, usize) = (1.0 / 4096.0, 2.0, 18);
/// Ages of sampled items, from 64 inserts to two million.
const AGE: (f64, f64, usize) = (64.0, 2.0, 16);
/// Counts by label, each as name, help and label.
const CHUNKS: (&str, &str, &str) = ("replay_chunks_total", "Chunks by what became of them", "result");
const UPDATES: (&str, &str, &str) =
    ("replay_priority_updates_total", "Priority updates by what became of them", "result");
const EVICTIONS: (&str, &str, &str) =
    ("replay_evictions_total", "Items that made room, by what for", "cause");
/// Kinds of records that can be damaged, as labels.
const DAMAGES: [&str; 5] = ["chunk", "priority", "lane", "item", "state"];
/// Log lines about the same matter come no more often than this, however many callers it concerns.
const LOG_PERIOD: Duration = Duration::from_secs(10);

telemetry::metrics! {
    /// The shard's metrics. Clones share the counts.
    #[derive(Clone)]
    pub struct Metrics(new) {
        items: IntGauge = new.count("replay_items", "Transitions that can be drawn"),
        capacity: IntGauge = new.count("replay_capacity", "Transitions that there can be"),
        mass: Gauge = new.gauge("replay_mass", "Sum of all weights, or number of items if uniform"),
        bytes_used: IntGauge = new.count("replay_bytes_used", "Bytes of the ring that hold chunks"),
        bytes_max: IntGauge = new.count("replay_bytes_max", "Bytes of the ring"),
        inserts: IntCounter = new.counter("replay_inserts_total", "Transitions stored"),
        inserts_allowed: IntGauge =
            new.count("replay_inserts_allowed", "Inserts that the learner has granted in total"),
        agent_steps: IntCounter = new.counter("replay_agent_steps_total", "Steps stored that have an action"),
        samples: IntCounter = new.counter("replay_samples_total", "Transitions drawn"),
        chunks_stored: IntCounter = new.counter_of(CHUNKS, "stored"),
        chunks_duplicate: IntCounter = new.counter_of(CHUNKS, "duplicate"),
        chunks_lost: IntCounter = new.counter_of(CHUNKS, "lost"),
        pub(crate) chunks_refused: IntCounter = new.counter_of(CHUNKS, "refused"),
        updates_applied: IntCounter = new.counter_of(UPDATES, "applied"),
        updates_stale: IntCounter = new.counter_of(UPDATES, "stale"),
        items_removed: IntCounter = new.counter_of(UPDATES, "removed"),
        evictions_capacity: IntCounter = new.counter_of(EVICTIONS, "capacity"),
        evictions_bytes: IntCounter = new.counter_of(EVICTIONS, "bytes"),
        evictions_used_up: IntCounter = new.counter_of(EVICTIONS, "used-up"),
        items_without_frames: IntCounter = new.counter(
            "replay_items_without_frames_total",
            "Items dropped because frames they need were gone",
        ),
        pub(crate) writers_connected: IntGauge =
            new.count("replay_writers_connected", "Insert streams that are open"),
        pub(crate) writers_waiting: IntGauge =
            new.count("replay_writers_waiting", "Insert streams that wait for the learner"),
        pub(crate) writer_wait_seconds: Counter =
            new.sum("replay_writer_wait_seconds_total", "Time that insert streams have waited"),
        pub(crate) sample_seconds: Histogram =
            new.histogram("replay_sample_seconds", "Time to draw what one request asks for", SECONDS),
        pub(crate) insert_seconds: Histogram =
            new.histogram("replay_insert_seconds", "Time to store one chunk", SECONDS),
        drawn_priority: Histogram =
            new.histogram("replay_drawn_priority", "Priorities of transitions when they are drawn", PRIORITY),
        drawn_age: Histogram = new.histogram(
            "replay_drawn_age_inserts",
            "Inserts since a transition came, when it is drawn",
            AGE,
        ),
        pub(crate) grants_waiting: IntGauge =
            new.count("replay_grants_waiting", "Learners that wait here for inserts"),
        pub(crate) syncs: IntCounter =
            new.counter("replay_syncs_total", "Times that everything was written to the disk"),
        pub(crate) sync_seconds: Histogram =
            new.histogram("replay_sync_seconds", "Time to write what has changed to the disk", SECONDS),
        damaged: IntCounterVec = new.counters(
            "replay_damaged_total",
            "Records found damaged at the start, by kind",
            "kind",
            &DAMAGES,
        ),
        pub(crate) calls_waiting: IntGauge =
            new.count("replay_calls_waiting", "Calls that wait while another uses the store"),
        refused: IntCounterVec = new.counters(
            "replay_requests_refused_total",
            "Calls and streams refused, by why",
            "reason",
            &Reason::NAMES,
        ),
        pub(crate) refusals_logged: Seldom = Seldom::default(),
        pub(crate) waits_logged: Seldom = Seldom::default(),
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
        self.inserts_allowed.set(i64::try_from(status.inserts_allowed).unwrap_or(i64::MAX));
        for (counter, total) in [
            (&self.inserts, tables.inserts),
            (&self.agent_steps, counters.actions),
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
            // The totals only grow, and nobody else counts here. A store that was found begins where it stood.
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }

    /// Counts what was drawn, a whole batch at once.
    pub(crate) fn drawn(&self, batch: &proto::v1::Batch) {
        let (priorities, ages) = (self.drawn_priority.local(), self.drawn_age.local());
        batch.priorities.iter().for_each(|&priority| priorities.observe(priority));
        batch.ages_inserts.iter().for_each(|&age| ages.observe(age as f64));
        priorities.flush();
        ages.flush();
    }

    /// Counts a visit to the disk.
    pub(crate) fn synced(&self, time: Duration) {
        self.syncs.inc();
        self.sync_seconds.observe(time.as_secs_f64());
    }

    /// Counts what a former life left damaged.
    pub(crate) fn recovered(&self, recovered: &Recovered) {
        for (kind, count) in [
            ("chunk", recovered.damaged_chunks),
            ("priority", recovered.damaged_priorities),
            ("lane", recovered.damaged_lanes),
            ("item", recovered.lost_items),
            ("state", recovered.damaged_state.into()),
        ] {
            self.damaged.with_label_values(&[kind]).inc_by(count);
        }
    }

    /// Counts a refusal.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        if let Some(reason) = refusal.reason() {
            self.refused.with_label_values(&[reason.name()]).inc();
            if self.refusals_logged.now() {
                tracing::warn!(reason = reason.name(), "refused a caller: {refusal}");
            }
        }
    }
}

/// Keeps a log readable when a thousand callers have the same to say.
#[derive(Clone, Default)]
pub(crate) struct Seldom(Arc<Mutex<Option<Instant>>>);

impl Seldom {
    /// Whether to log now.
    pub fn now(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= LOG_PERIOD);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

/// Counts one more for as long as it is there.
pub(crate) struct OneMore<'a>(&'a IntGauge);

impl<'a> OneMore<'a> {
    pub fn new(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OneMore<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
