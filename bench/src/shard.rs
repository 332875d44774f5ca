//! A replay shard as a process of its own, with actors that write to it and a learner that draws from it.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use futures_util::future::{join, try_join_all};
use proto::convert::{TableSpec, table_message};
use proto::v1;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::control::Allowance;
use rpc::address::Address;
use rpc::shard::{Shard, ShardError, Told};
use tonic::Status;

use crate::process::Process;
use crate::recording::Packed;
use crate::writer::{LANES, Writer};

/// Steps in a chunk: the setting's default.
pub const CHUNK_STEPS: u64 = 8;

/// Actors that there are.
pub const ACTORS: u32 = 4;

/// Chunks that an actor may have under way: two for each lane, as a real one.
const UNDER_WAY_MAX: usize = 2 * LANES as usize;

/// How long a busy machine may take to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How the shard is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A socket in the file system.
    Unix,
    /// Loopback TCP.
    Tcp,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Chunks or batches.
    pub calls: u64,
    /// Transitions in them.
    pub items: u64,
    /// Bytes of their packed frames.
    pub bytes: u64,
}

impl Done {
    fn add(&mut self, items: usize, bytes: usize) {
        self.calls += 1;
        self.items += items as u64;
        self.bytes += bytes as u64;
    }
}

/// A shard and those who use it.
pub struct Cast {
    /// The shard's process.
    pub process: Process,
    actors: Vec<Actor>,
    shard: Shard,
    told: Told,
    rng: ChaCha8Rng,
}

/// What a real actor has between its lanes and the shard.
struct Actor {
    chunks: Writer,
    writer: rpc::writer::Writer,
}

impl Cast {
    /// Starts a shard that holds a table as specified, connects everyone, and fills it with these frames.
    pub async fn start(
        transport: Transport,
        directory: &Path,
        spec: &TableSpec,
        frames: &Arc<Packed>,
    ) -> Result<Self> {
        let directory = directory.join(format!("{transport:?}"));
        std::fs::create_dir(&directory)?;
        let address = address(transport, &directory)?;
        let arguments = ["--listen".to_owned(), address.to_string()];
        let process = Process::serve("quiver-replay-server", &directory, &arguments)?;
        let told =
            Told { caller: proto::caller("bench"), learner_incarnation: 1, table: table_message(spec) };
        let mut shard = Shard::new(address.clone(), told.clone(), 0);
        connect(&mut shard).await?;
        let actor = |actor| {
            let hello = v1::InsertHello {
                caller: Some(told.caller.clone()),
                actor,
                incarnation: 0,
                codec: told.table.codec.clone(),
                frame_bytes: told.table.frame_bytes,
                stack: told.table.stack,
            };
            let chunks = Writer::of_actor(actor, frames.clone(), spec.actions);
            let writer = rpc::writer::Writer::spawn(address.clone(), hello, UNDER_WAY_MAX, actor.into());
            Actor { chunks, writer }
        };
        let actors = (0..ACTORS).map(actor).collect();
        let mut cast = Self { process, actors, shard, told, rng: ChaCha8Rng::seed_from_u64(8) };
        let capacity = spec.options.capacity as u64;
        let share = capacity.div_ceil(ACTORS.into()) + u64::from(LANES);
        cast.insert(ACTORS as usize, |done| done.items < share).await?;
        let stands = cast.standing().await?;
        ensure!(stands.items == capacity, "the shard has {} items of {capacity}", stands.items);
        Ok(cast)
    }

    /// So many actors insert, each as long as there is `more` for it to do; all of it is acknowledged.
    pub async fn insert(&mut self, actors: usize, more: impl Fn(&Done) -> bool) -> Result<Done> {
        let all = self.actors[..actors].iter_mut().map(|actor| actor.insert(&more));
        let mut done = Done::default();
        for one in try_join_all(all).await? {
            done.calls += one.calls;
            done.items += one.items;
            done.bytes += one.bytes;
        }
        Ok(done)
    }

    /// Draws batches, as long as there is `more` to do. As the learner does it, new priorities of one batch travel while
    /// the next is drawn.
    pub async fn sample(&mut self, batch: usize, more: impl Fn(&Done) -> bool) -> Result<Done> {
        let mut done = Done::default();
        let mut updates = Vec::new();
        while more(&done) {
            // One point in each of as many equal parts.
            let point =
                |part: usize, rng: &mut ChaCha8Rng| (part as f64 + rng.random::<f64>()) / batch as f64;
            let points = (0..batch).map(|part| point(part, &mut self.rng).min(1.0 - f64::EPSILON)).collect();
            let updated = update(&self.shard, &self.told, std::mem::take(&mut updates));
            let (updated, reply) = (updated, self.shard.sample(points, None));
            let (updated, reply) = join(updated, reply).await;
            updated?;
            let items = reply?.items;
            ensure!(items.len() == batch, "the shard gave {} items of {batch}", items.len());
            done.add(batch, items.iter().flat_map(|item| &item.frames).map(|frame| frame.len()).sum());
            let update = |item: v1::Item| v1::PriorityUpdate { key: item.key, priority: self.rng.random() };
            updates = items.into_iter().map(update).collect();
        }
        update(&self.shard, &self.told, updates).await?;
        Ok(done)
    }

    /// Where the shard stands.
    pub async fn standing(&mut self) -> Result<v1::Shard> {
        Ok(self.shard.grant(None, 0, Duration::ZERO, false).await?)
    }
}

impl Actor {
    async fn insert(&mut self, more: impl Fn(&Done) -> bool) -> Result<Done> {
        let ended = |state| anyhow!("the shard takes no more chunks: {state:?}");
        let mut done = Done::default();
        while more(&done) {
            let chunk = self.chunks.chunk(CHUNK_STEPS);
            done.add(chunk.items.len(), chunk.steps.iter().map(|step| step.frame.len()).sum());
            self.writer.send(chunk).await.map_err(ended)?;
        }
        self.writer.flush().await.map_err(ended)?;
        Ok(done)
    }
}

/// Where a shard shall listen.
fn address(transport: Transport, directory: &Path) -> Result<Address> {
    match transport {
        Transport::Unix => Ok(format!("unix:{}", directory.join("shard").display()).parse()?),
        // The shard picks a free port itself if it is told 0, but says which only in its log.
        Transport::Tcp => Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string().parse()?),
    }
}

/// Tells the shard what it holds, and that it may take in whatever comes.
async fn connect(shard: &mut Shard) -> Result<()> {
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

/// Gives items new priorities.
fn update(
    shard: &Shard,
    told: &Told,
    updates: Vec<v1::PriorityUpdate>,
) -> impl Future<Output = Result<()>> + use<> {
    let mut client = shard.client();
    let (caller, learner_incarnation) = (Some(told.caller.clone()), told.learner_incarnation);
    async move {
        let count = updates.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let request = v1::UpdatePrioritiesRequest {
            caller,
            learner_incarnation,
            updates,
            remove: Vec::new(),
            largest_priority: 0.0,
        };
        let failed = |status: Status| anyhow!("{}", rpc::shard::describe(&status));
        let reply = client.update_priorities(request).await.map_err(failed).context("priorities")?;
        ensure!(reply.get_ref().applied == count, "some priorities were stale, but nothing was evicted");
        Ok(())
    }
}
