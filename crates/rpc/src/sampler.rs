//! Batch after batch from one shard, with the next ones already under way.
//!
//! For whoever trains on a shard by itself: the Python client, benchmarks, a learner of one's own. Requests travel on one
//! stream; new priorities ride along with the next request, so a batch costs one message each way.

use std::collections::VecDeque;
use std::time::Duration;

use proto::limits::{INSERT_BYTES_MAX, SAMPLE_BYTES_MAX};
use proto::v1::replay_client::ReplayClient;
use proto::{Batch, StoreSpec, Updates, convert, v1};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::shard::News;

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
    replies: Streaming<v1::SampleReply>,
    options: SamplerOptions,
    stack: usize,
    actions: u16,
    rng: ChaCha8Rng,
    /// Of the replies under way, whether each brings a batch.
    under_way: VecDeque<bool>,
    updates: Option<v1::Updates>,
    news: News,
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
        let mut sampler = Self {
            requests,
            replies,
            options,
            stack: spec.options.stack,
            actions: spec.actions,
            rng,
            under_way: VecDeque::new(),
            updates: None,
            news: News::default(),
            stale: 0,
        };
        // The hello draws nothing and says where the shard stands.
        sampler.reply().await?;
        Ok(sampler)
    }

    /// The next batch. Empty if the table has no items, or smaller if it uses them up and has fewer.
    pub async fn next(&mut self) -> Result<Batch, Status> {
        while self.under_way.iter().filter(|&&batch| batch).count() <= self.options.prefetch {
            self.request().await?;
        }
        loop {
            let batch = self.reply().await?;
            if self.under_way.pop_front() == Some(true) {
                return Ok(batch);
            }
        }
    }

    /// Sends what is left to send, waits until the shard has done it, and says how many updates were for items that were
    /// gone. What was drawn ahead is dropped.
    pub async fn finish(mut self) -> Result<u64, Status> {
        if self.updates.is_some() {
            self.send(Vec::new()).await?;
        }
        while self.under_way.pop_front().is_some() {
            self.reply().await?;
        }
        Ok(self.stale)
    }

    /// New priorities, sent along with the next request.
    pub async fn update(&mut self, updates: &Updates) -> Result<(), Status> {
        if self.updates.is_some() {
            // Two batches of updates between two requests: the first goes by itself.
            self.send(Vec::new()).await?;
        }
        let incarnation = updates.priorities.last().map_or(self.news.incarnation, |(key, _)| key.incarnation);
        self.updates = Some(convert::updates_message(updates, incarnation));
        Ok(())
    }

    /// Where the shard stood with the last reply.
    pub fn news(&self) -> &News {
        &self.news
    }

    /// Updates so far whose items were gone.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    async fn request(&mut self) -> Result<(), Status> {
        let (count, stratified) = (self.options.batch, self.options.stratified);
        let mut point = |share: usize| {
            let uniform: f64 = self.rng.random();
            let point = if stratified { (share as f64 + uniform) / count as f64 } else { uniform };
            point.min(1.0 - f64::EPSILON)
        };
        let points = (0..count).map(&mut point).collect();
        self.send(points).await
    }

    async fn send(&mut self, points: Vec<f64>) -> Result<(), Status> {
        self.under_way.push_back(!points.is_empty());
        let (table, updates) = (self.options.table as u32, self.updates.take());
        let request = v1::SampleRequest { points, table, updates, ..v1::SampleRequest::default() };
        self.requests.send(request).await.map_err(|_| ended())
    }

    async fn reply(&mut self) -> Result<Batch, Status> {
        let reply = timeout(ANSWER_WAIT_MAX, self.replies.message()).await.map_err(|_| silent())??;
        let reply = reply.ok_or_else(ended)?;
        self.stale += reply.stale;
        self.news = reply.shard.map(News::from).unwrap_or_default();
        let batch = Batch::new(reply.batch.unwrap_or_default(), self.stack, self.actions);
        batch.map_err(|invalid| Status::internal(format!("a batch that can't be: {invalid}")))
    }
}

fn ended() -> Status {
    Status::unavailable("the stream has ended")
}

fn silent() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()))
}
