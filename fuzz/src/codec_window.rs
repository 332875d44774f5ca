//! A window of packed frames: `decode_window` compared with a loop that decodes one frame after the other.
//!
//! Input: codec (1 byte), frames that lead (1), size of a frame (1), frames wanted (1), bytes too many (1), then for
//! each frame whether it is a key frame (1) and the packed bytes (a piece).

use replay::codec::{Codec, Decoder, Encoder};

use crate::input::{Input, number_of, piece};

const FRAMES_MAX: usize = 64;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let codec = input.codec();
    let (lead, frame_bytes) = (usize::from(input.byte()), usize::from(input.byte()));
    let (wanted, extra) = (usize::from(input.byte()) % FRAMES_MAX, usize::from(input.byte()) % 4);
    let mut frames = Vec::new();
    while !input.is_empty() && frames.len() < FRAMES_MAX {
        let key = input.byte() & 1 == 1;
        frames.push((input.piece(), key));
    }
    let mut decoder = Decoder::new(codec);
    let mut out = vec![0; wanted * frame_bytes + extra];
    let decoded = decoder.decode_window(frames.iter().copied(), lead, frame_bytes, &mut out);
    let whole = frame_bytes > 0 && out.len().is_multiple_of(frame_bytes);
    let expected = if whole { one_by_one(codec, &frames, lead, frame_bytes) } else { None };
    // There is no place for leads where no frame is wanted.
    let expected =
        expected.filter(|expected| expected.len() == out.len() && (!out.is_empty() || frames.is_empty()));
    assert_eq!(decoded.is_ok().then_some(out), expected);
}

/// The frames after the lead, or nothing if any of them can't be had.
fn one_by_one(codec: Codec, frames: &[(&[u8], bool)], lead: usize, frame_bytes: usize) -> Option<Vec<u8>> {
    let mut decoder = Decoder::new(codec);
    let (mut frame, mut all) = (vec![0; frame_bytes], Vec::new());
    for (index, &(packed, key)) in frames.iter().enumerate() {
        match (key, index) {
            (true, _) => decoder.decode_key(packed, &mut frame).ok()?,
            (false, 0) => return None,
            (false, _) => decoder.apply_delta(packed, &mut frame).ok()?,
        }
        if index >= lead {
            all.extend_from_slice(&frame);
        }
    }
    (frames.len() >= lead).then_some(all)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let window = |codec: Codec, lead: u8, frame_bytes: u8, count: u8| {
        let mut encoder = Encoder::new(codec, frame_bytes.into());
        let mut seed = vec![number_of(codec), lead, frame_bytes, count - lead, 0];
        let mut frame = vec![9; frame_bytes.into()];
        for number in 0..count {
            frame[usize::from(number % frame_bytes)] = number;
            let mut packed = Vec::new();
            seed.push(encoder.encode_into(&frame, &mut packed).into());
            seed.extend(piece(&packed));
        }
        seed
    };
    Codec::ALL.into_iter().flat_map(|codec| [window(codec, 0, 16, 5), window(codec, 3, 100, 8)]).collect()
}
