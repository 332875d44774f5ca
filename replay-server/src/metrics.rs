//! What the shard exports. `docs/metrics.md` says what each one means and what a bad value looks like.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use replay::store::Recovered;
use replay::{ShardStatus, TableCounters};
use tokio::time::Instant;

use crate::refusal::{Reason, Refusal};

/// From 10 µs, a chunk of a few steps, to about 0.7 s, a batch of thousands on a busy machine.
const SECONDS_FIRST: f64 = 1e-5;
const SECONDS_FACTOR: f64 = 3.0;
const SECONDS_BUCKETS: usize = 11;
/// Of what is drawn: priorities from 2⁻¹² to 32, ages from 64 inserts to two million.
const PRIORITY_FIRST: f64 = 1.0 / 4096.0;
const PRIORITY_BUCKETS: usize = 18;
const AGE_FIRST: f64 = 64.0;
const AGE_BUCKETS: usize = 16;
/// Log lines about the same matter come no more often than this, however many callers it concerns.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// All of them. Clones share the figures.
#[derive(Clone)]
pub struct Metrics {
    items: IntGauge,
    capacity: IntGauge,
    mass: Gauge,
    bytes_used: IntGauge,
    bytes_max: IntGauge,
    inserts: IntCounter,
    inserts_allowed: IntGauge,
    agent_steps: IntCounter,
    samples: IntCounter,
    chunks_stored: IntCounter,
    chunks_duplicate: IntCounter,
    chunks_lost: IntCounter,
    pub(crate) chunks_refused: IntCounter,
    updates_applied: IntCounter,
    updates_stale: IntCounter,
    items_removed: IntCounter,
    evictions_capacity: IntCounter,
    evictions_bytes: IntCounter,
    evictions_used_up: IntCounter,
    items_without_frames: IntCounter,
    pub(crate) writers_connected: IntGauge,
    pub(crate) writers_waiting: IntGauge,
    pub(crate) writer_wait_seconds: Counter,
    pub(crate) sample_seconds: Histogram,
    pub(crate) insert_seconds: Histogram,
    drawn_priority: Histogram,
    drawn_age: Histogram,
    pub(crate) calls_waiting: IntGauge,
    pub(crate) grants_waiting: IntGauge,
    pub(crate) syncs: IntCounter,
    pub(crate) sync_seconds: Histogram,
    damaged: IntCounterVec,
    refused: IntCounterVec,
    pub(crate) refusals_logged: Seldom,
    pub(crate) waits_logged: Seldom,
}

impl Metrics {
    /// Registers all of them, each with every value of its label.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let make = Maker(registry);
        let chunks = make.counters("replay_chunks_total", "Chunks by what became of them", "result")?;
        let updates = make.counters(
            "replay_priority_updates_total",
            "Priority updates by what became of them",
            "result",
        )?;
        let evictions =
            make.counters("replay_evictions_total", "Items that made room, by what for", "cause")?;
        let refused =
            make.counters("replay_requests_refused_total", "Calls and streams refused, by why", "reason")?;
        let damaged =
            make.counters("replay_damaged_total", "Records found damaged at the start, by kind", "kind")?;
        for kind in ["chunk", "priority", "lane", "item", "state"] {
            damaged.with_label_values(&[kind]);
        }
        for reason in Reason::ALL {
            refused.with_label_values(&[reason.name()]);
        }
        let chunk = |result| chunks.with_label_values(&[result]);
        let update = |result| updates.with_label_values(&[result]);
        let eviction = |cause| evictions.with_label_values(&[cause]);
        Ok(Self {
            items: make.gauge("replay_items", "Transitions that can be drawn")?,
            capacity: make.gauge("replay_capacity", "Transitions that there can be")?,
            mass: make
                .add(Gauge::new("replay_mass", "Sum of all weights, or number of items if uniform")?)?,
            bytes_used: make.gauge("replay_bytes_used", "Bytes of the ring that hold chunks")?,
            bytes_max: make.gauge("replay_bytes_max", "Bytes of the ring")?,
            inserts: make.counter("replay_inserts_total", "Transitions stored")?,
            inserts_allowed: make
                .gauge("replay_inserts_allowed", "Inserts that the learner has granted in total")?,
            agent_steps: make.counter("replay_agent_steps_total", "Steps stored that have an action")?,
            samples: make.counter("replay_samples_total", "Transitions drawn")?,
            chunks_stored: chunk("stored"),
            chunks_duplicate: chunk("duplicate"),
            chunks_lost: chunk("lost"),
            chunks_refused: chunk("refused"),
            updates_applied: update("applied"),
            updates_stale: update("stale"),
            items_removed: update("removed"),
            evictions_capacity: eviction("capacity"),
            evictions_bytes: eviction("bytes"),
            evictions_used_up: eviction("used-up"),
            items_without_frames: make.counter(
                "replay_items_without_frames_total",
                "Items dropped because frames they need were gone",
            )?,
            writers_connected: make.gauge("replay_writers_connected", "Insert streams that are open")?,
            writers_waiting: make
                .gauge("replay_writers_waiting", "Insert streams that wait for the learner")?,
            writer_wait_seconds: make.add(Counter::new(
                "replay_writer_wait_seconds_total",
                "Time that insert streams have waited",
            )?)?,
            sample_seconds: make
                .seconds("replay_sample_seconds", "Time to draw what one request asks for")?,
            insert_seconds: make.seconds("replay_insert_seconds", "Time to store one chunk")?,
            drawn_priority: make.doubling(
                "replay_drawn_priority",
                "Priorities of transitions when they are drawn",
                PRIORITY_FIRST,
                PRIORITY_BUCKETS,
            )?,
            drawn_age: make.doubling(
                "replay_drawn_age_inserts",
                "Inserts since a transition came, when it is drawn",
                AGE_FIRST,
                AGE_BUCKETS,
            )?,
            grants_waiting: make.gauge("replay_grants_waiting", "Learners that wait here for inserts")?,
            syncs: make.counter("replay_syncs_total", "Times that everything was written to the disk")?,
            sync_seconds: make
                .seconds("replay_sync_seconds", "Time to write what has changed to the disk")?,
            damaged,
            calls_waiting: make
                .gauge("replay_calls_waiting", "Calls that wait while another uses the store")?,
            refused,
            refusals_logged: Seldom::default(),
            waits_logged: Seldom::default(),
        })
    }

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

/// Makes and registers.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> prometheus::Result<C> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::new(name, help)?)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::new(name, help)?)
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), &[label])?)
    }

    fn seconds(&self, name: &str, help: &str) -> prometheus::Result<Histogram> {
        let buckets = prometheus::exponential_buckets(SECONDS_FIRST, SECONDS_FACTOR, SECONDS_BUCKETS)?;
        self.histogram(name, help, buckets)
    }

    /// A histogram of buckets each twice as wide as the one before.
    fn doubling(&self, name: &str, help: &str, first: f64, buckets: usize) -> prometheus::Result<Histogram> {
        self.histogram(name, help, prometheus::exponential_buckets(first, 2.0, buckets)?)
    }

    fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> prometheus::Result<Histogram> {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?)
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
