//! What a million transitions of real frames weigh:
//! `cargo run --release -p quiver-replay --example memory -- DIR/qbert.raw [CODEC] [LANES]`.
//!
//! The file holds 84×84 gray frames one after the other. They are played over and over, in episodes
//! of 500 steps, until the table holds a million one-step items and the first is replaced.
//! Linux only: resident memory is read from /proc.
#![allow(clippy::disallowed_methods, reason = "the example measures time")]

use std::{fs, time::Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::codec::Codec;
use replay::testing::{self, LaneBuilder, NOOP};
use replay::{
    Chunk, InitialPriority, LaneKey, NewItem, Store, StoreOptions, TableOptions, Taken, WeightsVersion,
};
use value::priority::Priority;

const FRAME_BYTES: usize = 84 * 84;
const CAPACITY: usize = 1_000_000;
const EPISODE: u64 = 500;
const CHUNK_STEPS: u64 = 50;
/// Lanes of each actor.
const LANES_EACH: u32 = 8;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: memory FILE [CODEC] [LANES]");
    let codec: Codec = arguments.next().map_or(Codec::default(), |name| name.parse().unwrap());
    let lanes: u32 = arguments.next().map_or(8, |lanes| lanes.parse().unwrap());
    let bytes = fs::read(&path).unwrap();
    let frames: Vec<&[u8]> = bytes.chunks_exact(FRAME_BYTES).collect();
    let key = |lane| LaneKey { actor: lane / LANES_EACH, incarnation: 1, lane: lane % LANES_EACH };
    let mut writers: Vec<_> =
        (0..lanes).map(|lane| LaneBuilder::packed(key(lane), codec, FRAME_BYTES)).collect();

    let before = resident("VmRSS");
    let table = TableOptions {
        capacity: CAPACITY,
        priority_exponent: 0.6,
        priority_constant: 0.001,
        ..testing::table("main")
    };
    let options = StoreOptions {
        bytes_max: 8 << 30,
        stack: 4,
        frame_bytes: FRAME_BYTES,
        max_length: 1,
        tables: vec![table],
    };
    let mut store = Store::new(options, 1).unwrap();
    let (mut inserting, mut frame_bytes, mut steps) = (0.0, 0, 0);
    while store.tables()[0].counters().evicted == 0 {
        for lane in &mut writers {
            let chunk = chunk(lane, &frames);
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

/// The next steps of a lane and the one-step items that they complete.
fn chunk(lane: &mut LaneBuilder, played: &[&[u8]]) -> Chunk {
    let taken = |number: u64| Taken {
        terminated: number % EPISODE == EPISODE - 2,
        log_probability: -1.0,
        weights: WeightsVersion { incarnation: 1, number: 5 },
        ..NOOP
    };
    let acts = |number: &u64| number % EPISODE != EPISODE - 1;
    let LaneKey { actor, lane: index, .. } = lane.key();
    let offset = (actor * LANES_EACH + index) as usize * 97;
    for number in lane.next_step()..lane.next_step() + CHUNK_STEPS {
        let frame = played[(number as usize + offset) % played.len()];
        lane.push(frame, acts(&number).then(|| taken(number)));
    }
    let item = |first| NewItem { first, length: 1, priority: InitialPriority::Largest, table: 0 };
    lane.chunk(lane.completed().filter(acts).map(item))
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
