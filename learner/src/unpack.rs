//! Turns the items that shards have drawn into batches, several at a time on blocking threads.
//!
//! A job decodes frames, computes returns and importance weights, and asks the target network for its values, all off the
//! training thread. Jobs end in any order; the training thread awaits them in the order of their draws.
#![allow(clippy::disallowed_methods, reason = "the learner's process measures its work")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use coordinator::pool::ShardBatch;
use coordinator::sample_points::SamplePoint;
use proto::{BatchItem, PackedBatch};
use replay::LaneKey;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::metrics::Metrics;
use crate::priorities::Priorities;
use crate::replay::{BatchAssembler, ItemId, Sampled};
use crate::shared_target::SharedTarget;

/// What jobs share.
pub struct Unpacker {
    /// Those that no job uses.
    assemblers: mpsc::Receiver<BatchAssembler>,
    returned: mpsc::Sender<BatchAssembler>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Values batches ahead of their update.
    target: Option<SharedTarget>,
    /// Sends removals of items that can't be decoded.
    priorities: Priorities,
    metrics: Arc<Metrics>,
    /// Transitions of batches that were abandoned.
    abandoned: AtomicU64,
}

/// What a job unpacks.
pub struct Drawn {
    pub items: Vec<DrawnItems>,
    /// The probability with which one draw falls on each shard.
    pub shares: Vec<f64>,
    /// Batches drawn before this one, over the whole run.
    pub number: u64,
    /// When the draw started.
    pub started: Instant,
}

/// Items of one shard, some of those in its reply.
pub struct DrawnItems {
    pub shard: usize,
    reply: Arc<PackedBatch>,
    range: Range<usize>,
}

impl DrawnItems {
    /// All items of a reply.
    pub fn all(ShardBatch { shard, batch }: ShardBatch) -> Self {
        Self { shard, range: 0..batch.len(), reply: Arc::new(batch) }
    }

    fn items(&self) -> impl Iterator<Item = BatchItem<'_>> {
        self.reply.items().skip(self.range.start).take(self.range.len())
    }
}

/// Splits off the items drawn at `points`, which are the first of their shards: replies have items in the order of the points.
pub fn split_off(drawn: &mut [DrawnItems], points: &[SamplePoint]) -> Vec<DrawnItems> {
    let split = |items: &mut DrawnItems| {
        let end = items.range.start + points.iter().filter(|point| point.shard == items.shard).count();
        assert!(end <= items.range.end, "an item for each point");
        let range = std::mem::replace(&mut items.range.start, end)..end;
        DrawnItems { shard: items.shard, reply: items.reply.clone(), range }
    };
    drawn.iter_mut().map(split).collect()
}

/// Number of items.
pub fn length(items: &[DrawnItems]) -> usize {
    items.iter().map(|items| items.range.len()).sum()
}

impl Unpacker {
    /// Runs as many jobs at a time as there are assemblers. With `target` they also compute its values.
    pub fn new(
        assemblers: Vec<BatchAssembler>,
        target: Option<SharedTarget>,
        priorities: Priorities,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (returned, idle) = mpsc::channel(assemblers.len().max(1));
        for assembler in assemblers {
            returned.try_send(assembler).expect("there is a place for each");
        }
        let shared = Arc::new(Shared { target, priorities, metrics, abandoned: AtomicU64::new(0) });
        Self { assemblers: idle, returned, shared }
    }

    /// Starts a job; waits while all assemblers are in use. Its result is `None` if an item can't be decoded: that item is removed
    /// from its shard and the batch is abandoned.
    pub async fn start(&mut self, drawn: Drawn) -> JoinHandle<Option<Sampled>> {
        let mut assembler = self.assemblers.recv().await.expect("this end has a sender too");
        let (shared, returned) = (self.shared.clone(), self.returned.clone());
        tokio::task::spawn_blocking(move || {
            let sampled = shared.unpack(&mut assembler, &drawn);
            // There is a place for each assembler, and after the end of the run none is needed.
            let _ = returned.try_send(assembler);
            sampled
        })
    }

    /// Transitions of batches that were abandoned since the last call: they were drawn and not trained on.
    pub fn take_abandoned(&self) -> u64 {
        self.shared.abandoned.swap(0, Ordering::Relaxed)
    }
}

impl Shared {
    fn unpack(&self, assembler: &mut BatchAssembler, drawn: &Drawn) -> Option<Sampled> {
        let started = Instant::now();
        let undecodable = decode(assembler, &drawn.items);
        self.metrics.add_stage_time("decode", started);
        if !undecodable.is_empty() {
            assembler.clear();
            self.metrics.undecodable.inc_by(undecodable.len() as u64);
            self.priorities.remove(undecodable);
            self.abandoned.fetch_add(length(&drawn.items) as u64, Ordering::Relaxed);
            return None;
        }
        let started = Instant::now();
        let mut sampled = assembler.finish(drawn.number, |shard| drawn.shares[shard]);
        self.metrics.add_stage_time("assemble", started);
        if let Some(target) = &self.target {
            let started = Instant::now();
            target.value_ahead(&mut sampled.batch);
            self.metrics.add_stage_time("target", started);
        }
        self.metrics.prepare_seconds.observe(drawn.started.elapsed().as_secs_f64());
        Some(sampled)
    }
}

/// Adds the drawn items to the batch, and returns those that can't be decoded.
fn decode(assembler: &mut BatchAssembler, drawn: &[DrawnItems]) -> Vec<ItemId> {
    let mut undecodable = Vec::new();
    for items in drawn {
        let shard = items.shard;
        for item in items.items() {
            let added = assembler.add(
                shard,
                item.draw(),
                item.lead(),
                item.frames(),
                item.steps(),
                item.reliability(),
            );
            if let Err(error) = added {
                let LaneKey { actor, incarnation, lane } = item.lane();
                warn!(shard, actor, incarnation, lane, %error, "undecodable item removed from its shard");
                undecodable.push((shard, item.key()));
            }
        }
    }
    undecodable
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::BatchBuilder;
    use replay::testing::{LaneBuilder, one_step, options, taken};
    use replay::{ItemKey, Store};

    /// A shard's reply to points at the middle of these items.
    fn reply(shard: usize, items: &[u32]) -> DrawnItems {
        let mut store = Store::new(options(), shard as u32 + 1).unwrap();
        let mut lane = LaneBuilder::new(LaneKey { actor: 0, incarnation: 1, lane: 0 });
        (0..11).for_each(|number| lane.push(&[number], Some(taken(number.into()))));
        let chunk = lane.chunk(lane.completed().map(|first| one_step(first, 1.0)));
        assert_eq!(store.insert(&chunk).unwrap().items, 10);
        let points: Vec<f64> = items.iter().map(|&item| (f64::from(item) + 0.5) / 10.0).collect();
        let mut builder = BatchBuilder::new(points.len());
        let pushed = store.sample_while(0, &points, |draw, item| {
            builder.push(&draw, &item, true);
            true
        });
        assert_eq!(pushed, Ok(true));
        let batch = PackedBatch::new(builder.finish(), 4, u16::MAX).unwrap();
        DrawnItems::all(ShardBatch { shard, batch })
    }

    fn keys(items: &[DrawnItems]) -> Vec<(usize, ItemKey)> {
        let of_shard =
            |items: &DrawnItems| -> Vec<_> { items.items().map(|item| (items.shard, item.key())).collect() };
        items.iter().flat_map(of_shard).collect()
    }

    #[test]
    fn batches_drawn_together_have_the_items_of_batches_drawn_alone() {
        // Three batches of three points on two shards. A point's item is its place in the list.
        let shards = [[0, 1, 0], [1, 1, 1], [0, 0, 1]];
        let of = |shard, batches: &[usize]| -> Vec<u32> {
            let places = batches.iter().flat_map(|&batch| (0..3).map(move |place| (batch, place)));
            let own = places.filter(|&(batch, place)| shards[batch][place] == shard);
            own.map(|(batch, place)| (3 * batch + place) as u32).collect()
        };
        let mut together: Vec<_> = [0, 1].map(|shard| reply(shard, &of(shard, &[0, 1, 2]))).into();
        for (batch, shards) in shards.iter().enumerate() {
            let points = shards.map(|shard| SamplePoint { shard, within: 0.0 });
            let split = split_off(&mut together, &points);
            let alone: Vec<_> = [0, 1].map(|shard| reply(shard, &of(shard, &[batch]))).into();
            assert_eq!((length(&split), keys(&split)), (3, keys(&alone)));
        }
        assert_eq!(length(&together), 0, "each item is in one batch");
    }
}
