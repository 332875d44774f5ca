//! Bounds the memory of messages on insert streams.
//!
//! A message is held from its first byte until its chunk is stored: while the rest arrives, and while the chunk is
//! blocked. A large one takes its size from the budgets of its actor and of the shard before more than its first frame
//! is read, and must then arrive in time. A message that has to wait for that is not read, which is backpressure as
//! usual. Small messages, which are nearly all, take nothing, so that those who send large ones do not delay them.
#![allow(clippy::disallowed_methods, reason = "a message that is sent too slowly is cut off")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::try_unfold;
use http_body_util::{BodyExt, StreamBody};
use proto::limits::INSERT_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

/// A message up to this size takes nothing from the budgets. As large as a frame of HTTP/2, which is read at once. Each of
/// 1,024 streams may hold one such message and one more frame: 512 MiB.
const FREE_BYTES: usize = 256 << 10;
/// Bytes that the larger messages of one actor may take together: four of the largest.
const ACTOR_BYTES_MAX: usize = 32 << 20;
/// Bytes that the larger messages of all actors may take together.
const SHARD_BYTES_MAX: usize = 256 << 20;
/// How long a larger message may take to arrive. The largest needs 1.1 Mbit/s.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one permit.
const PERMIT_BYTES: usize = 1 << 10;
/// Bytes of the header of a gRPC message: a flag and the length.
const HEADER_BYTES: usize = 5;

/// The budget of one actor.
pub(crate) fn actor_budget() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ACTOR_BYTES_MAX / PERMIT_BYTES))
}

/// The budget of a shard.
pub(crate) fn shard_budget() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(SHARD_BYTES_MAX / PERMIT_BYTES))
}

/// From what budgets a stream takes the size of its messages.
pub(crate) struct StreamBudget {
    shard: Arc<Semaphore>,
    actor: OnceLock<Arc<Semaphore>>,
}

impl StreamBudget {
    pub fn new(shard: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { shard, actor: OnceLock::new() })
    }

    /// Sets the budget of the stream's actor, which its hello has named.
    pub fn set_actor(&self, actor: Arc<Semaphore>) {
        // A stream has one hello.
        let _ = self.actor.set(actor);
    }

    /// Waits until there is room for a message of this size.
    async fn take(&self, bytes: usize) -> Result<[OwnedSemaphorePermit; 2], Status> {
        let no_hello =
            || Status::invalid_argument("the first message must be the hello, all others must be chunks");
        let actor = self.actor.get().ok_or_else(no_hello)?;
        let permits = bytes.min(INSERT_BYTES_MAX).div_ceil(PERMIT_BYTES) as u32;
        let closed = |_| Status::unavailable("the shard is stopping: retry later");
        // The actor's first: while it waits for that, it takes nothing from the others.
        let of_actor = actor.clone().acquire_many_owned(permits).await.map_err(closed)?;
        let of_shard = self.shard.clone().acquire_many_owned(permits).await.map_err(closed)?;
        Ok([of_actor, of_shard])
    }
}

/// The same request body, read within the budget.
pub(crate) fn bounded(body: Body, budget: Arc<StreamBudget>) -> Body {
    let reading = Reading { body, budget, message: Message::default(), held: None };
    Body::new(StreamBody::new(try_unfold(reading, async |mut reading: Reading| {
        reading.make_room().await?;
        let frame = match &reading.held {
            None => reading.body.frame().await,
            Some((_, deadline)) => {
                timeout_at(*deadline, reading.body.frame()).await.map_err(|_| too_slow())?
            }
        };
        let frame = frame.transpose()?;
        if let Some(bytes) = frame.as_ref().and_then(|frame| frame.data_ref()) {
            reading.message.advance(bytes);
        }
        Ok::<_, Status>(frame.map(|frame| (frame, reading)))
    })))
}

fn too_slow() -> Status {
    Status::deadline_exceeded(format!(
        "a message took more than {MESSAGE_TIMEOUT:?} to arrive: send smaller chunks"
    ))
}

/// A body that is being read. It is read only when all complete messages of it have been processed.
struct Reading {
    body: Body,
    budget: Arc<StreamBudget>,
    message: Message,
    /// What the message holds, and when it must be complete.
    held: Option<([OwnedSemaphorePermit; 2], Instant)>,
}

impl Reading {
    /// Returns what a processed message held, and waits until there is room for the one that has begun.
    async fn make_room(&mut self) -> Result<(), Status> {
        if self.message.is_complete() {
            self.held = None;
        } else if self.held.is_none() && self.message.length > FREE_BYTES {
            let permits = self.budget.take(self.message.length).await?;
            self.held = Some((permits, Instant::now() + MESSAGE_TIMEOUT));
        }
        Ok(())
    }
}

/// The last message that has begun, by the framing of gRPC.
#[derive(Default)]
struct Message {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that have arrived.
    header_bytes: usize,
    length: usize,
    /// Bytes that have not arrived.
    missing: usize,
}

impl Message {
    fn is_complete(&self) -> bool {
        self.missing == 0
    }

    fn advance(&mut self, bytes: &Bytes) {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if self.missing > 0 {
                let count = self.missing.min(rest.len());
                (self.missing, rest) = (self.missing - count, &rest[count..]);
                continue;
            }
            let count = (HEADER_BYTES - self.header_bytes).min(rest.len());
            self.header[self.header_bytes..][..count].copy_from_slice(&rest[..count]);
            (self.header_bytes, rest) = (self.header_bytes + count, &rest[count..]);
            if self.header_bytes == HEADER_BYTES {
                let [_, length @ ..] = self.header;
                self.length = u32::from_be_bytes(length) as usize;
                (self.missing, self.header_bytes) = (self.length, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
