//! What a million transitions of real frames weigh:
//! `cargo run --release -p quiver-replay --example memory -- DIR/qbert.raw [CODEC] [LANES]`.
//!
//! The file holds 84×84 gray frames one after the other. They are played over and over, in episodes
//! of 500 steps, until the table holds a million one-step items and the first is replaced.
//! Linux only: resident memory is read from /proc.

use std::{fs, time::Instant};

use bytes::Bytes;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::codec::{Codec, Encoder};
use replay::{
    Chunk, InitialPriority, LaneKey, NewItem, Remover, Sampler, Step, Store, StoreOptions, TableOptions,
    Taken, WeightsVersion,
};
use value::priority::Priority;

const FRAME_BYTES: usize = 84 * 84;
const CAPACITY: usize = 1_000_000;
const EPISODE: u64 = 500;
const CHUNK_STEPS: u64 = 50;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: memory FILE [CODEC] [LANES]");
    let codec: Codec = arguments.next().map_or(Codec::default(), |name| name.parse().unwrap());
    let lanes: u32 = arguments.next().map_or(8, |lanes| lanes.parse().unwrap());
    let bytes = fs::read(&path).unwrap();
    let frames: Vec<&[u8]> = bytes.chunks_exact(FRAME_BYTES).collect();
    let mut writers: Vec<_> = (0..lanes).map(|lane| (lane, Encoder::new(codec, FRAME_BYTES))).collect();

    let before = resident("VmRSS");
    let table = TableOptions {
        name: "main".into(),
        capacity: CAPACITY,
        sampler: Sampler::Proportional,
        remover: Remover::Fifo,
        max_times_sampled: 0,
        priority_exponent: 0.6,
        priority_constant: 0.001,
        first_priority: 1.0,
    };
    let options =
        StoreOptions { bytes_max: 8 << 30, stack: 4, frame_bytes: FRAME_BYTES, tables: vec![table] };
    let mut store = Store::new(options, 1).unwrap();
    let (mut inserting, mut frame_bytes, mut steps) = (0.0, 0, 0);
    for sequence in 0.. {
        if store.tables()[0].counters().evicted > 0 {
            break;
        }
        for (lane, encoder) in &mut writers {
            let chunk = chunk(sequence, *lane, &frames, encoder);
            frame_bytes += chunk.frames.len();
            steps += chunk.steps.len();
            let start = Instant::now();
            store.insert(&chunk).unwrap();
            inserting += start.elapsed().as_secs_f64();
        }
    }
    let items = store.tables()[0].len();
    let per_item = |bytes: usize| bytes as f64 / items as f64;
    let taken = resident("VmRSS") - before;
    println!("{path} {codec} {lanes} lanes: {items} items, {steps} steps in {} chunks", store.chunks());
    println!("resident {:.3} GB, at most {:.3} GB", taken as f64 / 1e9, resident("VmHWM") as f64 / 1e9);
    println!(
        "frames {:.0} B per item, all else {:.1} B",
        per_item(frame_bytes),
        per_item(taken - frame_bytes)
    );
    println!("{:.0} inserts/s", store.tables()[0].counters().inserts as f64 / inserting);
    operations(&mut store);
}

fn operations(store: &mut Store) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for batch in [32, 512] {
        let rounds = 100_000 / batch;
        let (mut sampling, mut updating) = (0.0, 0.0);
        for _ in 0..rounds {
            let start = Instant::now();
            let draws = store.sample(0, batch, true, &mut rng).unwrap();
            sampling += start.elapsed().as_secs_f64();
            let new = |i: usize| Priority::try_new((i % 97) as f64 / 10.0).unwrap();
            let updates: Vec<_> = draws.iter().enumerate().map(|(i, draw)| (draw.key, new(i))).collect();
            let start = Instant::now();
            store.update_priorities(0, &updates);
            updating += start.elapsed().as_secs_f64();
        }
        let us = |seconds: f64| seconds * 1e6 / rounds as f64;
        println!("batch {batch}: sample {:.1} us, update {:.1} us", us(sampling), us(updating));
    }
    let mut size = Counting(0);
    let start = Instant::now();
    store.save(&mut size).unwrap();
    println!("save {:.3} GB in {:.2} s", size.0 as f64 / 1e9, start.elapsed().as_secs_f64());
}

fn chunk(sequence: u64, lane: u32, played: &[&[u8]], encoder: &mut Encoder) -> Chunk {
    let first_step = sequence * CHUNK_STEPS;
    let mut frames = Vec::new();
    let taken = |number: u64| Taken {
        action: 0,
        reward: 0.0,
        terminated: number % EPISODE == EPISODE - 2,
        truncated: false,
        life_lost: false,
        log_probability: -1.0,
        weights: WeightsVersion { incarnation: 1, number: 5 },
    };
    let step = |number: u64| {
        let before = frames.len();
        let frame = played[(number as usize + lane as usize * 97) % played.len()];
        let key_frame = encoder.encode_into(frame, &mut frames);
        Step {
            frame_bytes: (frames.len() - before) as u32,
            key_frame,
            starts_episode: number.is_multiple_of(EPISODE),
            taken: (number % EPISODE != EPISODE - 1).then(|| taken(number)),
        }
    };
    let acts = |first: &u64| first % EPISODE != EPISODE - 1;
    let item = |first| NewItem { first, length: 1, priority: InitialPriority::Largest, table: 0 };
    let end = first_step + CHUNK_STEPS;
    let steps = (first_step..end).map(step).collect();
    Chunk {
        lane: LaneKey { actor: lane / 8, incarnation: 1, lane: lane % 8 },
        sequence,
        first_step,
        steps,
        frames: Bytes::from(frames),
        items: (first_step.saturating_sub(1)..end - 1).filter(acts).map(item).collect(),
    }
}

/// A figure of /proc/self/status, in bytes.
fn resident(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

struct Counting(usize);

impl std::io::Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
