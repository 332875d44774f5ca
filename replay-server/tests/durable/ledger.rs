//! What writers were promised, and whether a shard keeps it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proto::PackedBatch;
use replay::LaneKey;
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::shard_entry::ShardEntry;
use rpc::writer::ChunkWriter;
use tokio::task::JoinHandle;

use crate::common::{STEPS, assert_frames, chunk_for, hello, patiently, until};

/// Lanes of each actor.
const LANES: u32 = 2;
/// Chunks that a writer hands over at once.
const AT_ONCE: usize = 4;

/// An actor that writes chunk after chunk until it is stopped, whatever happens to the shard.
pub struct Actor {
    writer: Arc<ChunkWriter>,
    stop: Arc<AtomicBool>,
    /// Chunks handed over, of all lanes by turns.
    handed: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Actor {
    pub fn start(address: &Address, actor: u32, tables: u8) -> Self {
        let writer = Arc::new(ChunkWriter::spawn(
            0,
            ShardEntry::fixed(address.clone()),
            Credentials::none(),
            hello(actor, 1),
            AT_ONCE,
            actor.into(),
        ));
        let (stop, handed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (to, stopped, count) = (writer.clone(), stop.clone(), handed.clone());
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed);
                let lane = (number % u64::from(LANES)) as u32;
                let lane = LaneKey { actor, incarnation: 1, lane };
                to.send(chunk_for(lane, number / u64::from(LANES), tables)).await.unwrap();
                count.store(number + 1, Ordering::Relaxed);
            }
        });
        Self { writer, stop, handed, task }
    }

    /// Chunks acknowledged. They are acknowledged in the order of sending.
    pub fn acknowledged(&self) -> u64 {
        self.writer.sent().chunks.load(Ordering::Relaxed)
    }

    /// Hands over no more chunks.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until every chunk that was handed over is acknowledged, and returns their number.
    async fn finish(self) -> u64 {
        patiently(self.task).await.unwrap();
        patiently(self.writer.flush()).await.unwrap();
        let handed = self.handed.load(Ordering::Relaxed);
        // The count comes a moment after the room.
        until(async || self.writer.sent().chunks.load(Ordering::Relaxed) == handed).await;
        handed
    }
}

/// Finishes these actors, all of which stop first: one that writes while another finishes could overrun the ring. Returns
/// how many chunks each handed over, and of how many the shard replied that it had them already.
pub async fn finish(actors: Vec<Actor>) -> (Vec<u64>, u64) {
    actors.iter().for_each(Actor::stop);
    let (mut handed, mut duplicates) = (Vec::new(), 0);
    for actor in actors {
        let writer = actor.writer.clone();
        handed.push(actor.finish().await);
        duplicates += writer.sent().duplicates.load(Ordering::Relaxed);
    }
    (handed, duplicates)
}

/// Calls `check` with the actor and number of each lane and with its items after the chunks that its actor handed over.
pub fn for_each_lane(handed: &[u64], check: impl Fn((u32, u32), Range<u64>)) {
    for (actor, &chunks) in (0..).zip(handed) {
        (0..LANES).for_each(|lane| check((actor, lane), expected(lane, chunks)));
    }
}

/// First steps of the items of each lane, sorted. All frames are looked at.
pub fn firsts(batches: &[PackedBatch]) -> BTreeMap<(u32, u32), Vec<u64>> {
    let mut firsts: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for item in batches.iter().flat_map(PackedBatch::items) {
        assert_frames(&item);
        firsts.entry((item.lane().actor, item.lane().lane)).or_default().push(item.first_step());
    }
    firsts.values_mut().for_each(|firsts| firsts.sort_unstable());
    firsts
}

/// What a lane's items are, each once, after so many of its actor's chunks.
pub fn expected(lane: u32, chunks: u64) -> Range<u64> {
    let of_lane = (chunks + u64::from(LANES) - 1 - u64::from(lane)) / u64::from(LANES);
    0..(of_lane * STEPS).saturating_sub(1)
}
