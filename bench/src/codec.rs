//! What packing a real frame costs, and what it saves.

use std::hint::black_box;

use anyhow::Result;
use replay::codec::{Codec, Decoder, Encoder};

use crate::measure::{Side, interleaved};
use crate::recording::record;
use crate::section::{Row, Section};

/// One whose frames pack well, and one whose frames do not.
const GAMES: [&str; 2] = ["pong", "qbert"];

/// Frames per game; packed and unpacked over and over.
const FRAMES: usize = 1_000;

/// Measures all games and codecs.
pub fn section(seconds: f64) -> Result<Section> {
    let mut rows = Vec::new();
    for game in GAMES {
        let frames = record(game, FRAMES)?.frames;
        rows.extend(codecs(game, &frames, seconds));
    }
    Ok(Section {
        topic: "codec",
        title: "bytes per frame, and µs per frame to pack and to unpack; frames of random play".to_owned(),
        columns: &["bytes", "pack µs", "pack median", "unpack µs", "unpack median"],
        rows,
    })
}

/// All codecs on one game's frames, taking turns.
fn codecs(game: &str, frames: &[Vec<u8>], seconds: f64) -> Vec<Row> {
    let pack_all = |codec| {
        let mut encoder = Encoder::new(codec, frames[0].len());
        let pack = |frame: &Vec<u8>| {
            let mut packed = Vec::new();
            let key = encoder.encode_into(frame, &mut packed);
            (packed, key)
        };
        frames.iter().map(pack).collect::<Vec<_>>()
    };
    let packed = Codec::ALL.map(pack_all);
    let mut sides: Vec<Side<'_, ()>> = Vec::new();
    for (codec, packed) in Codec::ALL.into_iter().zip(&packed) {
        let (mut encoder, mut decoder) = (Encoder::new(codec, frames[0].len()), Decoder::new(codec));
        let (mut next_frame, mut next_packed) = (frames.iter().cycle(), packed.iter().cycle());
        let (mut out, mut buffer) = (vec![0; frames[0].len()], Vec::new());
        sides.push(Box::new(move |()| {
            buffer.clear();
            black_box(next_frame.next().map(|frame| encoder.encode_into(frame, &mut buffer)));
        }));
        sides.push(Box::new(move |()| {
            let unpacked = next_packed.next().map(|(packed, key)| match key {
                true => decoder.decode_key(packed, &mut out),
                false => decoder.apply_delta(packed, &mut out),
            });
            black_box(&out);
            unpacked.expect("there are frames").expect("what was packed can be unpacked");
        }));
    }
    let rates = interleaved(seconds, &mut (), &mut sides);
    let of_codec = Codec::ALL.into_iter().zip(&packed).zip(rates.chunks_exact(2));
    of_codec
        .map(|((codec, packed), rates)| {
            let bytes: usize = packed.iter().map(|(packed, _)| packed.len()).sum();
            let mean_bytes = bytes as f64 / packed.len() as f64;
            let us = |rate: f64| 1e6 / rate;
            let [pack, unpack] = [rates[0], rates[1]].map(|rates| [us(rates.best()), us(rates.median())]);
            let cells = [mean_bytes, pack[0], pack[1], unpack[0], unpack[1]];
            Row { name: format!("{game}, {codec}"), cells: cells.map(Some).into() }
        })
        .collect()
}
