//! Mutations for an ordinary test: no coverage, but the same ones every time.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Target;

/// Runs a target on its seeds, every one of which must be worth something, and on mutations of them.
pub fn short(target: &Target) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let seeds = (target.seeds)();
    seeds.iter().for_each(|seed| (target.run)(seed));
    for _ in 0..target.mutations {
        let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
        for _ in 0..rng.random_range(1..=4) {
            mutate(&mut bytes, &seeds, &mut rng);
        }
        (target.run)(&bytes);
    }
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut impl Rng) {
    const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xffff, u32::MAX as u64, 1 << 62, u64::MAX];
    let at = rng.random_range(0..=bytes.len());
    let count = rng.random_range(0..=(bytes.len() - at).min(32));
    match rng.random_range(0..6) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
        1 if at < bytes.len() => bytes[at] = rng.random(),
        2 => {
            let edge = EDGES[rng.random_range(0..EDGES.len())].to_le_bytes();
            let width = (1 << rng.random_range(0..4)).min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&edge[..width]);
        }
        3 => drop(bytes.drain(at..at + count)),
        4 => {
            let copy = bytes[at..at + count].to_vec();
            let to = rng.random_range(0..=bytes.len());
            bytes.splice(to..to, copy);
        }
        _ => {
            let other = &seeds[rng.random_range(0..seeds.len())];
            let from = rng.random_range(0..=other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}
