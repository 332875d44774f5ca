//! One packed frame: `decode_key` of every codec and `apply_delta`, compared with a naive reading of the same tokens.
//!
//! Input: codec (1 byte), whether it is a delta (1), size (2), what the frame before was filled with (1), the packed
//! frame.

use std::cell::RefCell;

use replay::codec::{Codec, Decoder, Encoder};

use crate::input::{Input, number_of};

const SIZE_MAX: usize = 8192;
/// Bytes around the frame that must not change: one codec is C.
const GUARD_BYTES: usize = 64;
const GUARD: u8 = 0xa5;

thread_local! {
    /// Contexts are kept from frame to frame, as a learner keeps them.
    static DECODERS: RefCell<Vec<(Codec, Decoder)>> =
        RefCell::new(Codec::ALL.map(|codec| (codec, Decoder::new(codec))).into());
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (codec, is_delta) = (input.codec(), input.byte() & 1 == 1);
    let (size, fill) = (usize::from(input.u16()) % SIZE_MAX + 1, input.byte());
    let packed = input.rest();
    DECODERS.with_borrow_mut(|decoders| {
        let (_, decoder) = decoders.iter_mut().find(|(of, _)| *of == codec).expect("there is one for each");
        if is_delta {
            delta(codec, decoder, packed, size, fill);
        } else {
            key(codec, decoder, packed, size);
        }
    });
}

fn key(codec: Codec, decoder: &mut Decoder, packed: &[u8], size: usize) {
    let decoded = guarded(size, 0, |out| decoder.decode_key(packed, out).is_ok());
    if codec == Codec::Delta {
        assert_eq!(decoded, naive_key(packed, size), "as the tokens say");
    }
    if codec == Codec::None {
        assert_eq!(decoded.as_deref(), (packed.len() == size).then_some(packed));
    }
    // After any frame the context is as good as new.
    let frame = decoded.unwrap_or_else(|| (0..size).map(|at| (at * at / 7) as u8).collect());
    let again = codec.pack(&frame);
    assert!((1..=size + size / 64 + 64).contains(&again.len()), "{} of {size}", again.len());
    assert_eq!(guarded(size, 0, |out| decoder.decode_key(&again, out).is_ok()), Some(frame));
}

fn delta(codec: Codec, decoder: &mut Decoder, packed: &[u8], size: usize, fill: u8) {
    let applied = guarded(size, fill, |frame| decoder.apply_delta(packed, frame).is_ok());
    let expected = if codec == Codec::Delta { naive_delta(packed, vec![fill; size]) } else { None };
    assert_eq!(applied, expected, "as the tokens say");
}

/// What `decode` made of a frame, if it says that it could, with guards on both sides.
fn guarded(size: usize, fill: u8, decode: impl FnOnce(&mut [u8]) -> bool) -> Option<Vec<u8>> {
    let mut area = vec![GUARD; size + 2 * GUARD_BYTES];
    let frame = &mut area[GUARD_BYTES..GUARD_BYTES + size];
    frame.fill(fill);
    let sound = decode(frame).then(|| frame.to_vec());
    let (before, after) = (&area[..GUARD_BYTES], &area[GUARD_BYTES + size..]);
    assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "nothing is written beyond the frame");
    sound
}

enum Token<'a> {
    Keep(usize),
    Take(&'a [u8]),
    Fill(usize, u8),
}

fn tokens(packed: &[u8]) -> Option<Vec<Token<'_>>> {
    let (mut packed, mut tokens) = (packed, Vec::new());
    while let Some((&tag, rest)) = packed.split_first() {
        packed = rest;
        let mask = if tag < 0x80 { 0x7f } else { 0x3f };
        let mut length = usize::from(tag & mask) + 1;
        if tag & mask == mask {
            let (two, rest) = packed.split_first_chunk()?;
            (length, packed) = (u16::from_le_bytes(*two).into(), rest);
        }
        let bytes = match tag {
            0x00..0x80 => 0,
            0x80..0xc0 => length,
            _ => 1,
        };
        let (bytes, rest) = packed.split_at_checked(bytes)?;
        packed = rest;
        tokens.push(match tag {
            0x00..0x80 => Token::Keep(length),
            0x80..0xc0 => Token::Take(bytes),
            _ => Token::Fill(length, bytes[0]),
        });
    }
    Some(tokens)
}

fn naive_key(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    let side = size.isqrt();
    let row = if side * side == size && side >= 16 { side } else { size };
    let mut frame: Vec<u8> = Vec::new();
    for token in tokens(packed)? {
        match token {
            Token::Keep(_) if frame.len() < row => return None,
            Token::Keep(length) => (0..length).for_each(|_| frame.push(frame[frame.len() - row])),
            Token::Take(bytes) => frame.extend_from_slice(bytes),
            Token::Fill(length, byte) => frame.extend(std::iter::repeat_n(byte, length)),
        }
        if frame.len() > size {
            return None;
        }
    }
    (frame.len() == size).then_some(frame)
}

fn naive_delta(packed: &[u8], frame: Vec<u8>) -> Option<Vec<u8>> {
    let (mut frame, mut position) = (frame, 0);
    for token in tokens(packed)? {
        match token {
            Token::Keep(length) => position += length,
            Token::Take(bytes) => {
                frame.get_mut(position..position + bytes.len())?.copy_from_slice(bytes);
                position += bytes.len();
            }
            Token::Fill(length, byte) => {
                frame.get_mut(position..position + length)?.fill(byte);
                position += length;
            }
        }
    }
    (1..=frame.len()).contains(&position).then_some(frame)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |codec: Codec, is_delta: u8, size: usize, packed: &[u8]| {
        let size = u16::try_from(size - 1).expect("seeds are small").to_le_bytes();
        [&[number_of(codec), is_delta][..], &size, &[7], packed].concat()
    };
    let mut seeds = Vec::new();
    for codec in Codec::ALL {
        for size in [1, 16, 255, 256, 289, 1000, 7056] {
            // Rows that repeat, a stretch of one byte, and noise.
            let frame: Vec<u8> = (0..size)
                .map(|at| match at % 100 {
                    0..40 => (at % 17) as u8,
                    40..80 => 3,
                    _ => (at * 31 / 7) as u8,
                })
                .collect();
            seeds.push(seed(codec, 0, size, &codec.pack(&frame)));
        }
    }
    let mut encoder = Encoder::new(Codec::Delta, 300);
    let mut frame = vec![7; 300];
    encoder.encode_into(&frame, &mut Vec::new());
    for at in [0, 5, 40, 250, 292, 299] {
        frame[at] ^= 0x55;
        let mut packed = Vec::new();
        encoder.encode_into(&frame, &mut packed);
        seeds.push(seed(Codec::Delta, 1, 300, &packed));
    }
    seeds
}
