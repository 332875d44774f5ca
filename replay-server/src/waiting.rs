//! Waiting, and saying so: to the writer, in the log, in the metrics, and to whoever asks.

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
use crate::service::Context;

/// Waits shorter than this are how the rate is kept, and nobody's concern.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// How often it is said again.
const NEXT_WORDS: Duration = Duration::from_secs(10);
/// Waiters that are told of.
const LISTED_MAX: usize = 1000;

/// The replies of a stream.
pub(crate) type Replies = mpsc::Sender<Result<v1::InsertReply, Status>>;

/// All who wait, in the order in which they began. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Waiters(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

struct Entry {
    who: String,
    what: String,
    since: Instant,
}

impl Waiters {
    /// Enters someone who waits, until what it gives back goes.
    pub fn enter(&self, who: &str, what: &str) -> Waiter {
        let mut book = self.book();
        let number = book.next;
        book.next += 1;
        let entry = Entry { who: who.to_owned(), what: what.to_owned(), since: Instant::now() };
        book.entries.insert(number, entry);
        Waiter { waiters: self.clone(), number }
    }

    /// Those who wait, the longest first.
    pub fn list(&self) -> Vec<BlockedCaller> {
        let blocked = |entry: &Entry| BlockedCaller {
            who: entry.who.clone(),
            on: entry.what.clone(),
            seconds: entry.since.elapsed().as_secs_f64(),
        };
        self.book().entries.values().take(LISTED_MAX).map(blocked).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits.
pub(crate) struct Waiter {
    waiters: Waiters,
    number: u64,
}

impl Waiter {
    /// It waits for something else now.
    fn waits_for(&self, what: &str) {
        if let Some(entry) = self.waiters.book().entries.get_mut(&self.number)
            && entry.what != what
        {
            entry.what = what.to_owned();
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.book().entries.remove(&self.number);
    }
}

/// One wait of one writer, counted for as long as it lasts.
pub(crate) struct Wait<'a> {
    metrics: &'a Metrics,
    who: &'a str,
    entry: Waiter,
    replies: &'a Replies,
    start: Instant,
    counted: Instant,
    next_word: Instant,
}

impl<'a> Wait<'a> {
    pub fn new(context: &'a Context, who: &'a str, what: &str, replies: &'a Replies) -> Self {
        let metrics = &context.metrics;
        metrics.writers_waiting.inc();
        let entry = context.waiters.enter(who, what);
        let start = Instant::now();
        Self { metrics, who, entry, replies, start, counted: start, next_word: start + FIRST_WORD }
    }

    /// Says for what it waits, in due time, for ever. To be raced against what it waits for.
    pub async fn say(&mut self, what: &str) -> std::convert::Infallible {
        self.entry.waits_for(what);
        loop {
            sleep_until(self.next_word).await;
            self.next_word += NEXT_WORDS;
            self.count();
            let seconds = self.start.elapsed().as_secs_f64();
            if self.metrics.waits_logged.now() {
                let writers = self.metrics.writers_waiting.get();
                info!(who = self.who, seconds, writers, "a chunk waits: {what}");
            }
            let waiting = v1::Waiting { what: what.to_owned(), seconds };
            let reply = v1::InsertReply { reply: Some(v1::insert_reply::Reply::Waiting(waiting)) };
            // A writer that does not read does not want to know. Its chunk must not wait for that.
            let _ = self.replies.try_send(Ok(reply));
        }
    }

    fn count(&mut self) {
        let now = Instant::now();
        self.metrics.writer_wait_seconds.inc_by((now - self.counted).as_secs_f64());
        self.counted = now;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.count();
        self.metrics.writers_waiting.dec();
    }
}
