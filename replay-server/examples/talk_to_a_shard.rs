//! Talks to a shard from Rust: starts one in this process, configures it, writes, samples and updates priorities.
//!
//! The calls are those of `proto/quiver/v1/replay.proto`, so they work with any shard, wherever it runs. Run it with
//! `cargo run --release -p quiver-replay-server --example talk_to_a_shard`.

use anyhow::{Context, ensure};
use prometheus::Registry;
use proto::v1::replay_client::ReplayClient;
use proto::{StoreSpec, Updates, convert, v1};
use replay::LaneKey;
use replay::codec::Codec;
use replay::testing::{LaneBuilder, one_step, options, taken};
use replay_server::config::Fsync;
use replay_server::{Config, Server};
use rpc::channel::{Credentials, channel};
use rpc::sampler::{SampleStream, SampleStreamOptions};
use rpc::shard_entry::ShardEntry;
use rpc::writer::ChunkWriter;
use telemetry::Health;
use tokio::sync::oneshot;
use value::priority::Priority;

const RUN: &str = "example";
const STEPS: u64 = 1_000;
const FRAME_BYTES: usize = 8;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A shard in memory on a free port. In production this is the program quiver-replay-server.
    let config = Config {
        listen: "127.0.0.1:0".parse()?,
        id: "example-shard".into(),
        data_dir: None,
        fsync: Fsync::Never,
        restore: None,
        memory_limit: 1 << 30,
        exit_with_run: false,
        secrets: None,
    };
    let server = Server::bind(&config, &Registry::new()).await?;
    let address = server.address().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving =
        tokio::spawn(async move { server.run(&Health::new(), async { drop(stopped.await) }).await });

    // The learner's part: configure the shard and allow inserts. An allowance names the shard's incarnation.
    let mut client = ReplayClient::new(channel(&address));
    let info = client.info(v1::InfoRequest {}).await?.into_inner();
    let shard_incarnation = info.shard.context("a shard reports its status")?.incarnation;
    let mut options = options();
    options.frame_bytes = FRAME_BYTES;
    let spec = StoreSpec { options, codec: Codec::Delta, actions: u16::MAX };
    let grant = v1::GrantRequest {
        caller: Some(proto::caller(RUN)),
        learner_incarnation: 1,
        store: Some(convert::store_message(&spec)),
        allowance: Some(v1::Allowance { shard_incarnation, inserts: STEPS }),
        ..v1::GrantRequest::default()
    };
    client.grant(grant).await?;

    // The actor's part: chunks of one lane. `flush` waits until all of them are acknowledged.
    let lane = LaneKey { actor: 0, incarnation: 1, lane: 0 };
    let hello = v1::InsertHello {
        caller: Some(proto::caller(RUN)),
        actor: lane.actor,
        incarnation: lane.incarnation,
        codec: spec.codec.to_string(),
        frame_bytes: FRAME_BYTES as u32,
        stack: spec.options.stack as u32,
        // The shard to write to, and the ticket of the actor: any shard, and the writer asks it for a ticket.
        ..v1::InsertHello::default()
    };
    let writer = ChunkWriter::spawn(0, ShardEntry::fixed(address.clone()), Credentials::none(), hello, 4, 0);
    let mut steps = LaneBuilder::packed(lane, spec.codec, FRAME_BYTES);
    for number in 0..STEPS {
        steps.push(&number.to_le_bytes(), Some(taken(number)));
        if (number + 1).is_multiple_of(50) {
            let items = steps.completed().map(|first| one_step(first, 1.0));
            writer.send(steps.chunk(items)).await.map_err(|state| anyhow::anyhow!("{state:?}"))?;
        }
    }
    writer.flush().await.map_err(|state| anyhow::anyhow!("{state:?}"))?;

    // The learner's part again: sample batches, unpack frames, return new priorities.
    let options = SampleStreamOptions { table: 0, batch: 32, stratified: true, prefetch: 1, seed: 1 };
    let mut sampler = SampleStream::open(channel(&address), RUN, 1, &spec, options).await?;
    for _ in 0..20 {
        let batch = sampler.next().await?;
        // Later steps get larger priorities, so they are sampled more often.
        let priorities = batch.items().map(|item| {
            let priority = Priority::try_new(1.0 + item.first_step() as f64).expect("finite and positive");
            (item.key(), priority)
        });
        let updates = Updates { priorities: priorities.collect(), ..Updates::default() };
        sampler.update(&updates).await?;
    }
    sampler.finish().await?;

    let status =
        client.info(v1::InfoRequest {}).await?.into_inner().shard.context("a shard reports its status")?;
    let status = proto::status::status(status);
    let counters = status.first_table().counters;
    println!("{} inserts, {} samples, {} bytes", counters.inserts, counters.samples, status.bytes_used);
    ensure!(counters.inserts == STEPS - 1 && counters.samples >= 640, "unexpected status: {status:?}");
    drop(stop);
    serving.await?
}
