//! Calls to shards and learners without any of our clients' cleverness.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::time::Duration;

use proto::limits::SAMPLE_BYTES_MAX;
use proto::v1::learner_client::LearnerClient;
use proto::v1::replay_client::ReplayClient;
use proto::{PackedBatch, v1};
use rpc::address::Address;
use rpc::channel::{Channel, channel};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::Status;

use crate::process::PATIENCE;

/// A runtime for calls.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Waits for something that will happen.
pub async fn patiently<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it should have happened long ago")
}

pub fn shard_client(address: &Address) -> ReplayClient<Channel> {
    ReplayClient::new(channel(address)).max_decoding_message_size(SAMPLE_BYTES_MAX)
}

pub fn learner_client(address: &Address) -> LearnerClient<Channel> {
    LearnerClient::new(channel(address)).max_encoding_message_size(usize::MAX)
}

/// Where a shard stands, asking until it answers.
pub async fn info(address: &Address) -> v1::InfoReply {
    patiently(async {
        loop {
            match timeout(Duration::from_secs(5), shard_client(address).info(v1::InfoRequest {})).await {
                Ok(Ok(reply)) => return reply.into_inner(),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
    .await
}

/// Draws at `points` on a stream of its own, as the learner of this run and incarnation would.
pub async fn sample(
    address: &Address,
    run: &str,
    learner_incarnation: u32,
    points: Vec<f64>,
) -> Result<PackedBatch, Status> {
    let caller = Some(proto::caller(run));
    let request = v1::SampleRequest { caller, learner_incarnation, points, ..v1::SampleRequest::default() };
    let answer = async {
        let mut replies = shard_client(address).sample(tokio_stream::once(request)).await?.into_inner();
        let reply = replies.message().await?.ok_or_else(|| Status::unavailable("no reply"))?;
        // Whatever the environment: its stack and actions are not what is tested here.
        PackedBatch::new(reply.batch.unwrap_or_default(), 255, u16::MAX)
            .map_err(|error| Status::internal(error.to_string()))
    };
    timeout(Duration::from_secs(10), answer)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("silent")))
}

/// As many points, evenly over the whole mass.
pub fn even_points(count: usize) -> Vec<f64> {
    (0..count).map(|point| (point as f64 + 0.5) / count as f64).collect()
}
