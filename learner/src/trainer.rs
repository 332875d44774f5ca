//! The training step: sample a batch, update the networks on it, send its new priorities back.

use agents::TensorBatch;
use anyhow::Result;
use run::averages::UpdateMetrics;

use crate::learner::Learner;
use crate::replay::Replay;

/// A learner and the replay it trains on, in this process or remote.
#[derive(Debug)]
pub struct Trainer<R> {
    pub learner: Learner,
    /// The source of batches, which takes the new priorities.
    pub replay: R,
}

/// Observes updates. An observer can't change anything, so a run is the same with or without one.
pub trait UpdateObserver {
    /// Called just before a gradient step, with the networks before it and its batch.
    fn before(&mut self, _learner: &Learner, _batch: &TensorBatch) {}

    /// Called just after the same step.
    fn after(&mut self, _learner: &Learner, _batch: &TensorBatch) {}
}

impl UpdateObserver for () {}

impl<R: Replay> Trainer<R> {
    /// Trains on one batch, or returns `None` if none is due yet. `progress` is the share of the run that is done.
    pub fn step(
        &mut self,
        progress: f64,
        observer: &mut dyn UpdateObserver,
    ) -> Result<Option<UpdateMetrics>> {
        let Some(sampled) = self.replay.sample()? else { return Ok(None) };
        observer.before(&self.learner, &sampled.batch);
        let update = self.learner.update(&sampled.batch, progress)?;
        observer.after(&self.learner, &sampled.batch);
        self.replay.update_priorities(sampled.items.into_iter().zip(update.priorities).collect());
        Ok(Some(UpdateMetrics { importance_weight: sampled.importance_weight, ..update.metrics }))
    }
}
