//! The learner's connection to one shard: grants, samples, priorities.
//!
//! A connection begins with a grant that tells the shard what it holds, so a shard that came back empty is told again
//! without anyone asking. A call to a shard that can't be reached fails at once, until it is time to try again: the
//! learner draws elsewhere meanwhile. Nothing here decides when to wait.

use std::time::Duration;

use proto::limits::{INSERT_BYTES_MAX, SAMPLE_BYTES_MAX};
use proto::v1;
use proto::v1::replay_client::ReplayClient;
use replay::control::{Allowance, Heard};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::channel::channel;

/// How long a shard may take to answer. It never waits by itself, so one that takes longer hangs.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(4);

/// How long a caller waits for a new connection, which usually takes a millisecond.
const OPEN_PATIENCE: Duration = Duration::from_millis(50);

/// What a learner tells every shard.
#[derive(Clone, Debug)]
pub struct Told {
    /// The run.
    pub caller: v1::Caller,
    /// Which start of the learner.
    pub learner_incarnation: u32,
    /// What the shard holds.
    pub table: v1::Table,
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
    client: ReplayClient<Channel>,
    told: Told,
    stream: Option<Stream>,
    /// A connection in the making. It goes on in the background, so that a shard that hangs holds nobody up.
    opening: Option<JoinHandle<Result<Stream, Status>>>,
    backoff: Backoff,
    next_try: Instant,
    last_error: String,
}

#[derive(Debug)]
struct Stream {
    requests: mpsc::Sender<v1::SampleRequest>,
    replies: Streaming<v1::SampleReply>,
}

impl Shard {
    /// A shard that will be connected to when it is first asked for something.
    pub fn new(address: Address, told: Told, seed: u64) -> Self {
        let client = ReplayClient::new(channel(&address))
            .max_decoding_message_size(SAMPLE_BYTES_MAX)
            .max_encoding_message_size(INSERT_BYTES_MAX);
        let last_error = "not connected yet".into();
        Self {
            address,
            client,
            told,
            stream: None,
            opening: None,
            backoff: Backoff::new(seed),
            next_try: Instant::now(),
            last_error,
        }
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A client for calls beside this one's: updates of priorities.
    pub fn client(&self) -> ReplayClient<Channel> {
        self.client.clone()
    }

    /// Draws at `points` and sets the allowance. No points: only the news.
    pub async fn sample(
        &mut self,
        points: Vec<f64>,
        allowance: Option<Allowance>,
    ) -> Result<v1::SampleReply, ShardError> {
        self.connect().await?;
        let stream = self.stream.as_mut().expect("just connected");
        let request = v1::SampleRequest {
            caller: None,
            learner_incarnation: self.told.learner_incarnation,
            points,
            allowance: allowance.map(allowance_message),
        };
        let reply = stream.ask(request).await;
        self.settle(reply)
    }

    /// Sets the allowance, and waits until the shard has `until_inserts` or `wait` is over.
    pub async fn grant(
        &mut self,
        allowance: Option<Allowance>,
        until_inserts: u64,
        wait: Duration,
        finished: bool,
    ) -> Result<v1::Shard, ShardError> {
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
        let Ok(opened) = timeout(OPEN_PATIENCE, opening).await else {
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
            self.last_error = format!("{}: {}", self.address, describe(&status));
            if is_refusal(&status) {
                ShardError::Refused(self.last_error.clone())
            } else {
                ShardError::Unreachable(self.last_error.clone())
            }
        })
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

async fn open(mut client: ReplayClient<Channel>, told: Told) -> Result<Stream, Status> {
    grant(&mut client, &told, None, 0, Duration::ZERO, false).await?;
    // One request is under way at a time.
    let (requests, receiver) = mpsc::channel(1);
    let hello = v1::SampleRequest {
        caller: Some(told.caller),
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
) -> Result<v1::Shard, Status> {
    let request = v1::GrantRequest {
        caller: Some(told.caller.clone()),
        learner_incarnation: told.learner_incarnation,
        table: Some(told.table.clone()),
        allowance: allowance.map(allowance_message),
        finished,
        until_inserts,
        wait_milliseconds: wait.as_millis() as u32,
    };
    let answer = timeout(wait + ANSWER_WAIT_MAX, client.grant(request)).await;
    let reply = answer.map_err(|_| silent())??.into_inner();
    reply.shard.ok_or_else(|| Status::internal("the answer has no shard in it"))
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

/// What rate control wants to know of a shard.
pub fn heard(shard: &v1::Shard) -> Heard {
    let counters = shard.counters.unwrap_or_default();
    Heard {
        incarnation: shard.incarnation,
        inserts: counters.inserts,
        agent_steps: counters.actions,
        items: shard.items,
        mass: shard.mass,
    }
}
