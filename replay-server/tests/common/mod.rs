//! A shard to talk to, and things to say to it.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]
#![allow(dead_code, reason = "each test file uses a part")]

pub mod process;
pub mod raw_codec;
pub mod raw_http2;

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use prometheus::{Registry, TextEncoder};
use proto::v1::insert_reply::Reply;
use proto::v1::insert_request::Message;
use proto::v1::replay_client::ReplayClient;
use proto::{PackedBatch, Updates, limits, v1};
use replay::testing::{self, LaneBuilder, one_step};
use replay::{Chunk, ItemKey, LaneKey, NewItem, Taken, TicketKey};
use replay_server::config::Fsync;
use replay_server::{Config, Server};
use rpc::address::Address;
use rpc::channel::{Channel, channel};
use rpc::ticket::{Identity, TicketRole};
use telemetry::Health;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

pub const RUN: &str = "run-1";
pub const STACK: usize = 4;
pub const FRAME_BYTES: usize = 64;
pub const ACTIONS: u16 = 4;
/// Steps in each chunk of [`chunk`].
pub const STEPS: u64 = 4;
/// In a step's flags.
pub const STARTS_EPISODE: u8 = 16;
pub const KEY_FRAME: u8 = 32;

pub type Client = ReplayClient<Channel>;

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
    pub incarnation: u32,
    pub registry: Registry,
    pub health: Health,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0", None).await
    }

    pub async fn start_at(listen: &str, data_dir: Option<&Path>) -> Self {
        let config = Config {
            secrets: None,
            listen: listen.parse().unwrap(),
            id: "shard-a".into(),
            data_dir: data_dir.map(Path::to_owned),
            fsync: Fsync::Never,
            restore: None,
            memory_limit: 1 << 30,
            exit_with_run: false,
        };
        let (registry, health) = (Registry::new(), Health::new());
        let server = Server::bind(&config, &registry).await.unwrap();
        let address = server.address().clone();
        let (stop, stopped) = oneshot::channel();
        let run_health = health.clone();
        let task = tokio::spawn(async move { server.run(&run_health, async { drop(stopped.await) }).await });
        let incarnation = state(&mut client(&address)).await.shard.unwrap().incarnation;
        // The connection that asked is closed before anyone counts.
        let running = Self { address, incarnation, registry, health, stop, task };
        until(async || running.metric("quiver_rpc_connections") == 0.0).await;
        running
    }

    /// One that has been granted inserts, and a client of it.
    pub async fn granted(inserts: u64) -> (Self, Client) {
        Self::granted_store(store(), inserts).await
    }

    /// The same with a store like this.
    pub async fn granted_store(store: v1::Store, inserts: u64) -> (Self, Client) {
        let running = Self::start().await;
        let mut client = running.client();
        grant_store(&mut client, store, inserts).await;
        (running, client)
    }

    pub fn client(&self) -> Client {
        client(&self.address)
    }

    /// Inserts for this life of the shard.
    pub fn allowance(&self, inserts: u64) -> Option<v1::Allowance> {
        allowance(self.incarnation, inserts)
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
        self.metric(&format!("quiver_replay_requests_refused_total{{reason=\"{reason}\"}}"))
    }

    pub fn messages_refused(&self, reason: &str) -> f64 {
        self.metric(&format!("quiver_rpc_messages_refused_total{{reason=\"{reason}\"}}"))
    }
}

/// Of all that is exported, one figure.
pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

pub fn client(address: &Address) -> Client {
    ReplayClient::new(channel(address))
        .max_decoding_message_size(limits::SAMPLE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX)
}

pub fn table(name: &str) -> v1::Table {
    v1::Table {
        name: name.into(),
        capacity: 1000,
        sampler: "proportional".into(),
        remover: "fifo".into(),
        max_times_sampled: 0,
        priority_exponent: 1.0,
        priority_constant: 0.0,
        first_priority: 1.0,
    }
}

pub fn store() -> v1::Store {
    store_of(vec![table("replay")])
}

pub fn store_of(tables: Vec<v1::Table>) -> v1::Store {
    v1::Store {
        bytes_max: 1 << 20,
        stack: STACK as u32,
        frame_bytes: FRAME_BYTES as u32,
        codec: "none".into(),
        actions: ACTIONS.into(),
        max_length: 255,
        tables,
    }
}

pub fn allowance(shard_incarnation: u32, inserts: u64) -> Option<v1::Allowance> {
    Some(v1::Allowance { shard_incarnation, inserts })
}

pub fn grant(learner_incarnation: u32, allowance: Option<v1::Allowance>) -> v1::GrantRequest {
    v1::GrantRequest {
        caller: Some(proto::caller(RUN)),
        learner_incarnation,
        store: Some(store()),
        allowance,
        finished: false,
        until_inserts: 0,
        wait_milliseconds: 0,
        ticket_key: ticket_key().as_bytes().to_vec().into(),
    }
}

/// The first learner's grant with this store.
pub fn grant_with(store: v1::Store, allowance: Option<v1::Allowance>) -> v1::GrantRequest {
    v1::GrantRequest { store: Some(store), ..grant(1, allowance) }
}

/// Grants inserts into the usual store.
pub async fn grant_inserts(client: &mut Client, inserts: u64) {
    grant_store(client, store(), inserts).await;
}

/// Grants inserts into this store. Returns the shard's status from before.
pub async fn grant_store(client: &mut Client, store: v1::Store, inserts: u64) -> v1::ShardStatus {
    let shard = state(client).await.shard.unwrap();
    patiently(client.grant(grant_with(store, allowance(shard.incarnation, inserts)))).await.unwrap();
    shard
}

/// The key that every learner of these tests has.
pub fn ticket_key() -> TicketKey {
    TicketKey::from_bytes(&[7; 32]).unwrap()
}

/// The learner's ticket for an actor of a run.
pub fn ticket(run: &str, actor: u32, incarnation: u64) -> Vec<u8> {
    Identity { run, role: TicketRole::Actor, index: actor, incarnation }.ticket(&ticket_key())
}

/// With the ticket of this actor.
pub fn hello(actor: u32, incarnation: u64) -> v1::InsertHello {
    v1::InsertHello {
        ticket: ticket(RUN, actor, incarnation).into(),
        caller: Some(proto::caller(RUN)),
        actor,
        incarnation,
        codec: "none".into(),
        frame_bytes: FRAME_BYTES as u32,
        stack: STACK as u32,
        ..v1::InsertHello::default()
    }
}

/// The frame of a step, like no other.
pub fn frame(actor: u32, lane: u32, step: u64) -> Vec<u8> {
    let seed = (u64::from(actor) << 48 | u64::from(lane) << 32 | step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..FRAME_BYTES as u32).map(|at| (seed.rotate_left(at * 5) >> 8) as u8).collect()
}

pub fn taken(step: u64) -> Taken {
    Taken { action: (step % u64::from(ACTIONS)) as u16, ..testing::taken(step) }
}

/// Chunk number `sequence` of a lane that plays one endless episode: four steps and, for each of the tables, the items
/// that they complete.
pub fn chunk_for(key: LaneKey, sequence: u64, tables: u8) -> Chunk {
    let first_step = sequence * STEPS;
    let mut lane = LaneBuilder::new(key).at(sequence, first_step);
    for number in first_step..first_step + STEPS {
        lane.push(&frame(key.actor, key.lane, number), Some(taken(number)));
    }
    let item = |first: u64, table| NewItem { table, ..one_step(first, 1.0 + first as f64) };
    lane.chunk(lane.completed().flat_map(|first| (0..tables).map(move |table| item(first, table))))
}

/// The same for one table, as a message.
pub fn chunk(actor: u32, incarnation: u64, lane: u32, sequence: u64) -> v1::Chunk {
    proto::convert::chunk_message(chunk_for(LaneKey { actor, incarnation, lane }, sequence, 1))
}

/// Opens an insert stream as actor 0 and writes these chunks of lane 0.
pub async fn write(client: &mut Client, sequences: Range<u64>) -> Writing {
    let mut writing = Writing::open(client, hello(0, 1)).await;
    for sequence in sequences {
        writing.write(chunk(0, 1, 0, sequence)).await;
    }
    writing
}

/// Gives a chunk other frames, with their sizes and checksum.
pub fn set_frames(chunk: &mut v1::Chunk, frames: &[Vec<u8>]) {
    chunk.frame_bytes = frames.iter().map(|frame| frame.len() as u32).collect();
    chunk.frames = frames.concat().into();
    chunk.frames_crc32c = crc32c(&chunk.frames);
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

pub struct Writing {
    pub requests: mpsc::Sender<v1::InsertRequest>,
    pub replies: Streaming<v1::InsertReply>,
}

impl Writing {
    pub async fn open(client: &mut Client, hello: v1::InsertHello) -> Self {
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
                Some(Reply::Blocked(_)) => {}
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

pub struct Sampling {
    pub requests: mpsc::Sender<v1::SampleRequest>,
    pub replies: Streaming<v1::SampleReply>,
}

impl Sampling {
    pub async fn open(client: &mut Client) -> Self {
        Self::try_open(client).await.unwrap()
    }

    pub async fn try_open(client: &mut Client) -> Result<Self, Status> {
        let (requests, stream) = mpsc::channel(64);
        let replies = patiently(client.sample(ReceiverStream::new(stream))).await?.into_inner();
        Ok(Self { requests, replies })
    }

    /// The answer to one request on a stream of its own.
    pub async fn once(client: &mut Client, request: v1::SampleRequest) -> Result<v1::SampleReply, Status> {
        Self::open(client).await.ask(request).await
    }

    pub async fn ask(&mut self, request: v1::SampleRequest) -> Result<v1::SampleReply, Status> {
        // If it can't be sent, the stream has ended, and the reply says why.
        let _ = self.requests.send(request).await;
        patiently(self.replies.message()).await.map(|reply| reply.expect("one reply for each request"))
    }

    /// The items at these points of a table.
    pub async fn draw(&mut self, table: u32, points: Vec<f64>) -> PackedBatch {
        let request = v1::SampleRequest { table, ..sample(1, points) };
        batch(self.ask(request).await.unwrap().batch)
    }
}

pub fn sample(learner_incarnation: u32, points: Vec<f64>) -> v1::SampleRequest {
    let caller = Some(proto::caller(RUN));
    v1::SampleRequest { caller, learner_incarnation, points, ..v1::SampleRequest::default() }
}

/// A batch, checked as a learner does.
pub fn batch(batch: Option<v1::Batch>) -> PackedBatch {
    PackedBatch::new(batch.expect("a reply has a batch"), STACK, ACTIONS).unwrap()
}

/// Priorities for items of the first table.
pub fn updates(priorities: &[(ItemKey, f64)]) -> v1::Updates {
    let priorities: Vec<_> =
        priorities.iter().map(|&(key, priority)| (key, testing::priority(priority))).collect();
    let incarnation = priorities.first().map_or(0, |(key, _)| key.incarnation);
    proto::convert::updates_message(&Updates { priorities, ..Updates::default() }, incarnation)
}

pub fn update(learner_incarnation: u32, updates: v1::Updates) -> v1::UpdatePrioritiesRequest {
    let (caller, updates) = (Some(proto::caller(RUN)), Some(updates));
    v1::UpdatePrioritiesRequest { caller, learner_incarnation, updates }
}

pub fn configure(capacity: Option<u64>, priority_exponent: Option<f64>) -> v1::ConfigureRequest {
    v1::ConfigureRequest { table: String::new(), capacity, priority_exponent }
}

pub fn look(key: ItemKey) -> v1::GetItemRequest {
    v1::GetItemRequest { table: String::new(), key: Some(proto::convert::key_message(key)) }
}

/// Where the shard stands, without who waits at the moment and since when it is up.
pub async fn state(client: &mut Client) -> v1::InfoReply {
    let mut info = patiently(client.info(v1::InfoRequest {})).await.unwrap().into_inner();
    info.shard.as_mut().unwrap().writers_blocked = 0;
    info.uptime_seconds = 0.0;
    info
}

/// Where its first table stands.
pub async fn table_status(client: &mut Client) -> v1::TableStatus {
    state(client).await.shard.unwrap().tables[0]
}

/// Every item of a table that draws uniformly, each once.
pub async fn all_items(client: &mut Client, table: u32) -> Vec<PackedBatch> {
    let items = state(client).await.shard.unwrap().tables[table as usize].items;
    let mut sampling = Sampling::open(client).await;
    let points: Vec<f64> = (0..items).map(|item| (item as f64 + 0.5) / items as f64).collect();
    let mut batches = Vec::new();
    for points in points.chunks(10_000) {
        let batch = sampling.draw(table, points.to_vec()).await;
        assert_eq!(batch.len(), points.len());
        batches.push(batch);
    }
    batches
}

/// Its frames are those that its lane's writer made.
#[track_caller]
pub fn assert_frames(item: &proto::BatchItem<'_>) {
    let (lane, first) = (item.lane(), item.first_step());
    let from = first.saturating_sub(STACK as u64 - 1);
    let steps = from..=first + item.length() as u64;
    let expected = steps.map(|step| (frame(lane.actor, lane.lane, step), true));
    let got = item.frames().map(|(frame, key)| (frame.to_vec(), key));
    assert!(got.eq(expected), "other frames at step {first} of {lane:?}");
    let steps = first..first + item.length() as u64;
    assert!(item.steps().eq(steps.map(taken)), "other steps at step {first} of {lane:?}");
}

/// Asserts that a call was refused with this code and a message that contains `part`. Returns the status.
#[track_caller]
pub fn refused(answer: Result<impl Debug, Status>, code: Code, part: &str) -> Status {
    let status = answer.unwrap_err();
    assert_status(&status, code, part);
    status
}

#[track_caller]
pub fn assert_status(status: &Status, code: Code, part: &str) {
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(part), "{part:?} is not in {:?}", status.message());
}
