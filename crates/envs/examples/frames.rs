//! Writes the frames of random play, as an agent sees them, for measuring codecs and memory:
//! `cargo run --release -p quiver-envs --example frames -- qbert 20000 > qbert.raw`.

use std::io::Write;

use envs::{ActionSet, EnvOptions, FrameMaximum};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [game, count] = arguments.as_slice() else { return Err("usage: frames GAME COUNT > FILE".into()) };
    let action_set = ActionSet::Minimal;
    let options = EnvOptions {
        frame_skip: 4,
        frame_maximum: FrameMaximum::Rgb,
        sticky_actions: 0.25,
        noop_max: 30,
        action_set,
        time_limit_frames: 108_000,
        difficulty_ramping: true,
        roms: None,
    };
    let mut environment = envs::make(game, &options, 1)?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut out = std::io::stdout().lock();
    for _ in 0..count.parse::<u64>()? {
        out.write_all(environment.observation())?;
        let action = rng.random_range(0..environment.spec().actions.len());
        if environment.step(action).done() {
            environment.reset();
        }
    }
    Ok(())
}
