//! A whole update as a run makes it: draw, unpack, assemble, learn, and write the new priorities back.

use anyhow::{Context, Result};
use learner::importance::{self, Importance};
use learner::{Assembler, Learner, setup};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::Store;
use settings::Settings;

use crate::measure::cpu_seconds;
use crate::recording::Recording;
use crate::writer::Writer;

/// A filled store and all that stands between it and the learner.
pub struct WholeUpdate {
    settings: Settings,
    store: Store,
    assembler: Assembler,
    importance: Importance,
    rng: ChaCha8Rng,
    /// CPU time spent in the learner's update.
    learning_seconds: f64,
    /// CPU time spent in all.
    seconds: f64,
}

impl WholeUpdate {
    /// Fills a store with the recording's frames, repeated until the settings' capacity is reached.
    pub fn new(settings: &Settings, recording: &Recording) -> Result<Self> {
        let spec = &recording.spec;
        let mut store = Store::new(setup::store(settings, spec), 0)?;
        let actions = u16::try_from(spec.actions.len())?;
        Writer::new(0, recording.frames.clone(), settings.frame_codec, actions).fill(&mut store);
        Ok(Self {
            store,
            assembler: Assembler::new(settings, spec.observation.bytes()),
            importance: Importance::new(settings),
            rng: ChaCha8Rng::seed_from_u64(6),
            settings: settings.clone(),
            learning_seconds: 0.0,
            seconds: 0.0,
        })
    }

    /// One update of `learner`.
    pub fn update(&mut self, learner: &mut Learner) -> Result<()> {
        let start = cpu_seconds();
        let settings = &self.settings;
        let draws = self.store.sample(0, settings.batch_size, settings.stratified, &mut self.rng)?;
        for draw in &draws {
            let item = self.store.item(0, draw.key).context("a drawn item is in the store")?;
            self.assembler.add(item.lead(), item.frames(), item.steps())?;
        }
        let weights = self.importance.exponent(learner.updates()).map(|exponent| {
            let probabilities: Vec<f64> = draws.iter().map(|draw| draw.probability).collect();
            importance::weights(&probabilities, exponent)
        });
        let online = learner.online();
        let batch = self.assembler.finish(&online.architecture().input, online.device(), weights.as_deref());
        let assembled = cpu_seconds();
        let update = learner.update(&batch, 0.0)?;
        let learned = cpu_seconds();
        let keys = draws.iter().map(|draw| draw.key);
        let updates: Vec<_> = keys.zip(update.priorities).collect();
        self.store.update_priorities(0, &updates);
        self.learning_seconds += learned - assembled;
        self.seconds += cpu_seconds() - start;
        Ok(())
    }

    /// The share of all updates so far that was not spent in [`Learner::update`], in percent.
    pub fn percent_outside(&self) -> f64 {
        100.0 * (1.0 - self.learning_seconds / self.seconds)
    }
}
