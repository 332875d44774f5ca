//! An actor's connection to one shard. Each chunk is stored exactly once.
//!
//! The writer keeps chunks until they are acknowledged and sends them again in order after a reconnect; the shard
//! discards duplicates. The number of chunks in flight is bounded: sending one more blocks the caller (backpressure).
//! The writer retries an unreachable shard forever, at its current address in the shard directory, and logs that it
//! waits.
#![allow(clippy::disallowed_methods, reason = "the connection owns its timeouts and retries")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::limits::INSERT_BYTES_MAX;
use proto::v1::insert_reply::Reply;
use proto::v1::insert_request::Message;
use proto::v1::replay_client::ReplayClient;
use proto::{convert, v1};
use replay::Chunk;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::channel::{Channel, Credentials};
use crate::role::Role;
use crate::shard::{describe, is_refusal};
use crate::shard_entry::ShardEntry;

/// Timeout for opening a new stream.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(4);

/// Interval of the log line about an unreachable shard.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// State of a writer's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterState {
    Open,
    /// Blocked or disconnected for the given reason, and retrying.
    Waiting(String),
    /// The run has ended.
    Finished,
    /// A newer incarnation of this actor replaced this one: join again.
    Fenced(String),
    /// The shard permanently refuses this actor's chunks.
    Refused(String),
}

impl WriterState {
    /// Whether the writer has ended and sends no more chunks.
    pub fn is_final(&self) -> bool {
        matches!(self, WriterState::Finished | WriterState::Fenced(_) | WriterState::Refused(_))
    }
}

/// Counters of a writer.
#[derive(Debug, Default)]
pub struct Sent {
    pub chunks: AtomicU64,
    /// Acknowledged chunks that the shard had already stored.
    pub duplicates: AtomicU64,
    /// Attempts to reopen the stream.
    pub reconnects: AtomicU64,
    /// Agent steps of the chunks in flight.
    steps_in_flight: AtomicU64,
}

/// An actor's handle to a writer task. After the handle is dropped, the task ends when all chunks are acknowledged, or at
/// the first connection error: call [`ChunkWriter::flush`] first.
#[derive(Debug)]
pub struct ChunkWriter {
    chunks: mpsc::Sender<v1::Chunk>,
    bound: usize,
    room: Arc<Semaphore>,
    state: watch::Receiver<WriterState>,
    sent: Arc<Sent>,
}

impl ChunkWriter {
    /// Spawns a task that writes to a shard. Before each connection it calls `entry` for the shard's current directory
    /// entry; `None` means that the shard is not known yet.
    ///
    /// The actor sends bursts of up to `burst` chunks. Twice as many may be in flight, so one burst travels while the
    /// actor produces the next. `shard` is the shard's number in the log. A hello without a ticket is of a writer without
    /// a learner: it asks the shard for a ticket before each connection.
    pub fn spawn(
        shard: usize,
        entry: impl Fn() -> Option<ShardEntry> + Send + 'static,
        credentials: Credentials,
        hello: v1::InsertHello,
        burst: usize,
        seed: u64,
    ) -> Self {
        let bound = 2 * burst;
        let (chunks, incoming) = mpsc::channel(bound);
        let room = Arc::new(Semaphore::new(bound));
        let connecting = WriterState::Waiting("the shard to answer".into());
        let (report, state) = watch::channel(connecting);
        let sent = Arc::new(Sent::default());
        let task = Task {
            shard,
            entry: Box::new(entry),
            credentials,
            address: "unknown".into(),
            asks_for_ticket: hello.ticket.is_empty(),
            hello,
            bound,
            incoming,
            in_flight: VecDeque::new(),
            room: room.clone(),
            report,
            sent: sent.clone(),
            backoff: Backoff::new(seed),
            warned_at: None,
            blocked: false,
        };
        tokio::spawn(task.run());
        Self { chunks, bound, room, state, sent }
    }

    /// Waits until a whole burst of chunks may be sent. Cancel-safe. An error is the state in which the writer ended.
    pub async fn room(&self) -> Result<(), WriterState> {
        self.room.acquire_many(self.burst() as u32).await.map(drop).map_err(|_| self.state())
    }

    /// Whether a whole burst of chunks may be sent now, or the writer has ended.
    pub fn has_room(&self) -> bool {
        self.room.available_permits() >= self.burst() || self.room.is_closed()
    }

    fn burst(&self) -> usize {
        self.bound / 2
    }

    /// Queues a chunk; waits while too many are in flight.
    pub async fn send(&self, chunk: Chunk) -> Result<(), WriterState> {
        let Ok(permit) = self.room.acquire().await else { return Err(self.state()) };
        permit.forget();
        let chunk = convert::chunk_message(chunk);
        self.sent.steps_in_flight.fetch_add(proto::agent_steps(&chunk), Ordering::Relaxed);
        // The channel's capacity equals the number of permits, so there is room.
        self.chunks.try_send(chunk).map_err(|_| self.state())
    }

    /// Waits until all chunks are acknowledged. An error is the state in which the writer ended.
    pub async fn flush(&self) -> Result<(), WriterState> {
        let all = self.room.acquire_many(self.bound as u32).await;
        all.map(drop).map_err(|_| self.state())
    }

    pub fn state(&self) -> WriterState {
        self.state.borrow().clone()
    }

    /// Number of chunks that are not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.bound.saturating_sub(self.room.available_permits())
    }

    /// Agent steps of the chunks that are not acknowledged.
    pub fn steps_in_flight(&self) -> u64 {
        self.sent.steps_in_flight.load(Ordering::Relaxed)
    }

    pub fn sent(&self) -> &Sent {
        &self.sent
    }
}

struct Task {
    /// The shard's number, for the log.
    shard: usize,
    entry: Box<dyn Fn() -> Option<ShardEntry> + Send>,
    credentials: Credentials,
    /// The shard's address at the last connection attempt, for logs.
    address: String,
    /// Whether the shard issues the ticket. It does so again after a restart, when it may have another key.
    asks_for_ticket: bool,
    hello: v1::InsertHello,
    bound: usize,
    incoming: mpsc::Receiver<v1::Chunk>,
    /// Chunks sent and not acknowledged, oldest first.
    in_flight: VecDeque<v1::Chunk>,
    room: Arc<Semaphore>,
    report: watch::Sender<WriterState>,
    sent: Arc<Sent>,
    backoff: Backoff,
    warned_at: Option<Instant>,
    /// Whether the shard has reported this stream as blocked since its last acknowledgement.
    blocked: bool,
}

/// The error of a writer whose shard has no address yet.
const NOT_DISCOVERED: &str = "not discovered by the learner yet";

/// Why a stream ended.
enum End {
    /// The actor dropped its handle and all chunks are acknowledged.
    Done,
    Finished,
    Broken(Status),
}

impl Task {
    async fn run(mut self) {
        loop {
            let end = match self.open().await {
                Ok((requests, mut replies)) => {
                    self.report.send_replace(WriterState::Open);
                    self.exchange(&requests, &mut replies).await
                }
                Err(status) => End::Broken(status),
            };
            let status = match end {
                End::Done => return,
                End::Finished => return self.end(WriterState::Finished),
                End::Broken(status) => status,
            };
            let reason = describe(&status);
            match status.code() {
                Code::FailedPrecondition => return self.end(WriterState::Fenced(reason)),
                // Retrying would get the same answer.
                _ if is_refusal(&status) => return self.end(WriterState::Refused(reason)),
                _ => {}
            }
            self.report
                .send_replace(WriterState::Waiting(format!("the shard at {}: {reason}", self.address)));
            if self.warned_at.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
                self.warned_at = Some(Instant::now());
                let (shard, shard_id, chunks_in_flight) =
                    (self.shard, &self.hello.shard, self.in_flight.len());
                if status.message() == NOT_DISCOVERED {
                    info!(
                        shard,
                        chunks_in_flight,
                        "shard not discovered by the learner yet, inserts are on hold, retrying"
                    );
                } else {
                    let address = &self.address;
                    warn!(
                        shard,
                        address,
                        shard_id,
                        error = reason,
                        chunks_in_flight,
                        "shard unreachable, retrying"
                    );
                }
            }
            sleep(self.backoff.next()).await;
            self.sent.reconnects.fetch_add(1, Ordering::Relaxed);
            if self.incoming.is_closed() && self.incoming.is_empty() {
                // The actor is gone, so no caller waits for an acknowledgement.
                return;
            }
        }
    }

    /// Call when the shard has answered a chunk. An open stream alone does not prove that the shard processes chunks.
    fn note_progress(&mut self) {
        self.backoff.reset();
        if self.warned_at.take().is_some() {
            let (shard, address, shard_id) = (self.shard, &self.address, &self.hello.shard);
            info!(shard, address, shard_id, chunks_in_flight = self.in_flight.len(), "shard reachable again");
        }
    }

    fn end(self, state: WriterState) {
        self.report.send_replace(state);
        self.room.close();
    }

    async fn open(
        &mut self,
    ) -> Result<(mpsc::Sender<v1::InsertRequest>, Streaming<v1::InsertReply>), Status> {
        let unknown = || Status::unavailable(NOT_DISCOVERED);
        let ShardEntry { address, id, .. } = (self.entry)().ok_or_else(unknown)?;
        (self.address, self.hello.shard) = (address.to_string(), id);
        let channel = self.credentials.channel(Role::Replay, &address);
        let mut client = ReplayClient::new(channel).max_encoding_message_size(INSERT_BYTES_MAX);
        if self.asks_for_ticket {
            self.hello.ticket = issue_ticket(&mut client, &self.hello).await?;
        }
        // Room for all chunks in flight and the hello, so `try_send` never fails for lack of room. Backpressure comes
        // from the permits instead.
        let (requests, receiver) = mpsc::channel(self.bound + 1);
        let request = |message| v1::InsertRequest { message: Some(message) };
        let again = self.in_flight.iter().cloned().map(|chunk| request(Message::Chunk(chunk)));
        for message in std::iter::once(request(Message::Hello(self.hello.clone()))).chain(again) {
            requests.try_send(message).expect("the channel has room for all chunks in flight");
        }
        let call = client.insert(ReceiverStream::new(receiver));
        let replies = timeout(OPEN_WAIT_MAX, call).await.map_err(|_| late())??;
        Ok((requests, replies.into_inner()))
    }

    async fn exchange(
        &mut self,
        requests: &mpsc::Sender<v1::InsertRequest>,
        replies: &mut Streaming<v1::InsertReply>,
    ) -> End {
        let mut more = true;
        loop {
            if !more && self.in_flight.is_empty() {
                return End::Done;
            }
            tokio::select! {
                reply = replies.message() => match reply {
                    Ok(Some(v1::InsertReply { reply: Some(Reply::Stored(stored)) })) => {
                        if let Err(status) = self.acknowledged(&stored) {
                            return End::Broken(status);
                        }
                    }
                    Ok(Some(v1::InsertReply { reply: Some(Reply::Blocked(waiting)) })) => {
                        self.note_progress();
                        self.blocked = true;
                        info!(
                            address = self.address,
                            shard_id = self.hello.shard,
                            blocked_on = waiting.on,
                            blocked_seconds = waiting.seconds,
                            "inserts blocked"
                        );
                        self.report.send_replace(WriterState::Waiting(waiting.on));
                    }
                    Ok(Some(v1::InsertReply { reply: Some(Reply::Finished(_)) })) => return End::Finished,
                    Ok(Some(v1::InsertReply { reply: None })) => {}
                    Ok(None) => return End::Broken(Status::unavailable("the shard closed the insert stream")),
                    Err(status) => return End::Broken(status),
                },
                chunk = self.incoming.recv(), if more => match chunk {
                    Some(chunk) => {
                        self.in_flight.push_back(chunk.clone());
                        let request = v1::InsertRequest { message: Some(Message::Chunk(chunk)) };
                        if requests.try_send(request).is_err() {
                            return End::Broken(Status::unavailable("the shard closed the insert stream"));
                        }
                    }
                    None => more = false,
                },
            }
        }
    }

    /// Handles one acknowledgement. The shard acknowledges chunks in the order in which they were sent.
    fn acknowledged(&mut self, stored: &v1::Stored) -> Result<(), Status> {
        let oldest = self.in_flight.front();
        let same = |chunk: &v1::Chunk| {
            chunk.sequence == stored.sequence && chunk.lane.is_some_and(|lane| lane.lane == stored.lane)
        };
        if !oldest.is_some_and(same) {
            return Err(Status::internal("the shard acknowledged chunks out of order"));
        }
        self.note_progress();
        let steps = self.in_flight.pop_front().map_or(0, |chunk| proto::agent_steps(&chunk));
        self.sent.steps_in_flight.fetch_sub(steps, Ordering::Relaxed);
        // Count before the permit wakes `flush`, because its caller may read the counters at once.
        self.sent.chunks.fetch_add(1, Ordering::Relaxed);
        self.sent.duplicates.fetch_add(u64::from(stored.duplicate), Ordering::Relaxed);
        self.room.add_permits(1);
        if std::mem::take(&mut self.blocked) {
            info!(address = self.address, shard_id = self.hello.shard, "inserts resumed");
        }
        if matches!(*self.report.borrow(), WriterState::Waiting(_)) {
            self.report.send_replace(WriterState::Open);
        }
        Ok(())
    }
}

/// Asks a shard for the ticket of a hello's identity.
async fn issue_ticket(
    client: &mut ReplayClient<Channel>,
    hello: &v1::InsertHello,
) -> Result<bytes::Bytes, Status> {
    let v1::InsertHello { caller, actor, incarnation, .. } = hello.clone();
    let call = client.issue_ticket(v1::IssueTicketRequest { caller, actor, incarnation });
    Ok(timeout(OPEN_WAIT_MAX, call).await.map_err(|_| late())??.into_inner().ticket)
}

fn late() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", OPEN_WAIT_MAX.as_secs()))
}

/// Waits until one of the writers has room or has ended. Returns at once without writers.
pub async fn any_room(writers: &[&ChunkWriter]) {
    let waits = writers.iter().map(|writer| Box::pin(writer.room()));
    if writers.is_empty() {
        return;
    }
    futures_util::future::select_all(waits).await.0.ok();
}
