//! Where batches come from and priorities go.
//!
//! [`Replay`] is the one interface: [`crate::local`] implements it over a store in this process, [`crate::remote`] over
//! the pool of remote shards. Both turn sampled items into a batch through the same [`Collector`].

use agents::Batch;
use anyhow::Result;
use envs::Spec;
use replay::codec::DecodeError;
use replay::{Draw, ItemKey, ReplayStatus, Taken};
use settings::Settings;
use settings::networks::Input;
use tch::Device;
use value::priority::Priority;

use crate::batch::Assembler;
use crate::importance::{self, Importance};
use crate::learner::Learner;

/// Names an item of a run: its shard's number, and its key there.
pub type ItemId = (usize, ItemKey);

/// Experience to learn from.
pub trait Replay {
    /// The next batch, or `None` if the ratio of samples to inserts, or the wait for a batch, allows none yet.
    fn sample(&mut self) -> Result<Option<Sampled>>;

    /// Gives items new priorities.
    fn update_priorities(&mut self, updates: Vec<(ItemId, Priority)>);

    /// What the replay holds, and what sampling is blocked on.
    fn status(&self) -> ReplayStatus;
}

/// A batch, ready to learn from.
#[derive(Debug)]
pub struct Sampled {
    /// Its tensors.
    pub batch: Batch,
    /// Its items, in the batch's order.
    pub items: Vec<ItemId>,
    /// Mean importance weight.
    pub importance_weight: f64,
    /// Mean number of items inserted into the same shard after an item of the batch.
    pub age_inserts: f64,
    /// Batches made before this one, in the whole run.
    pub number: u64,
}

/// Collects sampled items and makes them one batch: unpacked, folded, weighted.
pub struct Collector {
    assembler: Assembler,
    importance: Importance,
    input: Input,
    device: Device,
    items: Vec<Collected>,
    batches: u64,
}

/// An item of the batch in the making.
struct Collected {
    shard: usize,
    draw: Draw,
}

impl Collector {
    /// A collector for a learner's network. Batches are numbered from the learner's updates on.
    pub fn for_learner(settings: &Settings, spec: &Spec, learner: &Learner) -> Self {
        let online = learner.online();
        Self {
            assembler: Assembler::new(settings, spec.observation.bytes()),
            importance: Importance::new(settings),
            input: online.architecture().input,
            device: online.device(),
            items: Vec::new(),
            batches: learner.updates(),
        }
    }

    /// Batches made so far, in the whole run.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Unpacks an item that a shard has drawn. After an error the batch is as before.
    pub fn add<'a>(
        &mut self,
        shard: usize,
        draw: Draw,
        lead: usize,
        frames: impl Iterator<Item = (&'a [u8], bool)> + Clone,
        steps: impl Iterator<Item = Taken> + Clone,
        reliability: Option<f64>,
    ) -> Result<(), DecodeError> {
        self.assembler.add(lead, frames, steps)?;
        reliability.into_iter().for_each(|reliability| self.assembler.rely(reliability));
        self.items.push(Collected { shard, draw });
        Ok(())
    }

    /// Items collected so far.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The shards of the items collected so far.
    pub fn shards(&self) -> impl Iterator<Item = usize> {
        self.items.iter().map(|item| item.shard)
    }

    /// Drops what was collected.
    pub fn clear(&mut self) {
        self.assembler.clear();
        self.items.clear();
    }

    /// Makes the batch. `share` is the probability that one draw falls to a shard.
    pub fn finish(&mut self, share: impl Fn(usize) -> f64) -> Sampled {
        let items = std::mem::take(&mut self.items);
        let weights = self.importance.exponent(self.batches).map(|exponent| {
            let probability = |item: &Collected| share(item.shard) * item.draw.probability;
            importance::weights(&items.iter().map(probability).collect::<Vec<_>>(), exponent)
        });
        let mean = |weights: &Vec<f64>| weights.iter().sum::<f64>() / weights.len() as f64;
        let number = self.batches;
        self.batches += 1;
        Sampled {
            importance_weight: weights.as_ref().map_or(1.0, mean),
            age_inserts: items.iter().map(|item| item.draw.age_inserts as f64).sum::<f64>()
                / items.len() as f64,
            batch: self.assembler.finish(&self.input, self.device, weights.as_deref()),
            items: items.iter().map(|item| (item.shard, item.draw.key)).collect(),
            number,
        }
    }
}
