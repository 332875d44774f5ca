//! A shard to talk to, and things to say to it.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod process;
pub mod raw_codec;
pub mod raw_http2;

use std::time::Duration;

use prometheus::{Registry, TextEncoder};
use proto::v1::insert_reply::Reply;
use proto::v1::insert_request::Message;
use proto::v1::replay_client::ReplayClient;
use proto::{limits, v1};
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, Taken, WeightsVersion};
use replay_server::shard::Identity;
use replay_server::{Config, Server};
use rpc::address::Address;
use rpc::channel::channel;
use telemetry::Health;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use value::priority::Priority;

pub const RUN: &str = "run-1";
pub const FRAME_BYTES: usize = 64;
pub const ACTIONS: u16 = 4;
/// Steps in each chunk of [`chunk`].
pub const STEPS: u64 = 4;

/// Waits for something that will happen, however busy the machine is.
pub async fn patiently<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(120), future).await.expect("it should have happened long ago")
}

/// Waits until a condition holds.
pub async fn until(mut condition: impl AsyncFnMut() -> bool) {
    patiently(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A shard in this process.
pub struct Running {
    pub address: Address,
    pub registry: Registry,
    pub health: Health,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0", 7).await
    }

    pub async fn start_at(listen: &str, incarnation: u32) -> Self {
        let config = Config {
            listen: listen.parse().unwrap(),
            identity: Identity { id: "shard-a".into(), incarnation },
            bytes_limit: 1 << 30,
        };
        let (registry, health) = (Registry::new(), Health::new());
        let server = Server::bind(&config, &registry).await.unwrap();
        let address = server.address().clone();
        let (stop, stopped) = oneshot::channel();
        let run_health = health.clone();
        let task = tokio::spawn(async move { server.run(&run_health, async { drop(stopped.await) }).await });
        Self { address, registry, health, stop, task }
    }

    /// One that has been granted inserts.
    pub async fn granted(inserts: u64) -> Self {
        let running = Self::start().await;
        let mut client = running.client();
        patiently(client.grant(grant(1, allowance(7, inserts)))).await.unwrap();
        running
    }

    pub fn client(&self) -> ReplayClient<Channel> {
        client(&self.address)
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        patiently(self.task).await.unwrap().unwrap();
    }

    /// A metric by its name with labels, as it is exported.
    pub fn metric(&self, name: &str) -> f64 {
        metric(&TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap(), name)
    }

    pub fn refused(&self, reason: &str) -> f64 {
        self.metric(&format!("replay_requests_refused_total{{reason=\"{reason}\"}}"))
    }

    pub fn messages_refused(&self, reason: &str) -> f64 {
        self.metric(&format!("rpc_messages_refused_total{{reason=\"{reason}\"}}"))
    }
}

/// Of all that is exported, one figure.
pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

pub fn client(address: &Address) -> ReplayClient<Channel> {
    ReplayClient::new(channel(address))
        .max_decoding_message_size(limits::SAMPLE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX)
}

pub fn table() -> v1::Table {
    v1::Table {
        capacity: 1000,
        bytes_max: 1 << 20,
        stack: 4,
        frame_bytes: FRAME_BYTES as u32,
        codec: "none".into(),
        actions: ACTIONS.into(),
        uniform: false,
        priority_exponent: 1.0,
        priority_constant: 0.0,
        first_priority: 1.0,
    }
}

pub fn allowance(shard_incarnation: u32, inserts: u64) -> Option<v1::Allowance> {
    Some(v1::Allowance { shard_incarnation, inserts })
}

pub fn grant(learner_incarnation: u32, allowance: Option<v1::Allowance>) -> v1::GrantRequest {
    v1::GrantRequest {
        caller: Some(proto::caller(RUN)),
        learner_incarnation,
        table: Some(table()),
        allowance,
        finished: false,
        until_inserts: 0,
        wait_milliseconds: 0,
    }
}

pub fn hello(actor: u32, incarnation: u64) -> v1::InsertHello {
    v1::InsertHello {
        caller: Some(proto::caller(RUN)),
        actor,
        incarnation,
        codec: "none".into(),
        frame_bytes: FRAME_BYTES as u32,
        stack: 4,
    }
}

/// The frame of a step.
pub fn frame(lane: u32, step: u64) -> Vec<u8> {
    (0..FRAME_BYTES as u64).map(|at| (at * 3 + step * 7 + u64::from(lane) * 31) as u8).collect()
}

/// Chunk number `sequence` of a lane that plays one endless episode: four steps, and the items that they complete.
pub fn chunk(actor: u32, incarnation: u64, lane: u32, sequence: u64) -> v1::Chunk {
    let first_step = sequence * STEPS;
    let taken = |number: u64| Taken {
        action: (number % u64::from(ACTIONS)) as u16,
        reward: number as f32 / 2.0,
        terminated: false,
        truncated: false,
        life_lost: number.is_multiple_of(3),
        log_probability: -0.5,
        weights: WeightsVersion { incarnation: 1, number },
    };
    let step = |number: u64| Step {
        frame: frame(lane, number).into(),
        starts_episode: number == 0,
        taken: Some(taken(number)),
    };
    let item = |first: u64| NewItem {
        first,
        length: 1,
        priority: InitialPriority::Of(Priority::try_new(1.0 + first as f64).unwrap()),
    };
    proto::convert::chunk_message(Chunk {
        lane: LaneKey { actor, incarnation, lane },
        sequence,
        first_step,
        steps: (first_step..first_step + STEPS).map(step).collect(),
        items: (first_step.saturating_sub(1)..first_step + STEPS - 1).map(item).collect(),
    })
}

/// An insert stream.
pub struct Writing {
    pub requests: mpsc::Sender<v1::InsertRequest>,
    pub replies: Streaming<v1::InsertReply>,
}

impl Writing {
    pub async fn open(client: &mut ReplayClient<Channel>, hello: v1::InsertHello) -> Self {
        let (requests, stream) = mpsc::channel(64);
        requests.send(v1::InsertRequest { message: Some(Message::Hello(hello)) }).await.unwrap();
        let replies = patiently(client.insert(ReceiverStream::new(stream))).await.unwrap().into_inner();
        Self { requests, replies }
    }

    pub async fn send(&self, chunk: v1::Chunk) {
        let request = v1::InsertRequest { message: Some(Message::Chunk(chunk)) };
        self.requests.send(request).await.unwrap();
    }

    pub async fn reply(&mut self) -> Result<Option<Reply>, Status> {
        let reply = patiently(self.replies.message()).await?;
        Ok(reply.map(|reply| reply.reply.expect("a reply says something")))
    }

    /// The next acknowledgement, whatever waiting comes before.
    pub async fn stored(&mut self) -> v1::Stored {
        loop {
            match self.reply().await.unwrap() {
                Some(Reply::Stored(stored)) => return stored,
                Some(Reply::Waiting(_)) => {}
                other => panic!("{other:?} instead of an acknowledgement"),
            }
        }
    }

    pub async fn write(&mut self, chunk: v1::Chunk) -> v1::Stored {
        self.send(chunk).await;
        self.stored().await
    }

    /// The status with which the stream ends.
    pub async fn refusal(mut self) -> Status {
        loop {
            match self.reply().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended well"),
                Err(status) => return status,
            }
        }
    }
}

/// A sample stream.
pub struct Sampling {
    pub requests: mpsc::Sender<v1::SampleRequest>,
    pub replies: Streaming<v1::SampleReply>,
}

impl Sampling {
    pub async fn open(client: &mut ReplayClient<Channel>) -> Self {
        let (requests, stream) = mpsc::channel(64);
        let replies = patiently(client.sample(ReceiverStream::new(stream))).await.unwrap().into_inner();
        Self { requests, replies }
    }

    pub async fn ask(&mut self, request: v1::SampleRequest) -> Result<v1::SampleReply, Status> {
        self.requests.send(request).await.unwrap();
        patiently(self.replies.message()).await.map(|reply| reply.expect("one reply for each request"))
    }
}

pub fn sample(learner_incarnation: u32, points: Vec<f64>) -> v1::SampleRequest {
    v1::SampleRequest { caller: Some(proto::caller(RUN)), learner_incarnation, points, allowance: None }
}

pub fn update(learner_incarnation: u32, updates: Vec<v1::PriorityUpdate>) -> v1::UpdatePrioritiesRequest {
    v1::UpdatePrioritiesRequest {
        caller: Some(proto::caller(RUN)),
        learner_incarnation,
        updates,
        remove: Vec::new(),
        largest_priority: 0.0,
    }
}

/// Where the shard stands, without who waits at the moment.
pub async fn state(client: &mut ReplayClient<Channel>) -> v1::InfoReply {
    let mut info = patiently(client.info(v1::InfoRequest {})).await.unwrap().into_inner();
    info.shard.as_mut().unwrap().writers_waiting = 0;
    info
}

#[track_caller]
pub fn assert_status(status: &Status, code: Code, part: &str) {
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(part), "{part:?} is not in {:?}", status.message());
}
