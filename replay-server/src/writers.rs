//! One insert stream: hello, then chunk after chunk, each stored before the next is read.
//!
//! Backpressure on a writer is only here: it waits first until a learner has configured the shard, then with each chunk
//! until there is allowance, in both cases without a time limit. While a chunk is blocked the stream is not read. This
//! blocks the writer and keeps each stream at one chunk in the shard's memory. `insert_streams` bounds the streams, and
//! `insert_budget` what they hold.

use std::sync::Arc;
use std::time::Duration;

use proto::convert::StoreSpec;
use proto::v1;
use proto::v1::insert_reply::Reply;
use proto::v1::insert_request::Message;
use replay::{Chunk, Inserted};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::blocked::{ReplySender, WriterWait};
use crate::convert;
use crate::insert_budget::StreamBudget;
use crate::insert_streams::PendingStream;
use crate::refusal::Refusal;
use crate::service::ServiceState;
use crate::shard::{InsertDecision, WriterIdentity};

/// How long a stream may be open without its first message. Clients send it at once, and the number of streams is
/// limited.
pub(crate) const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a stream ends early.
pub(crate) enum StreamEnd {
    /// The shard refused a message.
    Refused(Refusal),
    /// The transport failed; its status, translated.
    Transport(Status),
    /// The caller no longer reads the replies.
    Disconnected,
}

impl From<Refusal> for StreamEnd {
    fn from(refusal: Refusal) -> Self {
        StreamEnd::Refused(refusal)
    }
}

/// Serves a stream until its writer has nothing more to send, or the run has ended.
pub(crate) async fn serve(
    context: &ServiceState,
    mut requests: Streaming<v1::InsertRequest>,
    mut pending: PendingStream,
    budget: &StreamBudget,
    replies: &ReplySender,
) -> Result<(), StreamEnd> {
    let first = tokio::select! {
        first = timeout(FIRST_MESSAGE_TIMEOUT, next(context, &mut requests)) => first,
        refusal = pending.ended() => return Err(refusal.into()),
    };
    let hello = match first.map_err(|_| Refusal::FirstMessageTimeout(FIRST_MESSAGE_TIMEOUT))?? {
        Some(Message::Hello(hello)) => hello,
        _ => return Err(Refusal::ExpectedHello.into()),
    };
    let writer = convert::writer(hello)?;
    let caller = format!("actor {}", writer.actor);
    // Before the stream counts as the actor's: a caller with a forged ticket must not use up what its victim may have.
    let admitted = admit(context, &writer).await?;
    let stream = pending.identify(writer.actor)?;
    budget.set_actor(stream.budget.clone());
    let spec = match admitted {
        Some(spec) => spec,
        None => wait_for_configuration(context, &writer, &caller, replies).await?,
    };
    loop {
        let message = tokio::select! {
            // Biased: a chunk that arrived before the end of the run is still stored.
            biased;
            message = next(context, &mut requests) => message?,
            ended = context.shard.wait_for_phase(|phase| phase.finished) => {
                ended?;
                return finish(replies).await;
            }
        };
        let chunk = match message {
            None => return Ok(()),
            Some(Message::Hello(_)) => return Err(Refusal::ExpectedHello.into()),
            Some(Message::Chunk(chunk)) => check(&writer, &spec, chunk),
        };
        let stored = match chunk {
            Ok(chunk) => store(context, chunk, &caller, replies).await,
            Err(refusal) => Err(refusal),
        };
        match stored {
            Ok(Some(stored)) => send(replies, Reply::Stored(stored)).await?,
            Ok(None) => return finish(replies).await,
            Err(refusal) => {
                context.metrics.chunks_refused.inc_by(u64::from(refusal.reason().is_some()));
                return Err(refusal.into());
            }
        }
    }
}

/// The next message, or `None` when the writer has sent its last.
async fn next(
    context: &ServiceState,
    requests: &mut Streaming<v1::InsertRequest>,
) -> Result<Option<Message>, StreamEnd> {
    match requests.message().await {
        Ok(None) => Ok(None),
        Ok(Some(request)) => Ok(Some(request.message.ok_or(Refusal::ExpectedHello)?)),
        Err(status) => Err(StreamEnd::Transport(context.edge.refuse(status))),
    }
}

/// Admits a writer of this run that proves its identity and has the right frame format. `None` if the shard cannot tell
/// yet, because no learner has configured it.
async fn admit(context: &ServiceState, writer: &WriterIdentity) -> Result<Option<Arc<StoreSpec>>, Refusal> {
    let writer = writer.clone();
    context.shard.call(move |shard| shard.admit(&writer)).await?
}

/// Blocks until a learner has configured the shard, then admits the writer.
async fn wait_for_configuration(
    context: &ServiceState,
    writer: &WriterIdentity,
    caller: &str,
    replies: &ReplySender,
) -> Result<Arc<StoreSpec>, Refusal> {
    let what = "shard configuration";
    let mut wait = WriterWait::new(context, caller, what, replies);
    tokio::select! {
        never = wait.report(what) => match never {},
        configured = context.shard.wait_for_phase(|phase| phase.verifies) => configured?,
    };
    Ok(admit(context, writer).await?.expect("the shard is configured"))
}

fn check(writer: &WriterIdentity, spec: &StoreSpec, chunk: v1::Chunk) -> Result<Chunk, Refusal> {
    let chunk = proto::convert::chunk(chunk, spec.actions)?;
    let (actor, incarnation) = (chunk.lane.actor, chunk.lane.incarnation);
    if (actor, incarnation) != (writer.actor, writer.incarnation) {
        return Err(Refusal::OtherWriter { actor, incarnation });
    }
    Ok(chunk)
}

/// Stores a chunk once there is allowance. `None` if the run ends first.
async fn store(
    context: &ServiceState,
    mut chunk: Chunk,
    caller: &str,
    replies: &ReplySender,
) -> Result<Option<v1::Stored>, Refusal> {
    let (lane, sequence) = (chunk.lane.lane, chunk.sequence);
    let (mut wait, mut turn) = (None, None);
    loop {
        let (decision, time) = context.shard.timed(move |shard| shard.insert(chunk)).await?;
        turn.take().into_iter().for_each(crate::shared_shard::TurnGuard::disarm);
        let allowance = match decision? {
            InsertDecision::Stored(inserted) => {
                context.metrics.insert_seconds.observe(time.as_secs_f64());
                return Ok(Some(stored_message(lane, sequence, inserted)));
            }
            InsertDecision::Finished => return Ok(None),
            InsertDecision::Blocked { chunk: back, allowance } => {
                chunk = back;
                allowance
            }
        };
        let what = format!("insert allowance (limit {allowance})");
        let wait = wait.get_or_insert_with(|| WriterWait::new(context, caller, &what, replies));
        tokio::select! {
            () = context.shard.next_turn() => turn = Some(context.shard.turn_guard()),
            never = wait.report(&what) => match never {},
            ended = context.shard.wait_for_phase(|phase| phase.finished) => {
                ended?;
                return Ok(None);
            }
        }
    }
}

fn stored_message(lane: u32, sequence: u64, inserted: Inserted) -> v1::Stored {
    v1::Stored {
        lane,
        sequence,
        duplicate: inserted.duplicate,
        items: inserted.items,
        items_without_frames: inserted.items_without_frames,
        chunks_lost: inserted.chunks_lost,
    }
}

async fn finish(replies: &ReplySender) -> Result<(), StreamEnd> {
    send(replies, Reply::Finished(v1::Finished {})).await
}

async fn send(replies: &ReplySender, reply: Reply) -> Result<(), StreamEnd> {
    replies.send(Ok(v1::InsertReply { reply: Some(reply) })).await.map_err(|_| StreamEnd::Disconnected)
}
