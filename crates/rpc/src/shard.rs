//! The learner's connection to one shard: grants, samples, priority updates.
//!
//! Every connection begins with a grant that carries the shard's configuration, so a shard that restarted empty is
//! configured again automatically. Until the next retry is due, a call to an unreachable shard fails at once, and the
//! learner samples from other shards. This module never decides when the learner waits.
#![allow(clippy::disallowed_methods, reason = "the connection owns its timeouts and retries")]

use std::time::Duration;

use bytes::Bytes;
use proto::limits::{INSERT_BYTES_MAX, SAMPLE_BYTES_MAX};
use proto::v1::replay_client::ReplayClient;
use proto::{PackedBatch, StoreSpec, Updates, convert, v1};
use replay::{Allowance, ShardStatus, TicketKey};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::channel::{Channel, Credentials};
use crate::role::Role;

/// Timeout of an answer. A shard never blocks these calls by itself, so a shard that takes longer hangs.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(4);

/// How long a caller waits for a new connection, which usually opens within a millisecond.
const OPEN_PATIENCE: Duration = Duration::from_millis(50);

/// The configuration that a learner gives every shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    pub run: String,
    pub learner_incarnation: u32,
    pub spec: StoreSpec,
    /// The key of the run's tickets. `None` for a run whose writers ask the shards for their tickets.
    pub ticket_key: Option<TicketKey>,
    /// Whether samples must include the reliability of each item's target.
    pub reliabilities: bool,
}

/// Why a call to a shard failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShardError {
    /// Temporary: retry later.
    #[error("{0}")]
    Unreachable(String),
    /// Permanent: another run, another version, a newer learner, or a table that does not fit.
    #[error("{0}")]
    Refused(String),
}

/// The learner's handle to a shard. It reconnects by itself.
#[derive(Debug)]
pub struct ShardClient {
    address: Address,
    credentials: Credentials,
    client: ReplayClient<Channel>,
    /// Publishes `client` to the updaters when the shard moves.
    clients: watch::Sender<ReplayClient<Channel>>,
    config: ShardConfig,
    stream: Option<Stream>,
    /// A connection that is being opened. It opens in the background, so that a hanging shard does not block the
    /// learner.
    opening: Option<JoinHandle<Result<Stream, Status>>>,
    backoff: Backoff,
    next_try: Instant,
    last_error: String,
    /// How long a caller waits for a connection that is being opened.
    patience: Duration,
}

#[derive(Debug)]
struct Stream {
    requests: mpsc::Sender<v1::SampleRequest>,
    replies: Streaming<v1::SampleReply>,
}

impl ShardClient {
    /// A handle that connects on the first call.
    pub fn new(address: Address, credentials: Credentials, config: ShardConfig, seed: u64) -> Self {
        let client = client(&address, &credentials);
        let last_error = "not connected yet".into();
        Self {
            address,
            credentials,
            clients: watch::Sender::new(client.clone()),
            client,
            config,
            stream: None,
            opening: None,
            backoff: Backoff::new(seed),
            next_try: Instant::now(),
            last_error,
            patience: OPEN_PATIENCE,
        }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The error of the last failed call.
    pub fn last_error(&self) -> &str {
        &self.last_error
    }

    /// With `hurry`, callers do not wait for a connection that is being opened.
    pub fn hurry(&mut self, hurry: bool) {
        self.patience = if hurry { Duration::ZERO } else { OPEN_PATIENCE };
    }

    /// Changes the shard's address. The next call connects there at once.
    pub fn move_to(&mut self, address: Address) {
        self.client = client(&address, &self.credentials);
        self.clients.send_replace(self.client.clone());
        self.address = address;
        (self.stream, self.next_try) = (None, Instant::now());
        if let Some(opening) = self.opening.take() {
            opening.abort();
        }
    }

    /// A handle that sends priority updates concurrently with other calls.
    pub fn updater(&self) -> Updater {
        let ShardConfig { run, learner_incarnation, .. } = &self.config;
        let clients = self.clients.subscribe();
        Updater { clients, run: run.clone(), learner_incarnation: *learner_incarnation }
    }

    /// Samples the items at `points` and sets the allowance. Without points it only fetches the status.
    pub async fn sample(
        &mut self,
        points: Vec<f64>,
        allowance: Option<Allowance>,
    ) -> Result<(PackedBatch, ShardStatus), ShardError> {
        self.connect().await?;
        let stream = self.stream.as_mut().expect("just connected");
        let request = v1::SampleRequest {
            learner_incarnation: self.config.learner_incarnation,
            points,
            allowance: allowance.map(allowance_message),
            reliabilities: self.config.reliabilities,
            ..v1::SampleRequest::default()
        };
        let reply = stream.ask(request).await;
        let reply = self.settle(reply)?;
        let StoreSpec { options, actions, .. } = &self.config.spec;
        let status = reply.shard.map(proto::status::status);
        let status = status.ok_or_else(|| Status::internal("the shard's reply has no status"));
        let batch = PackedBatch::new(reply.batch.unwrap_or_default(), options.stack, *actions);
        let batch =
            batch.map_err(|invalid| Status::internal(format!("the shard sent an invalid batch: {invalid}")));
        let both = status.and_then(|status| Ok((batch?, status)));
        let has_reliabilities = |batch: &PackedBatch| batch.items().all(|item| item.reliability().is_some());
        let both = match both {
            Ok((batch, _)) if self.config.reliabilities && !has_reliabilities(&batch) => {
                Err(Status::unimplemented(
                    "the shard does not compute reliabilities: run the same version of quiver on learner and shards",
                ))
            }
            both => both,
        };
        self.settle(both)
    }

    /// Changes the store's specification. The next grant sends it.
    pub fn set_spec(&mut self, spec: StoreSpec) {
        self.config.spec = spec;
    }

    /// Sets the allowance. The shard answers when it has `until_inserts` inserts, or after `wait`.
    pub async fn grant(
        &mut self,
        allowance: Option<Allowance>,
        until_inserts: u64,
        wait: Duration,
        finished: bool,
    ) -> Result<ShardStatus, ShardError> {
        self.connect().await?;
        let reply = grant(&mut self.client, &self.config, allowance, until_inserts, wait, finished).await;
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
            self.opening = Some(tokio::spawn(open(self.client.clone(), self.config.clone())));
        }
        let opening = self.opening.as_mut().expect("just set");
        let Ok(opened) = timeout(self.patience, opening).await else {
            return Err(ShardError::Unreachable(format!("{}: still connecting", self.address)));
        };
        self.opening = None;
        let opened = opened.unwrap_or_else(|_| Err(Status::internal("the connection task was aborted")));
        let stream = self.settle(opened)?;
        self.stream = Some(stream);
        self.backoff.reset();
        Ok(())
    }

    /// On failure, drops the connection and schedules the next attempt after a backoff.
    fn settle<T>(&mut self, result: Result<T, Status>) -> Result<T, ShardError> {
        result.map_err(|status| {
            self.stream = None;
            self.next_try = Instant::now() + self.backoff.next();
            self.last_error = self.credentials.describe_at(&self.address, &status);
            if is_refusal(&status) {
                ShardError::Refused(self.last_error.clone())
            } else {
                ShardError::Unreachable(self.last_error.clone())
            }
        })
    }
}

/// Sends priority updates to one shard.
#[derive(Clone, Debug)]
pub struct Updater {
    /// Client for the shard's current address.
    clients: watch::Receiver<ReplayClient<Channel>>,
    run: String,
    learner_incarnation: u32,
}

impl Updater {
    /// Updates priorities. Returns how many items were updated and how many no longer exist.
    pub async fn update(&self, updates: &Updates) -> Result<(u64, u64), Status> {
        let named = updates.priorities.iter().map(|(key, _)| key).chain(&updates.removed);
        // All items of a batch belong to one incarnation of the shard. If not, the older ones no longer exist.
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
        self.requests
            .send(request)
            .await
            .map_err(|_| Status::unavailable("the shard closed the sample stream"))?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<v1::SampleReply, Status> {
        let reply = timeout(ANSWER_WAIT_MAX, self.replies.message()).await.map_err(|_| silent())??;
        reply.ok_or_else(|| Status::unavailable("the shard closed the sample stream"))
    }
}

/// Fetches the id of the shard at an address. Read-only for the shard.
pub async fn fetch_shard_id(address: &Address, credentials: &Credentials) -> Result<String, Status> {
    let mut client = client(address, credentials);
    let answer = timeout(ANSWER_WAIT_MAX, client.info(v1::InfoRequest {})).await.map_err(|_| silent())?;
    Ok(answer?.into_inner().shard.unwrap_or_default().id)
}

fn client(address: &Address, credentials: &Credentials) -> ReplayClient<Channel> {
    ReplayClient::new(credentials.channel(Role::Replay, address))
        .max_decoding_message_size(SAMPLE_BYTES_MAX)
        .max_encoding_message_size(INSERT_BYTES_MAX)
}

async fn open(mut client: ReplayClient<Channel>, config: ShardConfig) -> Result<Stream, Status> {
    grant(&mut client, &config, None, 0, Duration::ZERO, false).await?;
    // At most one request is in flight.
    let (requests, receiver) = mpsc::channel(1);
    let hello = v1::SampleRequest {
        caller: Some(proto::caller(&config.run)),
        learner_incarnation: config.learner_incarnation,
        ..v1::SampleRequest::default()
    };
    requests.try_send(hello).expect("the channel is empty");
    let call = client.sample(ReceiverStream::new(receiver));
    let replies = timeout(ANSWER_WAIT_MAX, call).await.map_err(|_| silent())??.into_inner();
    let mut stream = Stream { requests, replies };
    stream.answer().await?;
    Ok(stream)
}

async fn grant(
    client: &mut ReplayClient<Channel>,
    config: &ShardConfig,
    allowance: Option<Allowance>,
    until_inserts: u64,
    wait: Duration,
    finished: bool,
) -> Result<ShardStatus, Status> {
    let request = v1::GrantRequest {
        caller: Some(proto::caller(&config.run)),
        learner_incarnation: config.learner_incarnation,
        store: Some(convert::store_message(&config.spec)),
        allowance: allowance.map(allowance_message),
        finished,
        until_inserts,
        wait_milliseconds: wait.as_millis() as u32,
        ticket_key: config.ticket_key.as_ref().map_or_else(Bytes::new, |key| key.as_bytes().to_vec().into()),
    };
    let answer = timeout(wait + ANSWER_WAIT_MAX, client.grant(request)).await;
    let reply = answer.map_err(|_| silent())??.into_inner();
    let status = reply.shard.map(proto::status::status);
    status.ok_or_else(|| Status::internal("the shard's reply has no status"))
}

fn silent() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()))
}

/// Whether a server that is reachable answered that it lacks something for now: streams, requests, room. The call had no
/// effect, so a retry repeats nothing.
pub fn is_shortage(status: &Status) -> bool {
    // tonic gives the same code to connections that break, but with the error as the source.
    status.code() == Code::Unavailable && std::error::Error::source(status).is_none()
}

/// Whether a status is permanent: a retry would get the same answer.
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

/// Whether the connection broke or could not be opened. Our servers never answer UNKNOWN: tonic gives it to calls in
/// flight on a connection that breaks.
pub fn is_broken(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown)
}

/// A short description of a status for people.
pub fn describe(status: &Status) -> String {
    match std::error::Error::source(status) {
        // tonic's message is only "transport error"; the reason is the innermost source.
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
