//! The one training step: sample a batch, learn from it, send its new priorities back.

use agents::Batch;
use anyhow::Result;
use run::averages::Figures;

use crate::learner::Learner;
use crate::replay::Replay;

/// A learner on a replay, in this process or behind the network.
#[derive(Debug)]
pub struct Trainer<R> {
    /// Networks and optimiser.
    pub learner: Learner,
    /// Where batches come from and priorities go.
    pub replay: R,
}

/// Observes updates as they are made. An observer changes nothing, so a run is the same with or without one.
pub trait Watch {
    /// Just before a gradient step: the networks it starts from and the batch it learns from.
    fn before(&mut self, _learner: &Learner, _batch: &Batch) {}

    /// Just after the same step.
    fn after(&mut self, _learner: &Learner, _batch: &Batch) {}
}

/// No observer.
impl Watch for () {}

impl<R: Replay> Trainer<R> {
    /// Learns from one batch, or returns `None` if none is due yet. `progress` is the share of the run that is done.
    pub fn step(&mut self, progress: f64, watch: &mut dyn Watch) -> Result<Option<Figures>> {
        let Some(sampled) = self.replay.sample()? else { return Ok(None) };
        watch.before(&self.learner, &sampled.batch);
        let update = self.learner.update(&sampled.batch, progress)?;
        watch.after(&self.learner, &sampled.batch);
        self.replay.update_priorities(sampled.items.into_iter().zip(update.priorities).collect());
        Ok(Some(Figures { importance_weight: sampled.importance_weight, ..update.figures }))
    }
}
