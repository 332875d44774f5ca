//! The interface through which the trainer samples batches and sends priorities.
//!
//! [`crate::local`] implements [`Replay`] over a store in this process, [`crate::remote`] over the pool of remote
//! shards. Both turn sampled items into a batch with the same [`BatchAssembler`].

use agents::{StateFormat, TensorBatch};
use anyhow::Result;
use envs::Spec;
use replay::codec::DecodeError;
use replay::{Draw, ItemKey, ReplayStatus, Taken};
use settings::Settings;
use value::priority::Priority;

use crate::batch::TransitionDecoder;
use crate::importance::{self, Importance};
use crate::learner::Learner;

/// Identifies an item of a run: its shard's number, and its key in that shard.
pub type ItemId = (usize, ItemKey);

/// A source of batches.
pub trait Replay {
    /// The next batch. `None` if samples per insert allow no batch yet, or none arrived in time.
    fn sample(&mut self) -> Result<Option<Sampled>>;

    fn update_priorities(&mut self, updates: Vec<(ItemId, Priority)>);

    /// What the replay holds and what sampling is blocked on.
    fn status(&self) -> ReplayStatus;
}

/// A batch, ready to learn from.
#[derive(Debug)]
pub struct Sampled {
    pub batch: TensorBatch,
    /// The items, in the order of the batch's rows.
    pub items: Vec<ItemId>,
    pub importance_weight: f64,
    /// Mean age of the batch's items: inserts into the same shard since each item's insert.
    pub age_inserts: f64,
    /// Number of batches built before this one, over the whole run.
    pub number: u64,
}

/// Assembles sampled items into one batch: decodes frames, computes n-step returns and importance weights.
pub struct BatchAssembler {
    decoder: TransitionDecoder,
    importance: Importance,
    format: StateFormat,
    items: Vec<AssembledItem>,
}

/// An item of the batch that is being assembled.
struct AssembledItem {
    shard: usize,
    draw: Draw,
}

impl BatchAssembler {
    /// An assembler for a learner's network.
    pub fn for_learner(settings: &Settings, spec: &Spec, learner: &Learner) -> Self {
        let online = learner.online();
        Self {
            decoder: TransitionDecoder::new(settings, spec.observation.bytes()),
            importance: Importance::new(settings),
            format: online.state_format(),
            items: Vec::new(),
        }
    }

    /// Decodes an item drawn by a shard. After an error the batch is unchanged.
    pub fn add<'a>(
        &mut self,
        shard: usize,
        draw: Draw,
        lead: usize,
        frames: impl Iterator<Item = (&'a [u8], bool)> + Clone,
        steps: impl Iterator<Item = Taken> + Clone,
        reliability: Option<f64>,
    ) -> Result<(), DecodeError> {
        self.decoder.add(lead, frames, steps)?;
        reliability.into_iter().for_each(|reliability| self.decoder.set_reliability(reliability));
        self.items.push(AssembledItem { shard, draw });
        Ok(())
    }

    /// Drops the items added so far.
    pub fn clear(&mut self) {
        self.decoder.clear();
        self.items.clear();
    }

    /// Builds the batch. The run has built `number` batches before it, and `share` is the probability with which one draw falls on a
    /// shard.
    pub fn finish(&mut self, number: u64, share: impl Fn(usize) -> f64) -> Sampled {
        let items = std::mem::take(&mut self.items);
        let weights = self.importance.exponent(number).map(|exponent| {
            let probability = |item: &AssembledItem| share(item.shard) * item.draw.probability;
            importance::weights(&items.iter().map(probability).collect::<Vec<_>>(), exponent)
        });
        let mean = |weights: &Vec<f64>| weights.iter().sum::<f64>() / weights.len() as f64;
        Sampled {
            importance_weight: weights.as_ref().map_or(1.0, mean),
            age_inserts: items.iter().map(|item| item.draw.age_inserts as f64).sum::<f64>()
                / items.len() as f64,
            batch: self.decoder.finish(&self.format, weights.as_deref()),
            items: items.iter().map(|item| (item.shard, item.draw.key)).collect(),
            number,
        }
    }
}
