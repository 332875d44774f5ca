//! Batch after batch from one shard, with the next ones already under way.
//!
//! For whoever trains on a shard by itself: the Python client, benchmarks, a learner of one's own. Requests travel on one
//! stream; new priorities ride along with the next request, so a batch costs one message each way.

use std::collections::VecDeque;
use std::time::Duration;

use crate::channel::Channel;
use proto::limits::{INSERT_BYTES_MAX, SAMPLE_BYTES_MAX, UPDATES_MAX};
use proto::v1::replay_client::ReplayClient;
use proto::{Batch, StoreSpec, Updates, convert, v1};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::{ItemKey, ShardStatus};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// How long a shard may take to answer. It never waits by itself, so one that takes longer hangs.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// What is drawn.
#[derive(Clone, Debug)]
pub struct SamplerOptions {
    /// Index of the table.
    pub table: usize,
    /// Items in a batch.
    pub batch: usize,
    /// One item from each of as many equal shares of the mass.
    pub stratified: bool,
    /// Batches under way beside the one at hand.
    pub prefetch: usize,
    /// Seed of the draws.
    pub seed: u64,
}

/// Batches from one shard.
#[derive(Debug)]
pub struct Sampler {
    requests: mpsc::Sender<v1::SampleRequest>,
    inbox: Inbox,
    options: SamplerOptions,
    rng: ChaCha8Rng,
    /// To be sent with the next request.
    updates: Updates,
}

/// What the shard answers.
#[derive(Debug)]
struct Inbox {
    replies: Streaming<v1::SampleReply>,
    stack: usize,
    actions: u16,
    /// Of the replies under way, whether each brings a batch.
    under_way: VecDeque<bool>,
    /// Batches that came and were not taken.
    ready: VecDeque<Batch>,
    status: ShardStatus,
    stale: u64,
}

impl Sampler {
    /// Opens a stream to a shard that holds what `spec` says.
    pub async fn open(
        channel: Channel,
        run: &str,
        learner_incarnation: u32,
        spec: &StoreSpec,
        options: SamplerOptions,
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
            // The hello draws nothing and says where the shard stands.
            under_way: VecDeque::from([false]),
            ready: VecDeque::new(),
            status: ShardStatus::default(),
            stale: 0,
        };
        let mut sampler = Self { requests, inbox, options, rng, updates: Updates::default() };
        sampler.drain().await?;
        Ok(sampler)
    }

    /// The next batch. Empty if the table has no items, or smaller if it uses them up and has fewer. May be given up at
    /// any time.
    pub async fn next(&mut self) -> Result<Batch, Status> {
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

    /// New priorities, sent along with the next request. Keys of another incarnation than the shard's are stale.
    pub async fn update(&mut self, updates: &Updates) -> Result<(), Status> {
        let incarnation = self.inbox.status.incarnation;
        let own = |key: &ItemKey| key.incarnation == incarnation;
        let count = self.updates.priorities.len() + updates.priorities.len();
        self.updates.priorities.extend(updates.priorities.iter().filter(|(key, _)| own(key)));
        self.inbox.stale += (count - self.updates.priorities.len()) as u64;
        self.updates.removed.extend(updates.removed.iter().filter(|key| own(key)));
        self.updates.table = updates.table;
        self.updates.largest = updates.largest.or(self.updates.largest);
        while self.updates.priorities.len().max(self.updates.removed.len()) > UPDATES_MAX {
            self.send(Vec::new()).await?;
        }
        Ok(())
    }

    /// Waits for what was asked for ahead, and drops it.
    pub async fn drain(&mut self) -> Result<(), Status> {
        while !self.inbox.under_way.is_empty() {
            self.inbox.read().await?;
        }
        self.inbox.ready.clear();
        Ok(())
    }

    /// Sends what is left to send, waits until the shard has done it, and says how many updates were for items that were
    /// gone. What was drawn ahead is dropped.
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

    /// Updates so far whose items were gone.
    pub fn stale(&self) -> u64 {
        self.inbox.stale
    }

    /// Where a batch is drawn.
    fn points(&mut self) -> Vec<f64> {
        let (count, stratified) = (self.options.batch, self.options.stratified);
        replay::points(count, stratified, &mut self.rng).collect()
    }

    /// Sends a request, and with it as many of the updates as fit. A shard whose replies nobody reads stops reading too,
    /// so they are read while this waits. Whoever gives up has sent nothing.
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
        self.inbox.under_way.push_back(batch);
        Ok(())
    }
}

impl Inbox {
    /// Batches that are here or under way.
    fn batches(&self) -> usize {
        self.ready.len() + self.under_way.iter().filter(|&&batch| batch).count()
    }

    /// Takes in one reply. May be given up at any time.
    async fn read(&mut self) -> Result<(), Status> {
        let reply = timeout(ANSWER_WAIT_MAX, self.replies.message()).await.map_err(|_| silent())??;
        let reply = reply.ok_or_else(ended)?;
        self.stale = self.stale.saturating_add(reply.stale);
        self.status = reply.shard.map(proto::status::status).unwrap_or_default();
        let brings_batch =
            self.under_way.pop_front().ok_or_else(|| Status::internal("an answer to nothing"))?;
        if brings_batch {
            let batch = Batch::new(reply.batch.unwrap_or_default(), self.stack, self.actions);
            let invalid = |invalid| Status::internal(format!("a batch that can't be: {invalid}"));
            self.ready.push_back(batch.map_err(invalid)?);
        }
        Ok(())
    }
}

/// The first of the updates: as many as one message may have, if there are any.
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
    Status::unavailable("the stream has ended")
}

fn silent() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()))
}
