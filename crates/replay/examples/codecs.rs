//! What each codec makes of real frames: `cargo run --release --example codecs -- DIR`.
//!
//! `DIR` holds one `<game>.raw` per game, 84×84 gray frames one after the other.

use std::{fs, time::Instant};

use replay::codec::{Codec, Decoder, Encoder};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, DParameter, FrameFormat};

const FRAME_BYTES: usize = 84 * 84;

type Pack = Box<dyn FnMut(&[u8]) -> Vec<u8>>;
type Unpack = Box<dyn FnMut(&[u8], &mut [u8])>;

fn main() {
    let dir = std::env::args().nth(1).expect("usage: codecs DIR");
    println!("game codec bytes/frame pack-us unpack-us");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for path in files {
        let game = path.file_stem().unwrap().to_string_lossy().into_owned();
        let bytes = fs::read(&path).unwrap();
        let frames: Vec<&[u8]> = bytes.chunks_exact(FRAME_BYTES).collect();
        for (name, mut pack, mut unpack) in candidates() {
            measure(&game, &name, &frames, &mut pack, &mut unpack);
        }
    }
}

fn measure(game: &str, name: &str, frames: &[&[u8]], pack: &mut Pack, unpack: &mut Unpack) {
    let per_frame = |start: Instant| start.elapsed().as_secs_f64() * 1e6 / frames.len() as f64;
    let (mut pack_us, mut unpack_us, mut packed) = (f64::MAX, f64::MAX, Vec::new());
    let mut out = vec![0; FRAME_BYTES];
    for _ in 0..3 {
        let start = Instant::now();
        packed = frames.iter().map(|frame| pack(frame)).collect();
        pack_us = pack_us.min(per_frame(start));
        let start = Instant::now();
        packed.iter().for_each(|packed| unpack(packed, &mut out));
        unpack_us = unpack_us.min(per_frame(start));
    }
    let size = packed.iter().map(Vec::len).sum::<usize>() as f64 / frames.len() as f64;
    println!("{game} {name} {size:.0} {pack_us:.2} {unpack_us:.2}");
}

fn candidates() -> Vec<(String, Pack, Unpack)> {
    let mut all: Vec<(String, Pack, Unpack)> = Vec::new();
    for codec in Codec::ALL {
        let (mut encoder, mut decoder) = (Encoder::new(codec), Decoder::new(codec));
        let pack: Pack = Box::new(move |frame| encoder.encode(frame).into());
        let unpack: Unpack = Box::new(move |packed, out| decoder.decode_into(packed, out).unwrap());
        all.push((format!("ours-{codec}"), pack, unpack));
    }
    for level in [-5, -1, 1, 2, 3, 5] {
        let mut compressor = Compressor::new(level).unwrap();
        compressor.set_parameter(CParameter::Format(FrameFormat::Magicless)).unwrap();
        compressor.set_parameter(CParameter::ContentSizeFlag(false)).unwrap();
        let mut decompressor = Decompressor::new().unwrap();
        decompressor.set_parameter(DParameter::Format(FrameFormat::Magicless)).unwrap();
        let pack: Pack = Box::new(move |frame| compressor.compress(frame).unwrap());
        let unpack: Unpack = Box::new(move |packed, out| {
            assert_eq!(decompressor.decompress_to_buffer(packed, out).unwrap(), out.len());
        });
        all.push((format!("zstd-{level}"), pack, unpack));
    }
    all
}
