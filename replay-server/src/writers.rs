//! One insert stream: hello, then chunk after chunk, each stored before the next is read.
//!
//! A writer waits here and nowhere else: for the learner to say what the shard holds, then for each chunk until there
//! is allowance. Not reading on is what holds the writer back, so a stream has one chunk at the shard at most.

use std::sync::Arc;
use std::time::Duration;

use proto::convert::StoreSpec;
use proto::v1;
use proto::v1::insert_reply::Reply;
use proto::v1::insert_request::Message;
use replay::{Chunk, Inserted};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::convert;
use crate::refusal::Refusal;
use crate::service::Context;
use crate::shard::{Fate, Writer};
use crate::waiting::{Replies, Wait};

/// How long a stream may be silent before its first message. Clients send it at once; places for streams are few.
pub(crate) const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// Why a stream ends before its time.
pub(crate) enum End {
    /// With a status of ours.
    Refused(Refusal),
    /// With one that the transport gave, translated.
    Transport(Status),
    /// The caller does not listen any more.
    Gone,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        End::Refused(refusal)
    }
}

/// Serves a stream until its writer has nothing more to send, or the run has ended.
pub(crate) async fn serve(
    context: &Context,
    mut requests: Streaming<v1::InsertRequest>,
    replies: &Replies,
) -> Result<(), End> {
    let first = timeout(HELLO_PATIENCE, next(context, &mut requests));
    let hello = match first.await.map_err(|_| Refusal::Silent(HELLO_PATIENCE))?? {
        Some(Message::Hello(hello)) => hello,
        _ => return Err(Refusal::Hello.into()),
    };
    let writer = convert::writer(hello)?;
    let who = format!("actor {}", writer.actor);
    let spec = admit(context, &writer, &who, replies).await?;
    loop {
        let message = tokio::select! {
            // What was sent before the end is still taken in, if it came in time.
            biased;
            message = next(context, &mut requests) => message?,
            ended = context.shard.phase(|phase| phase.finished) => {
                ended?;
                return finish(replies).await;
            }
        };
        let chunk = match message {
            None => return Ok(()),
            Some(Message::Hello(_)) => return Err(Refusal::Hello.into()),
            Some(Message::Chunk(chunk)) => check(&writer, &spec, chunk),
        };
        let stored = match chunk {
            Ok(chunk) => store(context, chunk, &who, replies).await,
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
    context: &Context,
    requests: &mut Streaming<v1::InsertRequest>,
) -> Result<Option<Message>, End> {
    match requests.message().await {
        Ok(None) => Ok(None),
        Ok(Some(request)) => Ok(Some(request.message.ok_or(Refusal::Hello)?)),
        Err(status) => Err(End::Transport(context.edge.refuse(status))),
    }
}

/// Lets a writer in that is of this run and whose frames fit, once the shard knows what fits.
async fn admit(
    context: &Context,
    writer: &Writer,
    who: &str,
    replies: &Replies,
) -> Result<Arc<StoreSpec>, Refusal> {
    let ask = || {
        let writer = writer.clone();
        context.shard.call(move |shard| shard.admit(&writer))
    };
    if let Some(spec) = ask().await?? {
        return Ok(spec);
    }
    let what = "the learner has not said yet what this shard holds";
    let mut wait = Wait::new(context, who, what, replies);
    tokio::select! {
        never = wait.say(what) => match never {},
        configured = context.shard.phase(|phase| phase.configured) => configured?,
    };
    Ok(ask().await??.expect("a configured shard knows what it holds"))
}

fn check(writer: &Writer, spec: &StoreSpec, chunk: v1::Chunk) -> Result<Chunk, Refusal> {
    let chunk = proto::convert::chunk(chunk, spec.actions)?;
    let (actor, incarnation) = (chunk.lane.actor, chunk.lane.incarnation);
    if (actor, incarnation) != (writer.actor, writer.incarnation) {
        return Err(Refusal::OtherWriter { actor, incarnation });
    }
    Ok(chunk)
}

/// Stores a chunk as soon as there is room for it. `None` if the run ends before.
async fn store(
    context: &Context,
    mut chunk: Chunk,
    who: &str,
    replies: &Replies,
) -> Result<Option<v1::Stored>, Refusal> {
    let (lane, sequence) = (chunk.lane.lane, chunk.sequence);
    let (mut wait, mut turn) = (None, None);
    loop {
        let (fate, time) = context.shard.timed(move |shard| shard.insert(chunk)).await?;
        turn.take().into_iter().for_each(crate::owner::Turn::done);
        let allowance = match fate? {
            Fate::Stored(inserted) => {
                context.metrics.insert_seconds.observe(time.as_secs_f64());
                return Ok(Some(stored_message(lane, sequence, inserted)));
            }
            Fate::Finished => return Ok(None),
            Fate::Held { chunk: back, allowance } => {
                chunk = back;
                allowance
            }
        };
        let what = format!("the learner grants no more inserts (allowance {allowance} reached)");
        let wait = wait.get_or_insert_with(|| Wait::new(context, who, &what, replies));
        tokio::select! {
            () = context.shard.queue() => turn = Some(context.shard.turn()),
            never = wait.say(&what) => match never {},
            ended = context.shard.phase(|phase| phase.finished) => {
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

async fn finish(replies: &Replies) -> Result<(), End> {
    send(replies, Reply::Finished(v1::Finished {})).await
}

async fn send(replies: &Replies, reply: Reply) -> Result<(), End> {
    replies.send(Ok(v1::InsertReply { reply: Some(reply) })).await.map_err(|_| End::Gone)
}
