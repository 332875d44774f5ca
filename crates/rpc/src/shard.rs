//! The learner's connection to one shard: grants, samples, priorities.
//!
//! A connection begins with a grant that tells the shard what it holds, so a shard that came back empty is told again
//! without anyone asking. A call to a shard that can't be reached fails at once, until it is time to try again: the
//! learner draws elsewhere meanwhile. Nothing here decides when to wait.

use std::time::Duration;

use proto::limits::{INSERT_BYTES_MAX, SAMPLE_BYTES_MAX};
use proto::v1::replay_client::ReplayClient;
use proto::{Batch, StoreSpec, Updates, convert, v1};
use replay::{Allowance, ShardStatus};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::channel::{Channel, Credentials};
use crate::role::Role;

/// How long a shard may take to answer. It never waits by itself, so one that takes longer hangs.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(4);

/// How long a caller waits for a new connection, which usually takes a millisecond.
const OPEN_PATIENCE: Duration = Duration::from_millis(50);

/// What a learner tells every shard.
#[derive(Clone, Debug)]
pub struct Told {
    /// The run.
    pub run: String,
    /// Which start of the learner.
    pub learner_incarnation: u32,
    /// What the shard holds.
    pub spec: StoreSpec,
    /// Whether samples shall say how reliable each item's target is.
    pub reliabilities: bool,
}

/// Why a shard did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShardError {
    /// Try again later.
    #[error("{0}")]
    Unreachable(String),
    /// It never will: another run, another version, a newer learner, a table that does not fit.
    #[error("{0}")]
    Refused(String),
}

/// A shard as the learner sees it.
#[derive(Debug)]
pub struct Shard {
    address: Address,
    credentials: Credentials,
    client: ReplayClient<Channel>,
    /// The same, for those who send priorities.
    clients: watch::Sender<ReplayClient<Channel>>,
    told: Told,
    stream: Option<Stream>,
    /// A connection in the making. It goes on in the background, so that a shard that hangs holds nobody up.
    opening: Option<JoinHandle<Result<Stream, Status>>>,
    backoff: Backoff,
    next_try: Instant,
    last_error: String,
    /// How long a caller waits for a connection in the making.
    patience: Duration,
}

#[derive(Debug)]
struct Stream {
    requests: mpsc::Sender<v1::SampleRequest>,
    replies: Streaming<v1::SampleReply>,
}

impl Shard {
    /// A shard that will be connected to when it is first asked for something.
    pub fn new(address: Address, credentials: Credentials, told: Told, seed: u64) -> Self {
        let client = client(&address, &credentials);
        let last_error = "not connected yet".into();
        Self {
            address,
            credentials,
            clients: watch::Sender::new(client.clone()),
            client,
            told,
            stream: None,
            opening: None,
            backoff: Backoff::new(seed),
            next_try: Instant::now(),
            last_error,
            patience: OPEN_PATIENCE,
        }
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Why it was last not reached, in words.
    pub fn last_error(&self) -> &str {
        &self.last_error
    }

    /// Whether nobody shall wait while a connection is in the making.
    pub fn hurry(&mut self, hurry: bool) {
        self.patience = if hurry { Duration::ZERO } else { OPEN_PATIENCE };
    }

    /// The shard is elsewhere now.
    pub fn move_to(&mut self, address: Address) {
        self.client = client(&address, &self.credentials);
        self.clients.send_replace(self.client.clone());
        self.address = address;
        (self.stream, self.next_try) = (None, Instant::now());
        if let Some(opening) = self.opening.take() {
            opening.abort();
        }
    }

    /// Sends priorities beside what else is asked of the shard.
    pub fn updater(&self) -> Updater {
        let Told { run, learner_incarnation, .. } = &self.told;
        let clients = self.clients.subscribe();
        Updater { clients, run: run.clone(), learner_incarnation: *learner_incarnation }
    }

    /// Draws at `points` and sets the allowance. No points: only the status.
    pub async fn sample(
        &mut self,
        points: Vec<f64>,
        allowance: Option<Allowance>,
    ) -> Result<(Batch, ShardStatus), ShardError> {
        self.connect().await?;
        let stream = self.stream.as_mut().expect("just connected");
        let request = v1::SampleRequest {
            learner_incarnation: self.told.learner_incarnation,
            points,
            allowance: allowance.map(allowance_message),
            reliabilities: self.told.reliabilities,
            ..v1::SampleRequest::default()
        };
        let reply = stream.ask(request).await;
        let reply = self.settle(reply)?;
        let StoreSpec { options, actions, .. } = &self.told.spec;
        let status = reply.shard.map(proto::status::status);
        let status = status.ok_or_else(|| Status::internal("the answer has no shard in it"));
        let batch = Batch::new(reply.batch.unwrap_or_default(), options.stack, *actions);
        let batch = batch.map_err(|invalid| Status::internal(format!("a batch that can't be: {invalid}")));
        let both = status.and_then(|status| Ok((batch?, status)));
        let relied = |batch: &Batch| batch.items().all(|item| item.reliability().is_some());
        let both = match both {
            Ok((batch, _)) if self.told.reliabilities && !relied(&batch) => Err(Status::unimplemented(
                "the shard can't say how reliable targets are: run the same version of quiver everywhere",
            )),
            both => both,
        };
        self.settle(both)
    }

    /// Changes what the shard shall hold, with the next grant.
    pub fn tell(&mut self, spec: StoreSpec) {
        self.told.spec = spec;
    }

    /// What it shall hold.
    pub fn spec(&self) -> &StoreSpec {
        &self.told.spec
    }

    /// Sets the allowance, and waits until the shard has `until_inserts` or `wait` is over.
    pub async fn grant(
        &mut self,
        allowance: Option<Allowance>,
        until_inserts: u64,
        wait: Duration,
        finished: bool,
    ) -> Result<ShardStatus, ShardError> {
        self.connect().await?;
        let reply = grant(&mut self.client, &self.told, allowance, until_inserts, wait, finished).await;
        self.settle(reply)
    }

    async fn connect(&mut self) -> Result<(), ShardError> {
        if self.stream.is_some() {
            return Ok(());
        }
        if self.opening.is_none() {
            if Instant::now() < self.next_try {
                return Err(ShardError::Unreachable(self.last_error.clone()));
            }
            self.opening = Some(tokio::spawn(open(self.client.clone(), self.told.clone())));
        }
        let opening = self.opening.as_mut().expect("just made");
        let Ok(opened) = timeout(self.patience, opening).await else {
            return Err(ShardError::Unreachable(format!("{}: still connecting", self.address)));
        };
        self.opening = None;
        let opened = opened.unwrap_or_else(|_| Err(Status::internal("connecting was cut short")));
        let stream = self.settle(opened)?;
        self.stream = Some(stream);
        self.backoff.reset();
        Ok(())
    }

    /// After a failure the connection is given up, and the next one has to wait its turn.
    fn settle<T>(&mut self, result: Result<T, Status>) -> Result<T, ShardError> {
        result.map_err(|status| {
            self.stream = None;
            self.next_try = Instant::now() + self.backoff.next();
            self.last_error =
                format!("{}: {}", self.address, self.credentials.describe(&self.address, &status));
            if is_refusal(&status) {
                ShardError::Refused(self.last_error.clone())
            } else {
                ShardError::Unreachable(self.last_error.clone())
            }
        })
    }
}

/// Sends priorities to one shard.
#[derive(Clone, Debug)]
pub struct Updater {
    /// How to reach the shard, wherever it is now.
    clients: watch::Receiver<ReplayClient<Channel>>,
    run: String,
    learner_incarnation: u32,
}

impl Updater {
    /// Gives items new priorities, and says how many were changed and how many are no longer there.
    pub async fn update(&self, updates: &Updates) -> Result<(u64, u64), Status> {
        let named = updates.priorities.iter().map(|(key, _)| key).chain(&updates.removed);
        // All items of a batch are of one life of the shard; if not, the older ones are gone.
        let incarnation = named.map(|key| key.incarnation).next_back().unwrap_or(0);
        let message = convert::updates_message(updates, incarnation);
        let gone = (updates.priorities.len() - message.priorities.len()) as u64;
        let request = v1::UpdatePrioritiesRequest {
            caller: Some(proto::caller(&self.run)),
            learner_incarnation: self.learner_incarnation,
            updates: Some(message),
        };
        let mut client = self.clients.borrow().clone();
        let reply = client.update_priorities(request).await?.into_inner();
        Ok((reply.applied, reply.stale.saturating_add(gone)))
    }
}

impl Stream {
    async fn ask(&mut self, request: v1::SampleRequest) -> Result<v1::SampleReply, Status> {
        self.requests.send(request).await.map_err(|_| Status::unavailable("the stream has ended"))?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<v1::SampleReply, Status> {
        let reply = timeout(ANSWER_WAIT_MAX, self.replies.message()).await.map_err(|_| silent())??;
        reply.ok_or_else(|| Status::unavailable("the stream has ended"))
    }
}

/// The name of the shard at an address. Asking changes nothing there.
pub async fn who(address: &Address, credentials: &Credentials) -> Result<String, Status> {
    let mut client = client(address, credentials);
    let answer = timeout(ANSWER_WAIT_MAX, client.info(v1::InfoRequest {})).await.map_err(|_| silent())?;
    Ok(answer?.into_inner().shard.unwrap_or_default().id)
}

fn client(address: &Address, credentials: &Credentials) -> ReplayClient<Channel> {
    ReplayClient::new(credentials.channel(Role::Replay, address))
        .max_decoding_message_size(SAMPLE_BYTES_MAX)
        .max_encoding_message_size(INSERT_BYTES_MAX)
}

async fn open(mut client: ReplayClient<Channel>, told: Told) -> Result<Stream, Status> {
    grant(&mut client, &told, None, 0, Duration::ZERO, false).await?;
    // One request is under way at a time.
    let (requests, receiver) = mpsc::channel(1);
    let hello = v1::SampleRequest {
        caller: Some(proto::caller(&told.run)),
        learner_incarnation: told.learner_incarnation,
        ..v1::SampleRequest::default()
    };
    requests.try_send(hello).expect("the channel is new");
    let call = client.sample(ReceiverStream::new(receiver));
    let replies = timeout(ANSWER_WAIT_MAX, call).await.map_err(|_| silent())??.into_inner();
    let mut stream = Stream { requests, replies };
    stream.answer().await?;
    Ok(stream)
}

async fn grant(
    client: &mut ReplayClient<Channel>,
    told: &Told,
    allowance: Option<Allowance>,
    until_inserts: u64,
    wait: Duration,
    finished: bool,
) -> Result<ShardStatus, Status> {
    let request = v1::GrantRequest {
        caller: Some(proto::caller(&told.run)),
        learner_incarnation: told.learner_incarnation,
        store: Some(convert::store_message(&told.spec)),
        allowance: allowance.map(allowance_message),
        finished,
        until_inserts,
        wait_milliseconds: wait.as_millis() as u32,
    };
    let answer = timeout(wait + ANSWER_WAIT_MAX, client.grant(request)).await;
    let reply = answer.map_err(|_| silent())??.into_inner();
    let status = reply.shard.map(proto::status::status);
    status.ok_or_else(|| Status::internal("the answer has no shard in it"))
}

fn silent() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()))
}

/// Statuses that will not change by trying again.
pub fn is_refusal(status: &Status) -> bool {
    use Code::{
        FailedPrecondition, InvalidArgument, OutOfRange, PermissionDenied, ResourceExhausted,
        Unauthenticated, Unimplemented,
    };
    matches!(
        status.code(),
        InvalidArgument
            | FailedPrecondition
            | OutOfRange
            | Unimplemented
            | ResourceExhausted
            | PermissionDenied
            | Unauthenticated
    )
}

/// Whether the connection broke, or never was one. No server of ours answers UNKNOWN: a call that was under way gets it.
pub fn is_broken(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown)
}

/// A status in a few words for people.
pub fn describe(status: &Status) -> String {
    match std::error::Error::source(status) {
        // tonic says "transport error" and keeps the reason to itself.
        Some(source) => {
            let mut innermost = source;
            while let Some(deeper) = innermost.source() {
                innermost = deeper;
            }
            innermost.to_string()
        }
        None => status.message().to_owned(),
    }
}

fn allowance_message(allowance: Allowance) -> v1::Allowance {
    v1::Allowance { shard_incarnation: allowance.incarnation, inserts: allowance.inserts }
}
