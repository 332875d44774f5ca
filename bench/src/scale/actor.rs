//! An actor without emulator and network: recorded chunks, sent at a pace.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use proto::{StoreSpec, v1};
use replay::{Chunk, LaneKey};
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::shard_entry::ShardEntry;
use rpc::writer::WriterState;

use crate::shard::{ACTORS, insert_hello};
use crate::writer::{LANES, Writer};

/// Steps in a chunk: the default of `chunk_steps`.
pub const CHUNK_STEPS: u64 = 8;

/// Chunks on a tape: as many different ones as there are before they repeat.
const TAPE_CHUNKS: usize = 128;

/// One lane's chunks, packed once. The first begins with a key frame, so it may follow the last.
pub struct Tape {
    chunks: Vec<Chunk>,
    hello: v1::InsertHello,
}

impl Tape {
    /// Packs recorded frames for a store as specified.
    pub fn record(frames: &Arc<Vec<Vec<u8>>>, spec: &StoreSpec) -> Self {
        let mut writer = Writer::new(0, frames.clone(), spec.codec, spec.actions);
        let all = (0..TAPE_CHUNKS * LANES as usize).map(|_| writer.chunk(CHUNK_STEPS));
        let chunks = all.filter(|chunk| chunk.lane.lane == 0).collect();
        Self { chunks, hello: insert_hello(0, spec) }
    }

    /// The lane's chunk of that number.
    fn chunk(&self, lane: LaneKey, sequence: u64) -> Chunk {
        let mut chunk = self.chunks[(sequence % self.chunks.len() as u64) as usize].clone();
        let first_step = sequence * CHUNK_STEPS;
        let shift = first_step - chunk.first_step;
        chunk.items.iter_mut().for_each(|item| item.first += shift);
        chunk.steps[0].starts_episode = first_step == 0;
        Chunk { lane, sequence, first_step, ..chunk }
    }
}

/// An actor with one lane for each shard.
pub struct LightActor {
    number: u32,
    tape: Arc<Tape>,
    writers: Vec<rpc::writer::ChunkWriter>,
    /// Chunks sent by each lane.
    sequence: u64,
}

/// What an actor has done.
#[derive(Default)]
pub struct Played {
    /// Transitions that are stored.
    pub items: u64,
    /// Seconds that each chunk took until it was acknowledged.
    pub waits: Vec<f64>,
}

impl LightActor {
    /// Connects to all shards, and waits until each has stored a chunk.
    pub async fn connect(number: u32, shards: &[Address], tape: &Arc<Tape>) -> Result<Self> {
        // Those before fill the shards.
        let number = ACTORS + number;
        let hello = v1::InsertHello { actor: number, ..tape.hello.clone() };
        let writer = |address: &Address| {
            rpc::writer::ChunkWriter::spawn(
                0,
                ShardEntry::fixed(address.clone()),
                Credentials::none(),
                hello.clone(),
                1,
                number.into(),
            )
        };
        let mut actor =
            Self { number, tape: tape.clone(), writers: shards.iter().map(writer).collect(), sequence: 0 };
        actor.round(&mut Played::default(), Duration::ZERO, Instant::now()).await?;
        Ok(actor)
    }

    /// Sends so many transitions a second until then, no faster. A chunk is sent when its lane's last is acknowledged, so
    /// an actor whose shard is slow falls behind, as a real one would.
    pub async fn play(mut self, per_second: f64, until: Instant) -> Result<(Self, Played)> {
        let mut played = Played::default();
        let period = Duration::from_secs_f64(CHUNK_STEPS as f64 / per_second);
        // Not all at the same moment.
        let mut due = Instant::now() + period.mul_f64(f64::from(self.number % 97) / 97.0);
        while due < until && Instant::now() < until {
            due = self.round(&mut played, period, due).await?;
        }
        Ok((self, played))
    }

    /// One chunk to each shard in turn, the first when it is due, and then one in each period.
    async fn round(&mut self, played: &mut Played, period: Duration, mut due: Instant) -> Result<Instant> {
        let ended = |state: WriterState| anyhow!("a shard takes no more chunks: {state:?}");
        for (lane, writer) in (0u32..).zip(&self.writers) {
            tokio::time::sleep_until(due.into()).await;
            let lane = LaneKey { actor: self.number, incarnation: 1, lane };
            let chunk = self.tape.chunk(lane, self.sequence);
            let (items, sent) = (chunk.items.len() as u64, Instant::now());
            writer.send(chunk).await.map_err(ended)?;
            writer.flush().await.map_err(ended)?;
            played.items += items;
            played.waits.push(sent.elapsed().as_secs_f64());
            due += period;
        }
        self.sequence += 1;
        Ok(due)
    }
}
