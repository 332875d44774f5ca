//! Samples batches from one shard and prefetches the next ones.
//!
//! For clients that train on a single shard: the Python client, benchmarks, custom learners. All requests use one
//! stream. Priority updates travel with the next sample request, so a batch costs one message in each direction.

use std::collections::VecDeque;
use std::time::Duration;

use crate::channel::Channel;
use proto::limits::{INSERT_BYTES_MAX, SAMPLE_BYTES_MAX, UPDATES_MAX};
use proto::v1::replay_client::ReplayClient;
use proto::{PackedBatch, StoreSpec, Updates, convert, v1};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::{ItemKey, ShardStatus};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Timeout of an answer. A shard never blocks a sample request, so a shard that takes longer hangs.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// How batches are sampled.
#[derive(Clone, Debug)]
pub struct SampleStreamOptions {
    /// Index of the table.
    pub table: usize,
    /// Items per batch.
    pub batch: usize,
    /// Draw one item from each of `batch` equal shares of the total priority mass.
    pub stratified: bool,
    /// Batches in flight in addition to the current one.
    pub prefetch: usize,
    /// Seed of the random draws.
    pub seed: u64,
}

/// A stream of batches from one shard.
#[derive(Debug)]
pub struct SampleStream {
    requests: mpsc::Sender<v1::SampleRequest>,
    inbox: Inbox,
    options: SampleStreamOptions,
    rng: ChaCha8Rng,
    /// Priority updates to send with the next request.
    updates: Updates,
}

/// Replies of the shard, received and expected.
#[derive(Debug)]
struct Inbox {
    replies: Streaming<v1::SampleReply>,
    stack: usize,
    actions: u16,
    /// For each reply in flight, whether it carries a batch.
    in_flight: VecDeque<bool>,
    /// Received batches that the caller has not taken yet.
    ready: VecDeque<PackedBatch>,
    status: ShardStatus,
    stale: u64,
}

impl SampleStream {
    /// Opens a stream to a shard whose store matches `spec`.
    pub async fn open(
        channel: Channel,
        run: &str,
        learner_incarnation: u32,
        spec: &StoreSpec,
        options: SampleStreamOptions,
    ) -> Result<Self, Status> {
        let mut client = ReplayClient::new(channel)
            .max_decoding_message_size(SAMPLE_BYTES_MAX)
            .max_encoding_message_size(INSERT_BYTES_MAX);
        let (requests, receiver) = mpsc::channel(options.prefetch + 2);
        let caller = Some(proto::caller(run));
        let hello = v1::SampleRequest { caller, learner_incarnation, ..v1::SampleRequest::default() };
        requests.try_send(hello).map_err(|_| ended())?;
        let call = client.sample(ReceiverStream::new(receiver));
        let replies = timeout(ANSWER_WAIT_MAX, call).await.map_err(|_| silent())??.into_inner();
        let rng = ChaCha8Rng::seed_from_u64(options.seed);
        let inbox = Inbox {
            replies,
            stack: spec.options.stack,
            actions: spec.actions,
            // The hello samples nothing; its reply carries the shard's status.
            in_flight: VecDeque::from([false]),
            ready: VecDeque::new(),
            status: ShardStatus::default(),
            stale: 0,
        };
        let mut sampler = Self { requests, inbox, options, rng, updates: Updates::default() };
        sampler.drain().await?;
        Ok(sampler)
    }

    /// The next batch. It is empty if the table has no items, and smaller if the table limits how often an item is
    /// sampled and has too few items left. Cancel-safe.
    pub async fn next(&mut self) -> Result<PackedBatch, Status> {
        while self.inbox.batches() <= self.options.prefetch {
            let points = self.points();
            self.send(points).await?;
        }
        loop {
            if let Some(batch) = self.inbox.ready.pop_front() {
                return Ok(batch);
            }
            self.inbox.read().await?;
        }
    }

    /// Queues new priorities, which travel with the next request. Keys of another incarnation of the shard count as
    /// stale.
    pub async fn update(&mut self, updates: &Updates) -> Result<(), Status> {
        let incarnation = self.inbox.status.incarnation;
        let own = |key: &ItemKey| key.incarnation == incarnation;
        let count = self.updates.priorities.len() + updates.priorities.len();
        self.updates.priorities.extend(updates.priorities.iter().filter(|(key, _)| own(key)));
        self.inbox.stale += (count - self.updates.priorities.len()) as u64;
        self.updates.removed.extend(updates.removed.iter().filter(|key| own(key)));
        self.updates.table = updates.table;
        self.updates.largest = updates.largest.or(self.updates.largest);
        // The queue stays within one message: a full message is sent at once, without sampling.
        while self.updates.priorities.len().max(self.updates.removed.len()) > UPDATES_MAX {
            self.send(Vec::new()).await?;
        }
        Ok(())
    }

    /// Waits for all prefetched batches and discards them.
    pub async fn drain(&mut self) -> Result<(), Status> {
        while !self.inbox.in_flight.is_empty() {
            self.inbox.read().await?;
        }
        self.inbox.ready.clear();
        Ok(())
    }

    /// Sends the remaining updates, waits until the shard has applied them, and returns the number of stale updates.
    /// Prefetched batches are discarded.
    pub async fn finish(mut self) -> Result<u64, Status> {
        while self.updates != Updates::default() {
            self.send(Vec::new()).await?;
        }
        self.drain().await?;
        Ok(self.inbox.stale)
    }

    /// The shard's status as of the last reply.
    pub fn status(&self) -> &ShardStatus {
        &self.inbox.status
    }

    /// Number of updates so far whose items no longer exist.
    pub fn stale(&self) -> u64 {
        self.inbox.stale
    }

    /// The points in [0, 1) at which the shard draws the items of a batch.
    fn points(&mut self) -> Vec<f64> {
        let (count, stratified) = (self.options.batch, self.options.stratified);
        replay::random_points(count, stratified, &mut self.rng).collect()
    }

    /// Sends a request with as many of the queued updates as fit. Cancel-safe: a cancelled call has sent nothing.
    ///
    /// It reads replies while it waits for room, because a shard stops reading requests if its replies are not read.
    async fn send(&mut self, points: Vec<f64>) -> Result<(), Status> {
        let permit = loop {
            tokio::select! {
                permit = self.requests.reserve() => break permit.map_err(|_| ended())?,
                read = self.inbox.read() => read?,
            }
        };
        let batch = !points.is_empty();
        let updates = take(&mut self.updates);
        let updates =
            updates.map(|updates| convert::updates_message(&updates, self.inbox.status.incarnation));
        let table = self.options.table as u32;
        permit.send(v1::SampleRequest { points, table, updates, ..v1::SampleRequest::default() });
        self.inbox.in_flight.push_back(batch);
        Ok(())
    }
}

impl Inbox {
    /// Number of batches received or in flight.
    fn batches(&self) -> usize {
        self.ready.len() + self.in_flight.iter().filter(|&&batch| batch).count()
    }

    /// Receives one reply. Cancel-safe.
    async fn read(&mut self) -> Result<(), Status> {
        let reply = timeout(ANSWER_WAIT_MAX, self.replies.message()).await.map_err(|_| silent())??;
        let reply = reply.ok_or_else(ended)?;
        self.stale = self.stale.saturating_add(reply.stale);
        self.status = reply.shard.map(proto::status::status).unwrap_or_default();
        let brings_batch = self
            .in_flight
            .pop_front()
            .ok_or_else(|| Status::internal("the shard sent a reply without a request"))?;
        if brings_batch {
            let batch = PackedBatch::new(reply.batch.unwrap_or_default(), self.stack, self.actions);
            let invalid = |invalid| Status::internal(format!("the shard sent an invalid batch: {invalid}"));
            self.ready.push_back(batch.map_err(invalid)?);
        }
        Ok(())
    }
}

/// Removes as many updates as one message may carry; `None` if there are none.
fn take(updates: &mut Updates) -> Option<Updates> {
    if *updates == Updates::default() {
        return None;
    }
    let (changed, gone) = (updates.priorities.len().min(UPDATES_MAX), updates.removed.len().min(UPDATES_MAX));
    let first = Updates {
        table: updates.table,
        priorities: updates.priorities.drain(..changed).collect(),
        removed: updates.removed.drain(..gone).collect(),
        largest: updates.largest.take(),
    };
    if updates.priorities.is_empty() && updates.removed.is_empty() {
        *updates = Updates::default();
    }
    Some(first)
}

fn ended() -> Status {
    Status::unavailable("the shard closed the sample stream")
}

fn silent() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()))
}
