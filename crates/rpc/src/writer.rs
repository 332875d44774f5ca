//! An actor's connection to one shard: chunks in, exactly once.
//!
//! Chunks that are not acknowledged are kept, and sent again in order when the connection is back; the shard drops what
//! it has already. Their number is bounded, and whoever sends one more waits. A shard that is gone is tried again for
//! ever, wherever it is now, and the log says so.

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
use crate::channel::Credentials;
use crate::place::Place;
use crate::role::Role;
use crate::shard::{describe, is_refusal};

/// How long a new stream may take to open.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(4);

/// How often a log line repeats that a shard can't be reached.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// How a writer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Connected.
    Open,
    /// Something is in the way; it will pass.
    Waiting(String),
    /// The run has ended.
    Finished,
    /// A newer start of this actor took over: join again.
    Fenced(String),
    /// The shard will never take this actor's chunks.
    Refused(String),
}

impl State {
    /// Whether nothing more can be sent.
    pub fn is_final(&self) -> bool {
        matches!(self, State::Finished | State::Fenced(_) | State::Refused(_))
    }
}

/// What a writer has done.
#[derive(Debug, Default)]
pub struct Sent {
    /// Chunks acknowledged.
    pub chunks: AtomicU64,
    /// Of these, chunks that the shard had already.
    pub duplicates: AtomicU64,
    /// Times that the stream was opened again.
    pub reconnects: AtomicU64,
}

/// The end of a writer that an actor holds.
#[derive(Debug)]
pub struct Writer {
    chunks: mpsc::Sender<v1::Chunk>,
    bound: usize,
    room: Arc<Semaphore>,
    state: watch::Receiver<State>,
    sent: Arc<Sent>,
}

impl Writer {
    /// Starts writing to a shard in the background; `place` says before each connection where it is, or that nobody knows.
    /// The actor sends up to `at_once` chunks one after the other; twice as many may be under way: some travel while the
    /// next are made.
    pub fn spawn(
        place: impl Fn() -> Option<Place> + Send + 'static,
        credentials: Credentials,
        hello: v1::InsertHello,
        at_once: usize,
        seed: u64,
    ) -> Self {
        let bound = 2 * at_once;
        let (chunks, incoming) = mpsc::channel(bound);
        let room = Arc::new(Semaphore::new(bound));
        let connecting = State::Waiting("the shard to answer".into());
        let (report, state) = watch::channel(connecting);
        let sent = Arc::new(Sent::default());
        let task = Task {
            place: Box::new(place),
            credentials,
            address: "unknown".into(),
            hello,
            bound,
            incoming,
            under_way: VecDeque::new(),
            room: room.clone(),
            report,
            sent: sent.clone(),
            backoff: Backoff::new(seed),
            complained: None,
        };
        tokio::spawn(task.run());
        Self { chunks, bound, room, state, sent }
    }

    /// Waits until `at_once` more chunks may be under way. May be given up at any time. An error is the state in which the
    /// writer ended.
    pub async fn room(&self) -> Result<(), State> {
        self.room.acquire_many(self.at_once() as u32).await.map(drop).map_err(|_| self.state())
    }

    /// Whether `at_once` more chunks may be under way now.
    pub fn has_room(&self) -> bool {
        self.room.available_permits() >= self.at_once() || self.room.is_closed()
    }

    fn at_once(&self) -> usize {
        self.bound / 2
    }

    /// Hands over a chunk; waits as long as too many are under way.
    pub async fn send(&self, chunk: Chunk) -> Result<(), State> {
        let Ok(permit) = self.room.acquire().await else { return Err(self.state()) };
        permit.forget();
        // There is room for as many as have permits.
        self.chunks.try_send(convert::chunk_message(chunk)).map_err(|_| self.state())
    }

    /// Waits until everything is acknowledged, or the writer has ended.
    pub async fn flush(&self) -> Result<(), State> {
        let all = self.room.acquire_many(self.bound as u32).await;
        all.map(drop).map_err(|_| self.state())
    }

    /// How it stands.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Chunks that are not acknowledged.
    pub fn under_way(&self) -> usize {
        self.bound.saturating_sub(self.room.available_permits())
    }

    /// What it has done.
    pub fn sent(&self) -> &Sent {
        &self.sent
    }
}

struct Task {
    place: Box<dyn Fn() -> Option<Place> + Send>,
    credentials: Credentials,
    /// Where it was when it was last looked for, for people.
    address: String,
    hello: v1::InsertHello,
    bound: usize,
    incoming: mpsc::Receiver<v1::Chunk>,
    /// Sent and not acknowledged, oldest first.
    under_way: VecDeque<v1::Chunk>,
    room: Arc<Semaphore>,
    report: watch::Sender<State>,
    sent: Arc<Sent>,
    backoff: Backoff,
    complained: Option<Instant>,
}

/// Why a stream ended.
enum End {
    /// The actor has gone and everything is acknowledged.
    Done,
    Finished,
    Broken(Status),
}

impl Task {
    async fn run(mut self) {
        loop {
            let end = match self.open().await {
                Ok((requests, mut replies)) => {
                    self.report.send_replace(State::Open);
                    self.exchange(&requests, &mut replies).await
                }
                Err(status) => End::Broken(status),
            };
            let status = match end {
                End::Done => return,
                End::Finished => return self.end(State::Finished),
                End::Broken(status) => status,
            };
            let reason = describe(&status);
            match status.code() {
                Code::FailedPrecondition => return self.end(State::Fenced(reason)),
                _ if is_refusal(&status) => return self.end(State::Refused(reason)),
                _ => {}
            }
            self.report.send_replace(State::Waiting(format!("the shard at {}: {reason}", self.address)));
            if self.complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
                self.complained = Some(Instant::now());
                warn!(shard = %self.address, reason, under_way = self.under_way.len(), "waiting for the shard");
            }
            sleep(self.backoff.next()).await;
            self.sent.reconnects.fetch_add(1, Ordering::Relaxed);
            if self.incoming.is_closed() && self.incoming.is_empty() {
                // Nobody is left who would wait for an acknowledgement.
                return;
            }
        }
    }

    /// The shard deals with what this writer sends. That it let a stream open does not mean that yet.
    fn taken_up(&mut self) {
        self.backoff.reset();
        if self.complained.take().is_some() {
            info!(shard = %self.address, again = self.under_way.len(), "the shard is back");
        }
    }

    fn end(self, state: State) {
        self.report.send_replace(state);
        self.room.close();
    }

    async fn open(
        &mut self,
    ) -> Result<(mpsc::Sender<v1::InsertRequest>, Streaming<v1::InsertReply>), Status> {
        let unheard = || Status::unavailable("the learner has not found this shard yet");
        let Place { address, id, .. } = (self.place)().ok_or_else(unheard)?;
        (self.address, self.hello.shard) = (address.to_string(), id);
        let channel = self.credentials.channel(Role::Replay, &address);
        let mut client = ReplayClient::new(channel).max_encoding_message_size(INSERT_BYTES_MAX);
        // All that may be under way, and the hello: sending never waits here, the shard's reading does.
        let (requests, receiver) = mpsc::channel(self.bound + 1);
        let request = |message| v1::InsertRequest { message: Some(message) };
        let again = self.under_way.iter().cloned().map(|chunk| request(Message::Chunk(chunk)));
        for message in std::iter::once(request(Message::Hello(self.hello.clone()))).chain(again) {
            requests.try_send(message).expect("there is room for all of them");
        }
        let call = client.insert(ReceiverStream::new(receiver));
        let replies = timeout(OPEN_WAIT_MAX, call).await;
        let replies = replies.map_err(|_| Status::deadline_exceeded("no answer"))??;
        Ok((requests, replies.into_inner()))
    }

    async fn exchange(
        &mut self,
        requests: &mpsc::Sender<v1::InsertRequest>,
        replies: &mut Streaming<v1::InsertReply>,
    ) -> End {
        let mut more = true;
        loop {
            if !more && self.under_way.is_empty() {
                return End::Done;
            }
            tokio::select! {
                reply = replies.message() => match reply {
                    Ok(Some(v1::InsertReply { reply: Some(Reply::Stored(stored)) })) => {
                        if let Err(status) = self.acknowledged(&stored) {
                            return End::Broken(status);
                        }
                    }
                    Ok(Some(v1::InsertReply { reply: Some(Reply::Waiting(waiting)) })) => {
                        self.taken_up();
                        info!(shard = %self.address, for_what = waiting.what, seconds = waiting.seconds, "waiting");
                        self.report.send_replace(State::Waiting(waiting.what));
                    }
                    Ok(Some(v1::InsertReply { reply: Some(Reply::Finished(_)) })) => return End::Finished,
                    Ok(Some(v1::InsertReply { reply: None })) => {}
                    Ok(None) => return End::Broken(Status::unavailable("the stream has ended")),
                    Err(status) => return End::Broken(status),
                },
                chunk = self.incoming.recv(), if more => match chunk {
                    Some(chunk) => {
                        self.under_way.push_back(chunk.clone());
                        let request = v1::InsertRequest { message: Some(Message::Chunk(chunk)) };
                        if requests.try_send(request).is_err() {
                            return End::Broken(Status::unavailable("the stream has ended"));
                        }
                    }
                    None => more = false,
                },
            }
        }
    }

    /// Acknowledgements come in the order of sending.
    fn acknowledged(&mut self, stored: &v1::Stored) -> Result<(), Status> {
        let oldest = self.under_way.front();
        let same = |chunk: &v1::Chunk| {
            chunk.sequence == stored.sequence && chunk.lane.is_some_and(|lane| lane.lane == stored.lane)
        };
        if !oldest.is_some_and(same) {
            return Err(Status::internal("acknowledged out of order"));
        }
        self.taken_up();
        self.under_way.pop_front();
        // Counted before the permit wakes `flush`, whose caller may read the counters at once.
        self.sent.chunks.fetch_add(1, Ordering::Relaxed);
        self.sent.duplicates.fetch_add(u64::from(stored.duplicate), Ordering::Relaxed);
        self.room.add_permits(1);
        if matches!(*self.report.borrow(), State::Waiting(_)) {
            self.report.send_replace(State::Open);
        }
        Ok(())
    }
}

/// Waits until one of the writers has room, or has ended.
pub async fn any_room(writers: &[&Writer]) {
    let waits = writers.iter().map(|writer| Box::pin(writer.room()));
    if writers.is_empty() {
        return;
    }
    futures_util::future::select_all(waits).await.0.ok();
}
