use super::*;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// CartPole's, Atari's, squares and others, around the sizes where paths and tokens change.
const SIZES: [usize; 14] = [1, 2, 7, 8, 9, 16, 17, 64, 255, 256, 300, 7056, 7057, 70_000];

/// Frames with whether each is a key frame.
type Stream = Vec<(Vec<u8>, bool)>;

fn encode_all(codec: Codec, frames: &[Vec<u8>]) -> Stream {
    let mut encoder = Encoder::new(codec, frames[0].len());
    let pack = |frame: &Vec<u8>| {
        let mut packed = vec![0xEE; 3];
        let key = encoder.encode_into(frame, &mut packed);
        assert_eq!(packed[..3], [0xEE; 3], "{codec} changed what was there");
        (packed.split_off(3), key)
    };
    frames.iter().map(pack).collect()
}

fn decode(codec: Codec, stream: &Stream, lead: usize, frame_bytes: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = vec![0xA5; (stream.len() - lead) * frame_bytes];
    let frames = stream.iter().map(|(packed, key)| (packed.as_slice(), *key));
    Decoder::new(codec).decode_window(frames, lead, frame_bytes, &mut out)?;
    Ok(out)
}

/// Every window of `length` frames, each from the last key frame.
fn assert_windows(codec: Codec, frames: &[Vec<u8>], length: usize) {
    let stream = encode_all(codec, frames);
    for start in 0..=frames.len() - length {
        let key = (0..=start).rfind(|&at| stream[at].1).expect("the first frame is a key frame");
        assert!(start - key <= KEY_DISTANCE_MAX, "{codec}");
        let needed = stream[key..start + length].to_vec();
        let out = decode(codec, &needed, start - key, frames[0].len()).unwrap();
        assert!(out == frames[start..start + length].concat(), "{codec} {start}");
    }
}

/// A still background with runs and texture, and things that move over it.
fn screens(frame_bytes: usize, count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut screen: Vec<u8> = (0..frame_bytes).map(|at| if at % 251 < 40 { at as u8 } else { 9 }).collect();
    let change = |_| {
        for _ in 0..rng.next_u32() % 6 {
            let from = rng.next_u32() as usize % frame_bytes;
            let to = frame_bytes.min(from + 1 + rng.next_u32() as usize % 40);
            match rng.next_u32() % 3 {
                0 => screen[from..to].fill(rng.next_u32() as u8),
                1 => rng.fill_bytes(&mut screen[from..to]),
                _ => screen.copy_within(from..to, from / 2),
            }
        }
        screen.clone()
    };
    (0..count).map(change).collect()
}

fn noise(frame_bytes: usize, count: usize) -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut frames = vec![vec![0; frame_bytes]; count];
    frames.iter_mut().for_each(|frame| rng.fill_bytes(frame));
    frames
}

#[test]
fn names_round_trip_and_unknown_names_say_what_is_known() {
    for codec in Codec::ALL {
        assert_eq!(codec.to_string().parse(), Ok(codec));
        assert_eq!(read_by_serde(codec.name()), Ok(codec));
    }
    let error = "gzip".parse::<Codec>().unwrap_err();
    assert_eq!(error.to_string(), "unknown codec \"gzip\", use one of: none, zstd, delta");
    for codec in Codec::ALL {
        assert!(error.to_string().contains(codec.name()));
    }
}

fn read_by_serde(name: &str) -> Result<Codec, serde::de::value::Error> {
    Codec::deserialize(serde::de::IntoDeserializer::into_deserializer(name))
}

#[test]
fn flat_and_noisy_frames_round_trip_within_the_tables_bound() {
    for size in SIZES {
        for frames in [vec![vec![7; size]; 3], noise(size, 3)] {
            for codec in Codec::ALL {
                assert_windows(codec, &frames, 2);
                let stream = encode_all(codec, &frames);
                for (packed, _) in stream {
                    assert!((1..=size + size / 64 + 64).contains(&packed.len()), "{codec} {size}");
                }
            }
        }
    }
}

#[test]
fn every_window_of_a_lane_can_be_unpacked_from_its_key_frame() {
    for size in SIZES {
        for codec in Codec::ALL {
            assert_windows(codec, &screens(size, 40, 2), 5);
        }
    }
}

#[test]
fn a_screen_that_hardly_changes_has_key_frames_as_far_apart_as_allowed() {
    let mut frames = vec![screens(7056, 1, 3).remove(0); 40];
    frames.iter_mut().enumerate().for_each(|(at, frame)| frame[at * 7] ^= 1);
    let stream = encode_all(Codec::Delta, &frames);
    let keys: Vec<usize> = (0..40).filter(|&at| stream[at].1).collect();
    assert_eq!(keys, [0, 16, 32]);
    assert!(stream.iter().filter(|(_, key)| !key).all(|(packed, _)| packed.len() <= 10));
    let mut still = encode_all(Codec::Delta, &vec![frames[0].clone(); 2]);
    assert_eq!(still.remove(1), (vec![0], false));
}

#[test]
fn a_frame_unlike_the_one_before_is_a_key_frame() {
    for size in [16, 7056] {
        assert!(encode_all(Codec::Delta, &noise(size, 20)).iter().all(|(_, key)| *key), "{size}");
    }
    let stripes: Vec<Vec<u8>> = noise(84, 4).iter().map(|row| row.repeat(84)).collect();
    assert!(encode_all(Codec::Delta, &stripes).iter().all(|(packed, key)| *key && packed.len() < 100));
}

#[test]
fn deltas_never_outweigh_their_key_frame_by_more_than_one() {
    let stream = encode_all(Codec::Delta, &screens(7056, 500, 5));
    let (mut key_bytes, mut before_last) = (0, 0);
    let mut deltas = Vec::new();
    for (packed, key) in stream {
        if key {
            (key_bytes, before_last) = (packed.len(), 0);
            deltas.clear();
        } else {
            assert!(before_last < key_bytes && deltas.len() < KEY_DISTANCE_MAX);
            before_last += packed.len();
            deltas.push(packed);
        }
    }
}

#[test]
fn rows_that_repeat_are_packed_once_if_the_frame_is_square() {
    let row = noise(84, 1).remove(0);
    let square = Codec::Delta.pack(&row.repeat(84)).len();
    assert!(square <= 84 + 10, "{square}");
    assert!(Codec::Delta.pack(&row.repeat(83)).len() > 83 * 84);
}

#[test]
fn headers_are_left_out() {
    let plain = zstd::bulk::compress(&[0; 7056], ZSTD_LEVEL).unwrap();
    assert!(Codec::Zstd.pack(&[0; 7056]).len() + 5 <= plain.len());
}

#[test]
fn a_restarted_encoder_has_no_memory() {
    let frames = screens(7056, 30, 6);
    for codec in Codec::ALL {
        let mut encoder = Encoder::new(codec, 7056);
        let mut first = Vec::new();
        assert!(encoder.encode_into(&frames[0], &mut first));
        for end in 1..30 {
            for frame in &frames[..end] {
                encoder.encode_into(frame, &mut Vec::new());
            }
            encoder.restart();
            let mut again = Vec::new();
            assert!(encoder.encode_into(&frames[0], &mut again));
            assert_eq!(again, first, "{codec}");
        }
    }
}

#[test]
fn another_size_is_an_error_in_both_directions() {
    for codec in Codec::ALL {
        let packed = codec.pack(&[9; 100]);
        let mut decoder = Decoder::new(codec);
        let mut larger = [0; 101];
        let expected = DecodeError::Size { expected: 101, got: 100 };
        assert_eq!(decoder.decode_key(&packed, &mut larger), Err(expected), "{codec}");
        assert!(decoder.decode_key(&packed, &mut [0; 99]).is_err(), "{codec}");
        assert_eq!(decoder.decode_key(&packed, &mut [0; 100]), Ok(()), "{codec}");
    }
}

#[test]
fn a_window_must_have_a_key_frame_first_and_the_right_number_of_frames() {
    let frames = screens(256, 4, 7);
    for codec in Codec::ALL {
        let stream = encode_all(codec, &frames);
        let window = |range: std::ops::Range<usize>, lead, out_bytes| {
            let needed = stream[range].iter().map(|(packed, key)| (packed.as_slice(), *key));
            Decoder::new(codec).decode_window(needed, lead, 256, &mut vec![0; out_bytes])
        };
        assert_eq!(window(0..4, 1, 3 * 256), Ok(()), "{codec}");
        assert_eq!(window(0..3, 1, 3 * 256), Err(DecodeError::Frames { expected: 4 }), "{codec}");
        assert_eq!(window(0..4, 1, 2 * 256), Err(DecodeError::Frames { expected: 3 }), "{codec}");
        assert_eq!(window(0..4, 1, 0), Err(DecodeError::Frames { expected: 1 }), "{codec}");
        assert_eq!(window(0..0, 0, 256), Err(DecodeError::Frames { expected: 1 }), "{codec}");
        assert_eq!(window(0..1, usize::MAX, 256), Err(DecodeError::Frames { expected: usize::MAX }));
        let uneven = DecodeError::Size { expected: 300, got: 256 };
        assert_eq!(window(0..1, 0, 300), Err(uneven), "{codec}");
        let mut delta_first = stream.clone();
        delta_first[0].1 = false;
        assert_eq!(decode(codec, &delta_first, 0, 256), Err(DecodeError::NoKey), "{codec}");
    }
    let mut decoder = Decoder::new(Codec::Zstd);
    assert_eq!(decoder.apply_delta(&[0], &mut [0; 16]), Err(DecodeError::NoDeltas));
    assert!(decoder.decode_window(std::iter::empty(), 0, 0, &mut []).is_err());
}

/// Each token cut short, beyond the end, or with nothing above it.
#[test]
fn tokens_that_lead_outside_are_damage() {
    let mut decoder = Decoder::new(Codec::Delta);
    let key: [&[u8]; 9] = [
        &[0x00],
        &[0x7F],
        &[0x7F, 1],
        &[0x80],
        &[0xBF, 9, 0, 1],
        &[0xC0],
        &[0xFF, 0xFF, 0xFF, 5],
        &[0xFF, 0, 1, 5, 0x00],
        &[0xFF, 0, 1, 5, 0x80, 1],
    ];
    for packed in key {
        assert_eq!(decoder.decode_key(packed, &mut [0; 256]), Err(DecodeError::Damaged), "{packed:?}");
    }
    let size = DecodeError::Size { expected: 256, got: 64 };
    assert_eq!(decoder.decode_key(&[0xFF, 64, 0, 5], &mut [0; 256]), Err(size));
    assert_eq!(decoder.decode_key(&[0xFF, 64, 0, 5, 0x7F, 192, 0], &mut [0; 256]), Ok(()));
    let delta: [&[u8]; 8] = [
        &[],
        &[0x7F, 1],
        &[0x7F, 1, 1],
        &[0x80],
        &[0x7F, 0, 1, 0x80, 1],
        &[0x7F, 255, 0, 0x81, 1, 2],
        &[0x7F, 255, 0, 0xC1, 1],
        &[0xC0],
    ];
    for packed in delta {
        assert_eq!(decoder.apply_delta(packed, &mut [0; 256]), Err(DecodeError::Damaged), "{packed:?}");
    }
    assert_eq!(decoder.apply_delta(&[0x7F, 255, 0, 0x80, 1], &mut [0; 256]), Ok(()));
}

/// Frames that follow from each other by few changes, of a size that may be a square.
fn lanes() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let size = prop_oneof![1usize..40, Just(256), Just(289), 250usize..400, Just(7056)];
    size.prop_flat_map(|size| {
        let change = (0..size, 1usize..100, any::<u8>(), any::<bool>());
        let changes = prop::collection::vec(prop::collection::vec(change, 0..8), 1..40);
        (prop::collection::vec(0u8..3, size), changes)
    })
    .prop_map(|(mut frame, changes)| {
        let step = |changes: Vec<(usize, usize, u8, bool)>| {
            for (from, length, value, flat) in changes {
                let to = frame.len().min(from + length);
                let change =
                    |(at, byte): (usize, &mut u8)| *byte = if flat { value } else { value ^ at as u8 };
                frame[from..to].iter_mut().enumerate().for_each(change);
            }
            frame.clone()
        };
        changes.into_iter().map(step).collect()
    })
}

#[test]
fn an_encoder_resumes_only_from_a_reachable_state() {
    let mut encoder = Encoder::new(Codec::Delta, 4);
    encoder.encode_into(&[1; 4], &mut Vec::new());
    let EncoderState(state) = encoder.state();
    assert!(encoder.restore(EncoderState(state.clone())));
    assert!(!encoder.restore(EncoderState(DeltaEncoder { previous: vec![1; 5], ..state })));
    let deltas = KEY_DISTANCE_MAX + 1;
    assert!(
        !encoder.restore(EncoderState(DeltaEncoder { deltas, ..state.clone() })),
        "no key frame would come"
    );
    let (key_bytes, delta_bytes) = (usize::MAX, usize::MAX - 1);
    assert!(encoder.restore(EncoderState(DeltaEncoder { key_bytes, delta_bytes, ..state })));
    (0..3).for_each(|byte| assert_eq!(encoder.encode_into(&[byte; 4], &mut Vec::new()), byte > 0));
}

proptest! {
    #[test]
    fn lanes_round_trip(frames in lanes()) {
        for codec in [Codec::Zstd, Codec::Delta] {
            assert_windows(codec, &frames, 1 + frames.len() / 3);
        }
    }

    #[test]
    fn random_frames_round_trip(frame in prop::collection::vec(any::<u8>(), 1..600)) {
        for codec in Codec::ALL {
            assert_windows(codec, std::slice::from_ref(&frame), 1);
        }
    }

    #[test]
    fn garbage_and_damage_never_panic(
        garbage in prop::collection::vec(any::<u8>(), 0..300),
        frame in prop::collection::vec(0u8..4, 1..300),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        for codec in Codec::ALL {
            let mut decoder = Decoder::new(codec);
            let mut out = vec![0; frame.len()];
            let _ = decoder.decode_key(&garbage, &mut out);
            let _ = decoder.apply_delta(&garbage, &mut out);
            let mut packed = codec.pack(&frame);
            let at = flip.0.index(packed.len());
            packed[at] ^= flip.1;
            let _ = decoder.decode_key(&packed, &mut out);
            let _ = decoder.apply_delta(&packed, &mut out);
            packed[at] ^= flip.1;
            prop_assert_eq!(decoder.decode_key(&packed, &mut out), Ok(()));
            prop_assert_eq!(&out, &frame);
        }
    }

    /// Tokens as they are made, with lengths that may not fit: deeper than plain garbage gets.
    #[test]
    fn likely_tokens_never_panic(
        tokens in prop::collection::vec((0u8..3, prop_oneof![0u16..70, 0u16..600, any::<u16>()]), 0..40),
        frame_bytes in prop_oneof![1usize..40, Just(256usize), Just(7056), 200usize..600],
    ) {
        let mut packed = Vec::new();
        for (kind, length) in tokens {
            packed.push([0x7F, 0xBF, 0xFF][usize::from(kind)]);
            packed.extend_from_slice(&length.to_le_bytes());
            packed.resize(packed.len() + [0, usize::from(length.min(600)), 1][usize::from(kind)], 3);
        }
        let mut decoder = Decoder::new(Codec::Delta);
        let mut out = vec![0; frame_bytes];
        let _ = decoder.decode_key(&packed, &mut out);
        let _ = decoder.apply_delta(&packed, &mut out);
    }

    #[test]
    fn hostile_windows_never_panic(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..8),
        lead in 0usize..6,
        frame_bytes in 0usize..300,
        out_bytes in 0usize..1500,
    ) {
        for codec in Codec::ALL {
            let frames = frames.iter().map(|(packed, key)| (packed.as_slice(), *key));
            let _ = Decoder::new(codec).decode_window(frames, lead, frame_bytes, &mut vec![0; out_bytes]);
        }
    }
}
