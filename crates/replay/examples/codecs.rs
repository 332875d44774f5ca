//! What each codec makes of real frames: `cargo run --release --example codecs -- DIR [NAME...]`.
//!
//! `DIR` holds one `<game>.raw` per game, 84×84 gray frames of one lane one after the other. Names
//! choose among the codecs, by how they begin.
//!
//! An item is five frames in a row, anywhere in the lane: a stack of four and its successor. It is
//! unpacked from the last key frame at or before its first frame, and its wire bytes are those of
//! all the frames from there to its last.
#![allow(clippy::disallowed_methods, reason = "the example measures time")]

use std::{fs, hint::black_box, path::Path, time::Instant};

use lz4_flex::block::{self, CompressTable};
use replay::codec::{Codec, Decoder, Encoder};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, DParameter, FrameFormat};

const FRAME_BYTES: usize = 84 * 84;
const ITEM_FRAMES: usize = 5;
const ITEMS: usize = 1000;
/// The machine may be shared: the fastest of many short runs is the least disturbed.
const RUNS: usize = 25;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("usage: codecs DIR [NAME...]");
    let wanted: Vec<String> = arguments.collect();
    let lanes = read_lanes(Path::new(&dir));
    println!("| codec | game | bytes/frame | pack µs | unpack µs | item µs | item wire bytes | frames/key |");
    println!("|---|---|--:|--:|--:|--:|--:|--:|");
    for (name, make) in candidates() {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.starts_with(wanted)) {
            continue;
        }
        let mut total = [0.0; 6];
        for (at, (game, bytes)) in lanes.iter().enumerate() {
            let frames: Vec<&[u8]> = bytes.chunks_exact(FRAME_BYTES).collect();
            let row = measure(&mut *make(&lanes, at), &frames);
            print_row(&name, game, row);
            total.iter_mut().zip(row).for_each(|(total, value)| *total += value / lanes.len() as f64);
        }
        print_row(&name, "**average**", total);
    }
}

/// Games in the order of their names, each with its frames.
fn read_lanes(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "raw"));
    files.sort();
    let read =
        |path: &Path| (path.file_stem().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap());
    files.iter().map(|path| read(path)).collect()
}

fn print_row(name: &str, game: &str, [bytes, pack, unpack, item, wire, distance]: [f64; 6]) {
    println!(
        "| {name} | {game} | {bytes:.0} | {pack:.2} | {unpack:.2} | {item:.2} | {wire:.0} | {distance:.1} |"
    );
}

/// A codec of ours, or one that was tried.
trait Candidate {
    /// Appends one frame of a lane, and says whether it is a key frame.
    fn pack(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool;
    fn unpack_key(&mut self, packed: &[u8], out: &mut [u8]);
    fn apply_delta(&mut self, _packed: &[u8], _frame: &mut [u8]) {
        unreachable!("every frame is a key frame");
    }
    /// Unpacks `frames`, of which only those after `lead` are wanted.
    fn unpack_item(&mut self, frames: &[(&[u8], bool)], lead: usize, out: &mut [u8]) {
        let mut at = 0;
        for (index, &(packed, key)) in frames.iter().enumerate() {
            let from = at;
            at += if index > lead { FRAME_BYTES } else { 0 };
            if key {
                self.unpack_key(packed, &mut out[at..][..FRAME_BYTES]);
            } else {
                out.copy_within(from..from + if at > from { FRAME_BYTES } else { 0 }, at);
                self.apply_delta(packed, &mut out[at..][..FRAME_BYTES]);
            }
        }
    }
}

fn measure(codec: &mut dyn Candidate, frames: &[&[u8]]) -> [f64; 6] {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let mut lane = Vec::new();
    let mut once = |codec: &mut dyn Candidate| {
        bytes.clear();
        ends.clear();
        for frame in frames {
            let key = codec.pack(frame, &mut bytes);
            ends.push((bytes.len(), key));
        }
    };
    once(codec);
    // Every run but the first continues where the one before ended, so its first frame may be a delta.
    let pack_us = best(frames.len(), || once(codec));
    let mut fresh = 0;
    if !ends[0].1 {
        fresh = ends.iter().position(|end| end.1).unwrap();
    }
    let starts = std::iter::once(0).chain(ends.iter().map(|end| end.0));
    lane.extend(starts.zip(&ends).skip(fresh).map(|(start, &(end, key))| (&bytes[start..end], key)));
    let frames = &frames[fresh..];

    let mut out = vec![0; ITEM_FRAMES * FRAME_BYTES];
    let mut unpack = |codec: &mut dyn Candidate, check: bool| {
        let out = &mut out[..FRAME_BYTES];
        for (&(packed, key), frame) in lane.iter().zip(frames) {
            if key {
                codec.unpack_key(packed, out);
            } else {
                codec.apply_delta(packed, out);
            }
            assert!(!check || out == *frame);
            black_box(&mut *out);
        }
    };
    unpack(codec, true);
    let unpack_us = best(frames.len(), || unpack(codec, false));

    let mut random = 1_u64;
    let mut window = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let start = (random >> 33) as usize % (lane.len() - ITEM_FRAMES + 1);
        ((0..=start).rfind(|&at| lane[at].1).unwrap(), start)
    };
    let windows: Vec<(usize, usize)> = (0..ITEMS).map(|_| window()).collect();
    let mut items = |codec: &mut dyn Candidate, check: bool| {
        for &(key, start) in &windows {
            codec.unpack_item(&lane[key..start + ITEM_FRAMES], start - key, &mut out);
            assert!(!check || out == frames[start..start + ITEM_FRAMES].concat());
            black_box(&mut out);
        }
    };
    items(codec, true);
    let item_us = best(ITEMS, || items(codec, false));
    let size = |range: &[(&[u8], bool)]| range.iter().map(|frame| frame.0.len()).sum::<usize>() as f64;
    let wire: f64 = windows.iter().map(|&(key, start)| size(&lane[key..start + ITEM_FRAMES])).sum();
    let keys = lane.iter().filter(|frame| frame.1).count() as f64;
    let count = lane.len() as f64;
    [size(&lane) / count, pack_us, unpack_us, item_us, wire / ITEMS as f64, count / keys]
}

/// Microseconds for each of `count`.
fn best(count: usize, mut run: impl FnMut()) -> f64 {
    let mut time = || {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e6 / count as f64
    };
    (0..RUNS).map(|_| time()).fold(f64::MAX, f64::min)
}

type Lanes = [(String, Vec<u8>)];
type Make = Box<dyn Fn(&Lanes, usize) -> Box<dyn Candidate>>;

fn candidates() -> Vec<(String, Make)> {
    let mut all: Vec<(String, Make)> = Vec::new();
    for codec in Codec::ALL {
        all.push((codec.to_string(), Box::new(move |_, _| Box::new(Ours::new(codec)))));
    }
    all.push(("lz4".to_owned(), Box::new(|_, _| Box::new(Lz4(CompressTable::default())))));
    for (name, own) in [("zstd-dictionary-others", false), ("zstd-dictionary-all", true)] {
        all.push((
            name.to_owned(),
            Box::new(move |lanes, game| Box::new(Zstd::new(&dictionary(lanes, game, own)))),
        ));
    }
    all.push(("delta+lz4".to_owned(), Box::new(|_, _| Box::new(ThenLz4::new()))));
    for distance in [4, 8, 16, 32] {
        let lz4: Make = Box::new(move |_, _| Box::new(Xor::new(Lz4(CompressTable::default()), distance)));
        let zstd: Make = Box::new(move |_, _| Box::new(Xor::new(Ours::new(Codec::Zstd), distance)));
        all.push((format!("xor+lz4/{distance}"), lz4));
        all.push((format!("xor+zstd/{distance}"), zstd));
    }
    all
}

/// What the crate offers.
struct Ours(Encoder, Decoder);

impl Ours {
    fn new(codec: Codec) -> Self {
        Self(Encoder::new(codec, FRAME_BYTES), Decoder::new(codec))
    }
}

impl Candidate for Ours {
    fn pack(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        self.0.encode_into(frame, out)
    }
    fn unpack_key(&mut self, packed: &[u8], out: &mut [u8]) {
        self.1.decode_key(packed, out).unwrap();
    }
    fn apply_delta(&mut self, packed: &[u8], frame: &mut [u8]) {
        self.1.apply_delta(packed, frame).unwrap();
    }
    fn unpack_item(&mut self, frames: &[(&[u8], bool)], lead: usize, out: &mut [u8]) {
        self.1.decode_window(frames.iter().copied(), lead, FRAME_BYTES, out).unwrap();
    }
}

/// zstd with a dictionary, every frame alone.
struct Zstd(Compressor<'static>, Decompressor<'static>, Vec<u8>);

/// Trained on every 60th frame of the other games, or of all.
fn dictionary(lanes: &Lanes, game: usize, own: bool) -> Vec<u8> {
    let others = lanes.iter().enumerate().filter(|(at, _)| own || *at != game);
    let samples: Vec<&[u8]> =
        others.flat_map(|(_, (_, bytes))| bytes.chunks_exact(FRAME_BYTES).step_by(60)).collect();
    zstd::dict::from_samples(&samples, 64 << 10).unwrap()
}

impl Zstd {
    fn new(dictionary: &[u8]) -> Self {
        let mut compressor = Compressor::with_dictionary(1, dictionary).unwrap();
        for parameter in [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            compressor.set_parameter(parameter).unwrap();
        }
        let mut decompressor = Decompressor::with_dictionary(dictionary).unwrap();
        decompressor.set_parameter(DParameter::Format(FrameFormat::Magicless)).unwrap();
        Self(compressor, decompressor, Vec::with_capacity(2 * FRAME_BYTES))
    }
}

impl Candidate for Zstd {
    fn pack(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        self.2.clear();
        self.0.compress_to_buffer(frame, &mut self.2).unwrap();
        out.extend_from_slice(&self.2);
        true
    }
    fn unpack_key(&mut self, packed: &[u8], out: &mut [u8]) {
        assert_eq!(self.1.decompress_to_buffer(packed, out).unwrap(), out.len());
    }
}

/// LZ4, every frame alone.
struct Lz4(CompressTable);

impl Candidate for Lz4 {
    fn pack(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        compress(frame, &mut self.0, out);
        true
    }
    fn unpack_key(&mut self, packed: &[u8], out: &mut [u8]) {
        assert_eq!(block::decompress_into(packed, out).unwrap(), out.len());
    }
}

fn compress(bytes: &[u8], table: &mut CompressTable, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + block::get_maximum_output_size(bytes.len()), 0);
    let size = block::compress_into_with_table(bytes, &mut out[start..], table).unwrap();
    out.truncate(start + size);
}

/// The difference to the frame before, packed by a codec that packs frames alone.
struct Xor<C> {
    codec: C,
    distance: usize,
    since_key: usize,
    previous: Vec<u8>,
    difference: Vec<u8>,
}

impl<C> Xor<C> {
    fn new(codec: C, distance: usize) -> Self {
        Self {
            codec,
            distance,
            since_key: 0,
            previous: vec![0; FRAME_BYTES],
            difference: vec![0; FRAME_BYTES],
        }
    }
}

impl<C: Candidate> Candidate for Xor<C> {
    fn pack(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        let key = self.since_key == 0;
        self.since_key = (self.since_key + 1) % self.distance;
        self.difference.copy_from_slice(frame);
        if !key {
            xor(&mut self.difference, &self.previous);
        }
        self.codec.pack(&self.difference, out);
        self.previous.copy_from_slice(frame);
        key
    }
    fn unpack_key(&mut self, packed: &[u8], out: &mut [u8]) {
        self.codec.unpack_key(packed, out);
    }
    fn apply_delta(&mut self, packed: &[u8], frame: &mut [u8]) {
        self.codec.unpack_key(packed, &mut self.difference);
        xor(frame, &self.difference);
    }
}

fn xor(frame: &mut [u8], other: &[u8]) {
    frame.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

/// Our deltas and key frames, packed once more, behind their size.
struct ThenLz4(Ours, CompressTable, Vec<u8>);

impl ThenLz4 {
    fn new() -> Self {
        Self(Ours::new(Codec::Delta), CompressTable::default(), Vec::new())
    }

    fn unpack(&mut self, packed: &[u8]) {
        let (size, packed) = packed.split_first_chunk().unwrap();
        self.2.resize(usize::from(u16::from_le_bytes(*size)), 0);
        block::decompress_into(packed, &mut self.2).unwrap();
    }
}

impl Candidate for ThenLz4 {
    fn pack(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        self.2.clear();
        let key = self.0.pack(frame, &mut self.2);
        out.extend_from_slice(&(self.2.len() as u16).to_le_bytes());
        compress(&self.2, &mut self.1, out);
        key
    }
    fn unpack_key(&mut self, packed: &[u8], out: &mut [u8]) {
        self.unpack(packed);
        self.0.unpack_key(&self.2, out);
    }
    fn apply_delta(&mut self, packed: &[u8], frame: &mut [u8]) {
        self.unpack(packed);
        self.0.apply_delta(&self.2, frame);
    }
}
