//! Real frames to pack and to learn from: random play, as an actor would see it.

use std::sync::Arc;

use anyhow::Result;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use settings::Settings;

/// A game's shape and consecutive observations of it.
pub struct Recording {
    /// What does not change.
    pub spec: envs::Spec,
    /// Observations, none of them packed.
    pub frames: Arc<Vec<Vec<u8>>>,
}

/// Plays `game` at random for `steps` steps, with the paper's settings and always the same seed.
pub fn record(game: &str, steps: usize) -> Result<Recording> {
    let mut environment = envs::make(game, &Settings::paper().environment(), 0)?;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let actions = environment.spec().actions.len();
    let mut frames = Vec::with_capacity(steps);
    for _ in 0..steps {
        frames.push(environment.observation().to_vec());
        if environment.step(rng.random_range(0..actions)).done() {
            environment.reset();
        }
    }
    Ok(Recording { spec: environment.spec().clone(), frames: Arc::new(frames) })
}
