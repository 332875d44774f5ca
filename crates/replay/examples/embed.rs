//! Embeds a replay in a Rust program: no server, no files, no network.
//!
//! A random walk on seven cells writes its steps to a prioritized store; a table of values learns from samples and returns
//! new priorities. Run it with `cargo run --release -p quiver-replay --example embed`.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::{
    Chunk, InitialPriority, LaneKey, NewItem, Remover, Sampler, Step, Store, StoreOptions, TableOptions,
    Taken, WeightsVersion,
};
use value::priority::Priority;

const CELLS: usize = 7;
const EPISODES: usize = 400;
const DISCOUNT: f64 = 0.9;
const BATCH: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = TableOptions {
        name: "walk".into(),
        capacity: 1_000,
        sampler: Sampler::Proportional,
        remover: Remover::Fifo,
        max_times_sampled: 0,
        priority_exponent: 0.6,
        priority_constant: 1e-3,
        first_priority: 1.0,
    };
    // An observation is one byte, the cell; a state is one observation.
    let options =
        StoreOptions { bytes_max: 1 << 20, stack: 1, frame_bytes: 1, max_length: 1, tables: vec![table] };
    let mut store = Store::new(options, 1)?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut values = [0.0; CELLS];
    let (mut sequence, mut first_step) = (0, 0);
    for _ in 0..EPISODES {
        let chunk = play(&mut rng, sequence, first_step);
        sequence += 1;
        first_step += chunk.steps.len() as u64;
        store.insert(&chunk)?;
        learn(&mut store, &mut values, &mut rng)?;
    }
    let counters = store.table_counters();
    println!("{} inserts, {} samples, {} items", counters.inserts, counters.samples, store.tables()[0].len());
    for (cell, value) in values.iter().enumerate() {
        println!("cell {cell}: {value:.3} {}", "#".repeat((40.0 * value) as usize));
    }
    // The ends are terminal, so their values stay 0.
    assert!(
        values[..CELLS - 1].windows(2).all(|pair| pair[0] <= pair[1] + 0.05),
        "values grow towards the goal: {values:?}"
    );
    Ok(())
}

/// One episode from the middle to either end; the right end gives the reward. The whole episode is one chunk.
fn play(rng: &mut ChaCha8Rng, sequence: u64, first_step: u64) -> Chunk {
    let mut chunk = Chunk {
        lane: LaneKey { actor: 0, incarnation: 1, lane: 0 },
        sequence,
        first_step,
        steps: Vec::new(),
        frames: bytes::Bytes::new(),
        items: Vec::new(),
    };
    let mut frames = Vec::new();
    let mut cell = CELLS / 2;
    let mut ended = false;
    while !ended {
        let right: bool = rng.random();
        let next = if right { cell + 1 } else { cell - 1 };
        ended = next == 0 || next == CELLS - 1;
        let taken = Taken {
            action: u16::from(right),
            reward: if next == CELLS - 1 { 1.0 } else { 0.0 },
            terminated: ended,
            truncated: false,
            life_lost: false,
            log_probability: 0.5f32.ln(),
            weights: WeightsVersion::default(),
        };
        let first = first_step + chunk.steps.len() as u64;
        chunk.items.push(NewItem { first, length: 1, priority: InitialPriority::Largest, table: 0 });
        chunk.steps.push(step(chunk.steps.is_empty(), Some(taken)));
        frames.push(cell as u8);
        cell = next;
    }
    // The last observation completes the last item.
    chunk.steps.push(step(false, None));
    frames.push(cell as u8);
    chunk.frames = frames.into();
    chunk
}

fn step(starts_episode: bool, taken: Option<Taken>) -> Step {
    Step { frame_bytes: 1, key_frame: true, starts_episode, taken }
}

/// Samples a batch, moves each value towards its target, and returns |TD error| as the new priority.
fn learn(
    store: &mut Store,
    values: &mut [f64; CELLS],
    rng: &mut ChaCha8Rng,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut updates = Vec::new();
    for draw in store.sample(0, BATCH, true, rng)? {
        let item = store.item(0, draw.key).ok_or("the sampled item is stored")?;
        let cells: Vec<usize> = item.frames().map(|(frame, _)| usize::from(frame[0])).collect();
        let taken = item.steps().next().ok_or("an item has a step")?;
        let next = if taken.terminated { 0.0 } else { values[cells[1]] };
        let error = f64::from(taken.reward) + DISCOUNT * next - values[cells[0]];
        values[cells[0]] += 0.1 * error;
        updates.push((draw.key, Priority::try_new(error.abs())?));
    }
    store.update_priorities(0, &updates);
    Ok(())
}
