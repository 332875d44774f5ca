//! A whole update as a run makes it: draw, unpack, assemble, learn, and write the new priorities back.

use anyhow::{Context, Result};
use coordinator::store_options;
use learner::replay::Replay;
use learner::{Learner, LocalReplay};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::Store;
use settings::Settings;

use crate::measure::cpu_seconds;
use crate::recording::Recording;
use crate::writer::Writer;

pub struct WholeUpdate {
    replay: LocalReplay,
    /// CPU time spent in the learner's update.
    learning_seconds: f64,
    /// CPU time spent in all.
    seconds: f64,
}

impl WholeUpdate {
    /// Fills a store with the recording's frames, repeated until the settings' capacity is reached.
    pub fn new(settings: &Settings, recording: &Recording, learner: &Learner) -> Result<Self> {
        let spec = &recording.spec;
        let mut store = Store::new(store_options(settings, spec), 0)?;
        let actions = u16::try_from(spec.actions.len())?;
        Writer::new(0, recording.frames.clone(), settings.frame_codec, actions).fill(&mut store);
        let replay = LocalReplay::new(settings, spec, learner, store, ChaCha8Rng::seed_from_u64(6))?;
        Ok(Self { replay, learning_seconds: 0.0, seconds: 0.0 })
    }

    /// One update of `learner`.
    pub fn update(&mut self, learner: &mut Learner) -> Result<()> {
        let start = cpu_seconds();
        let sampled = self.replay.sample()?.context("the ratio allows no more updates: fill more items")?;
        let assembled = cpu_seconds();
        let update = learner.update(&sampled.batch, 0.0)?;
        let learned = cpu_seconds();
        self.replay.update_priorities(sampled.items.into_iter().zip(update.priorities).collect());
        self.learning_seconds += learned - assembled;
        self.seconds += cpu_seconds() - start;
        Ok(())
    }

    /// The share of all updates so far that was not spent in [`Learner::update`], in percent.
    pub fn percent_outside(&self) -> f64 {
        100.0 * (1.0 - self.learning_seconds / self.seconds)
    }
}
