//! A replay shard as a process of its own, with actors that write to it and a learner that draws from it.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use futures_util::future::try_join_all;
use proto::{StoreSpec, Updates, v1};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::codec::Decoder;
use replay::{Allowance, ShardStatus};
use rpc::address::Address;
use rpc::channel::{Credentials, channel};
use rpc::sampler::{SampleStream, SampleStreamOptions};
use rpc::shard::{ShardClient, ShardConfig, ShardError};
use rpc::shard_entry::ShardEntry;
use tokio::runtime::Builder;
use tonic::Status;

use crate::process::Process;
use crate::writer::{LANES, Writer, priority};

/// Steps in a chunk: as an actor of eight lanes sends them about once a second.
pub const CHUNK_STEPS: u64 = 64;

/// Actors that there are.
pub const ACTORS: u32 = 4;

/// Chunks of an actor in flight.
const IN_FLIGHT_MAX: usize = LANES as usize;

/// Batches of a learner in flight.
const PREFETCH: usize = 8;

/// How long a busy machine may take to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// The run that the shard belongs to.
pub const RUN: &str = "bench";

/// How the shard is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A socket in the file system.
    Unix,
    Tcp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    pub calls: u64,
    pub items: u64,
}

impl Done {
    fn add(&mut self, items: usize) {
        self.calls += 1;
        self.items += items as u64;
    }
}

/// A shard process with its connected actors and learner.
pub struct ShardFixture {
    pub process: Process,
    address: Address,
    actors: Vec<Actor>,
    shard: ShardClient,
    spec: StoreSpec,
}

/// What a real actor has between its lanes and the shard.
struct Actor {
    chunks: Writer,
    writer: rpc::writer::ChunkWriter,
}

impl ShardFixture {
    /// Starts a shard that holds a store as specified, and connects everyone. Actors take turns with the recordings.
    pub async fn start(
        transport: Transport,
        directory: &Path,
        durable: bool,
        spec: &StoreSpec,
        recordings: &[Arc<Vec<Vec<u8>>>],
    ) -> Result<Self> {
        Self::start_with(transport, directory, durable.then_some("10"), spec, recordings).await
    }

    /// The same, with files that reach the disk as `fsync` says, or without any.
    pub async fn start_with(
        transport: Transport,
        directory: &Path,
        fsync: Option<&str>,
        spec: &StoreSpec,
        recordings: &[Arc<Vec<Vec<u8>>>],
    ) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let address = address(transport, directory)?;
        let mut arguments = vec!["--listen".to_owned(), address.to_string()];
        if let Some(fsync) = fsync {
            let data = directory.join("data").display().to_string();
            arguments.extend(["--data-dir".to_owned(), data, "--fsync".to_owned(), fsync.to_owned()]);
        }
        let process = Process::serve("quiver-replay-server", directory, &arguments)?;
        let config = ShardConfig {
            run: RUN.into(),
            learner_incarnation: 1,
            spec: spec.clone(),
            ticket_key: None,
            reliabilities: false,
        };
        let mut shard = ShardClient::new(address.clone(), Credentials::none(), config, 0);
        connect(&mut shard).await?;
        let actor = |actor: u32| {
            let hello = insert_hello(actor, spec);
            let frames = recordings[actor as usize % recordings.len()].clone();
            let chunks = Writer::new(actor, frames, spec.codec, spec.actions);
            let writer = rpc::writer::ChunkWriter::spawn(
                0,
                ShardEntry::fixed(address.clone()),
                Credentials::none(),
                hello,
                IN_FLIGHT_MAX,
                actor.into(),
            );
            Actor { chunks, writer }
        };
        let actors = (0..ACTORS).map(actor).collect();
        Ok(Self { process, address, actors, shard, spec: spec.clone() })
    }

    /// Where the shard listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What the shard holds.
    pub fn spec(&self) -> &StoreSpec {
        &self.spec
    }

    /// Inserts until the table is full.
    pub async fn fill(&mut self) -> Result<()> {
        let capacity = self.spec.options.tables[0].capacity as u64;
        let share = capacity.div_ceil(ACTORS.into()) + u64::from(LANES) * CHUNK_STEPS;
        self.insert(ACTORS as usize, move |done| done.items < share).await?;
        let items = self.status().await?.first_table().items;
        ensure!(items == capacity, "the shard has {items} items of {capacity}");
        Ok(())
    }

    /// So many actors insert, each as long as there is `more` for it to do; all of it is acknowledged.
    pub async fn insert(
        &mut self,
        actors: usize,
        more: impl Fn(&Done) -> bool + Clone + Send + 'static,
    ) -> Result<Done> {
        let work = self.actors.drain(..actors).map(|mut actor| {
            let more = more.clone();
            tokio::spawn(async move {
                let done = actor.insert(more).await?;
                Ok::<_, anyhow::Error>((actor, done))
            })
        });
        let mut all = Done::default();
        let ended = try_join_all(work.collect::<Vec<_>>()).await?;
        for (index, ended) in ended.into_iter().enumerate() {
            let (actor, done) = ended?;
            self.actors.insert(index, actor);
            all.calls += done.calls;
            all.items += done.items;
        }
        Ok(all)
    }

    /// A sampling client that returns priorities.
    pub async fn learner(&self, batch: usize, prefetch: usize) -> Result<Learner> {
        Learner::open(&self.address, &self.spec, batch, prefetch).await
    }

    /// Samples batches while `more` is true, decodes each into a prepared array, and sends new priorities.
    pub async fn sample(&mut self, batch: usize, more: impl Fn(&Done) -> bool) -> Result<Done> {
        let mut learner = self.learner(batch, PREFETCH).await?;
        let mut done = Done::default();
        while more(&done) {
            learner.next().await?;
            done.add(batch);
        }
        Ok(done)
    }

    /// Seconds that each of so many batches took, one after the other, while `writers` insert as fast as they can. The
    /// learner has a thread and a connection of its own, as a process of its own would.
    pub async fn latencies(&mut self, batch: usize, count: usize, writers: usize) -> Result<Vec<f64>> {
        let over = Arc::new(AtomicBool::new(writers == 0));
        let more = {
            let over = over.clone();
            move |_: &Done| !over.load(Ordering::Relaxed)
        };
        let (address, spec) = (self.address.clone(), self.spec.clone());
        let draw = move || -> Result<Vec<f64>> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let seconds = runtime.block_on(async {
                let mut learner = Learner::open(&address, &spec, batch, 0).await?;
                let mut seconds = Vec::with_capacity(count);
                for _ in 0..count {
                    let start = Instant::now();
                    learner.next().await?;
                    seconds.push(start.elapsed().as_secs_f64());
                }
                Ok(seconds)
            });
            over.store(true, Ordering::Relaxed);
            seconds
        };
        let drawing = tokio::task::spawn_blocking(draw);
        self.insert(writers, more).await?;
        drawing.await?
    }

    /// What the shard holds.
    pub async fn status(&mut self) -> Result<ShardStatus> {
        Ok(self.shard.grant(None, 0, Duration::ZERO, false).await?)
    }
}

/// Draws batches and sends priorities back.
pub struct Learner {
    sampler: SampleStream,
    unpacking: Unpacking,
    rng: ChaCha8Rng,
}

impl Learner {
    async fn open(address: &Address, spec: &StoreSpec, batch: usize, prefetch: usize) -> Result<Self> {
        let options = SampleStreamOptions { table: 0, batch, stratified: true, prefetch, seed: 9 };
        let opened = SampleStream::open(channel(address), RUN, 1, spec, options).await;
        let sampler = opened.map_err(|status| failed(&status)).context("sampling")?;
        let (unpacking, rng) = (Unpacking::new(spec, batch), ChaCha8Rng::seed_from_u64(8));
        Ok(Self { sampler, unpacking, rng })
    }

    pub async fn next(&mut self) -> Result<()> {
        self.unpacking.next(&mut self.sampler, &mut self.rng).await
    }
}

/// A batch's frames as one array, used again for each batch.
struct Unpacking {
    decoder: Decoder,
    frame_bytes: usize,
    stack: usize,
    batch: usize,
    out: Vec<u8>,
}

impl Unpacking {
    fn new(spec: &StoreSpec, batch: usize) -> Self {
        let (frame_bytes, stack) = (spec.options.frame_bytes, spec.options.stack);
        let out = vec![0; batch * (stack + 1) * frame_bytes];
        Self { decoder: Decoder::new(spec.codec), frame_bytes, stack, batch, out }
    }

    async fn next(&mut self, sampler: &mut SampleStream, rng: &mut ChaCha8Rng) -> Result<()> {
        let batch = sampler.next().await.map_err(|status| failed(&status))?;
        ensure!(batch.len() == self.batch, "the shard gave {} items of {}", batch.len(), self.batch);
        let places = self.out.chunks_exact_mut((self.stack + 1) * self.frame_bytes);
        for (item, place) in batch.items().zip(places) {
            let (frames, lead, length) = (item.frames(), item.lead(), item.length());
            self.decoder.decode_item(frames, lead, length, self.stack, self.frame_bytes, place)?;
        }
        std::hint::black_box(&self.out);
        let priorities = batch.items().map(|item| (item.key(), priority(rng))).collect();
        let updates = Updates { priorities, ..Updates::default() };
        sampler.update(&updates).await.map_err(|status| failed(&status))
    }
}

impl Actor {
    async fn insert(&mut self, more: impl Fn(&Done) -> bool) -> Result<Done> {
        let ended = |state| anyhow!("the shard takes no more chunks: {state:?}");
        let mut done = Done::default();
        while more(&done) {
            let chunk = self.chunks.chunk(CHUNK_STEPS);
            done.add(chunk.items.len());
            self.writer.send(chunk).await.map_err(ended)?;
        }
        self.writer.flush().await.map_err(ended)?;
        Ok(done)
    }
}

/// How an actor introduces itself to the shard.
pub fn insert_hello(actor: u32, spec: &StoreSpec) -> v1::InsertHello {
    v1::InsertHello {
        caller: Some(proto::caller(RUN)),
        actor,
        incarnation: 1,
        codec: spec.codec.to_string(),
        frame_bytes: spec.options.frame_bytes as u32,
        stack: spec.options.stack as u32,
        ..v1::InsertHello::default()
    }
}

fn failed(status: &Status) -> anyhow::Error {
    anyhow!("{}", rpc::shard::describe(status))
}

/// The address on which a shard listens.
fn address(transport: Transport, directory: &Path) -> Result<Address> {
    match transport {
        Transport::Unix => Ok(format!("unix:{}", directory.join("shard").display()).parse()?),
        // With port 0 the shard picks a free port, but reports it only in its log.
        Transport::Tcp => Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string().parse()?),
    }
}

/// Configures the shard, with an unlimited allowance.
async fn connect(shard: &mut ShardClient) -> Result<()> {
    let start = Instant::now();
    let stands = loop {
        match shard.grant(None, 0, Duration::ZERO, false).await {
            Err(ShardError::Unreachable(_)) if start.elapsed() < CONNECT_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            answer => break answer?,
        }
    };
    let allowance = Allowance { incarnation: stands.incarnation, inserts: u64::MAX };
    shard.grant(Some(allowance), 0, Duration::ZERO, false).await?;
    Ok(())
}
