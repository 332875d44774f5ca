//! Blocked callers, and how they are reported: to the writer, in the log, in the metrics, and by Info.
#![allow(clippy::disallowed_methods, reason = "the shard's process measures and waits")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::v1;
use replay::BlockedCaller;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tracing::info;

use crate::metrics::Metrics;
use crate::service::ServiceState;

/// Shorter waits are normal: they keep the samples per insert. Only longer ones are reported.
const FIRST_REPORT_AFTER: Duration = Duration::from_secs(1);
/// Interval of the reports after the first.
const REPORT_PERIOD: Duration = Duration::from_secs(10);
/// The most callers that Info lists.
const LISTED_MAX: usize = 1000;

/// Sends the replies of an insert stream.
pub(crate) type ReplySender = mpsc::Sender<Result<v1::InsertReply, Status>>;

/// All blocked callers, longest first. Clones share the list.
#[derive(Clone, Default)]
pub(crate) struct BlockedCallers(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

struct Entry {
    caller: String,
    blocked_on: String,
    since: Instant,
}

impl BlockedCallers {
    /// Lists a caller as blocked until the returned guard is dropped.
    pub fn enter(&self, caller: &str, blocked_on: &str) -> BlockedGuard {
        let mut list = self.lock();
        let number = list.next;
        list.next += 1;
        let entry =
            Entry { caller: caller.to_owned(), blocked_on: blocked_on.to_owned(), since: Instant::now() };
        list.entries.insert(number, entry);
        BlockedGuard { blocked_callers: self.clone(), number }
    }

    pub fn list(&self) -> Vec<BlockedCaller> {
        let blocked = |entry: &Entry| BlockedCaller {
            caller: entry.caller.clone(),
            blocked_on: entry.blocked_on.clone(),
            blocked_seconds: entry.since.elapsed().as_secs_f64(),
        };
        self.lock().entries.values().take(LISTED_MAX).map(blocked).collect()
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a caller listed as blocked until it is dropped.
pub(crate) struct BlockedGuard {
    blocked_callers: BlockedCallers,
    number: u64,
}

impl BlockedGuard {
    /// Replaces what the caller is blocked on.
    fn set_blocked_on(&self, what: &str) {
        if let Some(entry) = self.blocked_callers.lock().entries.get_mut(&self.number)
            && entry.blocked_on != what
        {
            entry.blocked_on = what.to_owned();
        }
    }
}

impl Drop for BlockedGuard {
    fn drop(&mut self) {
        self.blocked_callers.lock().entries.remove(&self.number);
    }
}

/// A wait of one writer, which counts towards the metrics as long as it lasts.
pub(crate) struct WriterWait<'a> {
    metrics: &'a Metrics,
    caller: &'a str,
    entry: BlockedGuard,
    replies: &'a ReplySender,
    start: Instant,
    counted: Instant,
    next_report: Instant,
}

impl<'a> WriterWait<'a> {
    pub fn new(context: &'a ServiceState, caller: &'a str, what: &str, replies: &'a ReplySender) -> Self {
        let metrics = &context.metrics;
        metrics.writers_blocked.inc();
        let entry = context.blocked_callers.enter(caller, what);
        let start = Instant::now();
        Self {
            metrics,
            caller,
            entry,
            replies,
            start,
            counted: start,
            next_report: start + FIRST_REPORT_AFTER,
        }
    }

    /// Reports periodically what the writer is blocked on. Never returns: select it against the end of the wait.
    pub async fn report(&mut self, what: &str) -> std::convert::Infallible {
        self.entry.set_blocked_on(what);
        loop {
            sleep_until(self.next_report).await;
            self.next_report += REPORT_PERIOD;
            self.count();
            let seconds = self.start.elapsed().as_secs_f64();
            if self.metrics.waits_logged.allow() {
                let writers = self.metrics.writers_blocked.get();
                info!(
                    caller = self.caller,
                    blocked_on = what,
                    blocked_seconds = seconds,
                    blocked_writers = writers,
                    "inserts blocked"
                );
            }
            let blocked = v1::Blocked { on: what.to_owned(), seconds };
            let reply = v1::InsertReply { reply: Some(v1::insert_reply::Reply::Blocked(blocked)) };
            // If the channel is full, the writer is not reading its replies. Storing its chunk must not wait for that.
            let _ = self.replies.try_send(Ok(reply));
        }
    }

    fn count(&mut self) {
        let now = Instant::now();
        self.metrics.writer_wait_seconds.inc_by((now - self.counted).as_secs_f64());
        self.counted = now;
    }
}

impl Drop for WriterWait<'_> {
    fn drop(&mut self) {
        self.count();
        self.metrics.writers_blocked.dec();
    }
}
