//! Waiting, and saying so: to the writer, in the log and in the metrics.

use std::time::Duration;

use proto::v1;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tracing::info;

use crate::metrics::Metrics;

/// Waits shorter than this are how the rate is kept, and nobody's concern.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// How often it is said again.
const NEXT_WORDS: Duration = Duration::from_secs(10);

/// The replies of a stream.
pub(crate) type Replies = mpsc::Sender<Result<v1::InsertReply, Status>>;

/// One wait of one writer, counted for as long as it lasts.
pub(crate) struct Wait<'a> {
    metrics: &'a Metrics,
    replies: &'a Replies,
    start: Instant,
    counted: Instant,
    next_word: Instant,
}

impl<'a> Wait<'a> {
    pub fn new(metrics: &'a Metrics, replies: &'a Replies) -> Self {
        metrics.writers_waiting.inc();
        let start = Instant::now();
        Self { metrics, replies, start, counted: start, next_word: start + FIRST_WORD }
    }

    /// Says for what it waits, in due time, for ever. To be raced against what it waits for.
    pub async fn say(&mut self, what: &str) -> std::convert::Infallible {
        loop {
            sleep_until(self.next_word).await;
            self.next_word += NEXT_WORDS;
            self.count();
            let seconds = self.start.elapsed().as_secs_f64();
            if self.metrics.waits_logged.now() {
                let writers = self.metrics.writers_waiting.get();
                info!(writers, seconds, "a chunk waits: {what}");
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
