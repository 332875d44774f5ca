//! Any frames, packed and unpacked: they come back, and an encoder that resumes from a saved state, even a forged
//! one, keeps its promises.
//!
//! Input: codec (1 byte), size (2), a saved state (a piece, empty for none), then changes to the frame: where (2), how
//! many bytes (1), which byte (1). After each the frame is packed; a change of no bytes is a restart.

use replay::codec::{Codec, Decoder, Encoder, EncoderState, KEY_DISTANCE_MAX};

use crate::input::{Input, number_of, piece};

const SIZE_MAX: usize = 2048;
const FRAMES_MAX: usize = 64;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let codec = input.codec();
    let size = usize::from(input.u16()) % SIZE_MAX + 1;
    let mut encoder = Encoder::new(codec, size);
    if let Ok(state) = postcard::from_bytes::<EncoderState>(input.piece()) {
        encoder.restore(state);
    }
    let mut frame = vec![0u8; size];
    // Each frame, how it was packed, and whether it is a key frame.
    let mut made: Vec<(Vec<u8>, Vec<u8>, bool)> = Vec::new();
    while !input.is_empty() && made.len() < FRAMES_MAX {
        let (at, count, byte) = (usize::from(input.u16()) % size, usize::from(input.byte()), input.byte());
        match count {
            0 => encoder.restart(),
            count => {
                frame[at..(at + count).min(size)].iter_mut().for_each(|old| *old = old.wrapping_add(byte));
            }
        }
        let mut packed = Vec::new();
        let mut other = resumed(codec, size, &encoder);
        let key = encoder.encode_into(&frame, &mut packed);
        let mut same = Vec::new();
        assert_eq!(other.encode_into(&frame, &mut same), key, "a restored encoder continues as the original");
        assert_eq!(same, packed);
        assert!(key || count > 0, "after a restart a frame stands alone");
        assert!((1..=size + size / 64 + 64).contains(&packed.len()), "{} of {size}", packed.len());
        made.push((frame.clone(), packed, key));
    }
    let deltas = made.chunk_by(|_, next| !next.2).map(|run| run.iter().filter(|frame| !frame.2).count());
    assert!(deltas.into_iter().all(|deltas| deltas <= KEY_DISTANCE_MAX), "a key frame is near");
    // What was packed before the first key frame changes a frame that only the saved state knows.
    let first = made.iter().position(|frame| frame.2).unwrap_or(made.len());
    let (lead, window) = (made[first..].len() / 2, &made[first..]);
    let mut out = vec![0; (window.len() - lead) * size];
    let packed = window.iter().map(|(_, packed, key)| (packed.as_slice(), *key));
    let decoded = Decoder::new(codec).decode_window(packed, lead, size, &mut out);
    assert_eq!(decoded, Ok(()));
    assert!(out.chunks_exact(size).eq(window[lead..].iter().map(|(frame, ..)| frame.as_slice())));
}

/// Another encoder, restored from this one's state.
fn resumed(codec: Codec, size: usize, encoder: &Encoder) -> Encoder {
    let saved = postcard::to_stdvec(&encoder.state()).expect("a state can be written");
    let state = postcard::from_bytes(&saved).expect("and read");
    let mut other = Encoder::new(codec, size);
    assert!(other.restore(state), "a state fits where it came from");
    other
}

pub fn seeds() -> Vec<Vec<u8>> {
    let changes: Vec<u8> =
        (0..40u8).flat_map(|number| [number.wrapping_mul(37), 0, number % 9, number | 1]).collect();
    let seed = |codec: Codec, size: u16, state: &[u8]| {
        [&[number_of(codec)][..], &(size - 1).to_le_bytes(), &piece(state), &changes].concat()
    };
    let mut encoder = Encoder::new(Codec::Delta, 100);
    for byte in 0..20 {
        encoder.encode_into(&[byte / 7; 100], &mut Vec::new());
    }
    let state = postcard::to_stdvec(&encoder.state()).expect("a state can be written");
    let mut seeds: Vec<_> = Codec::ALL.map(|codec| seed(codec, 256, &[])).into();
    seeds.extend([seed(Codec::Delta, 100, &[]), seed(Codec::Delta, 100, &state)]);
    seeds
}
