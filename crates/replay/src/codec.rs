//! Packing of frames: done once by the actor, undone once by whoever trains.
//!
//! A frame is packed alone, so it can be unpacked without its neighbours. Frames are small (7,056
//! bytes for Atari, a few hundred when packed), so what a format spends on magic numbers, sizes
//! and checksums is left out: both sides know the size, and the carrier has checksums. Contexts are
//! kept, because making one costs more than packing a frame.

use std::{fmt, str::FromStr};

use lz4_flex::block::{self, CompressTable};
use serde::{Deserialize, Serialize};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, DParameter, FrameFormat};

/// Level of [`Codec::Zstd`]. On real frames of nine games, level 3 gave from 1 percent more to 8
/// percent fewer bytes than level 1, and mostly took 10 to 20 percent longer to pack.
const ZSTD_LEVEL: i32 = 1;

/// How frames are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// As they are.
    None,
    /// LZ4 block: the fastest, a little larger.
    Lz4,
    /// Zstandard: the smallest.
    #[default]
    Zstd,
}

impl Codec {
    /// Every codec, for help texts and tests.
    pub const ALL: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd];

    /// The name in configuration files and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// Packs one frame. Makes a context each time: keep an [`Encoder`] where many are packed.
    pub fn pack(&self, frame: &[u8]) -> Box<[u8]> {
        Encoder::new(*self).encode(frame)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = UnknownCodec;
    fn from_str(name: &str) -> Result<Self, UnknownCodec> {
        let known = Codec::ALL.into_iter().find(|codec| codec.name() == name);
        known.ok_or_else(|| UnknownCodec(name.to_owned()))
    }
}

/// A name that no codec has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown codec {0:?}, use none, lz4 or zstd")]
pub struct UnknownCodec(pub String);

/// Packs frames with one codec.
pub struct Encoder {
    context: EncoderContext,
    packed: Vec<u8>,
}

enum EncoderContext {
    None,
    Lz4(CompressTable),
    Zstd(Compressor<'static>),
}

impl Encoder {
    /// An encoder that keeps its context and buffer from frame to frame.
    pub fn new(codec: Codec) -> Self {
        let context = match codec {
            Codec::None => EncoderContext::None,
            Codec::Lz4 => EncoderContext::Lz4(CompressTable::default()),
            Codec::Zstd => EncoderContext::Zstd(zstd_compressor(ZSTD_LEVEL)),
        };
        Self { context, packed: Vec::new() }
    }

    /// Packs one frame. The same frame always gives the same bytes, whatever came before.
    pub fn encode(&mut self, frame: &[u8]) -> Box<[u8]> {
        let packed = &mut self.packed;
        match &mut self.context {
            EncoderContext::None => return frame.into(),
            EncoderContext::Lz4(table) => {
                packed.resize(block::get_maximum_output_size(frame.len()), 0);
                let size = block::compress_into_with_table(frame, packed, table)
                    .expect("the buffer has the documented worst-case size");
                packed.truncate(size);
            }
            EncoderContext::Zstd(compressor) => {
                packed.clear();
                packed.reserve(zstd::zstd_safe::compress_bound(frame.len()));
                compressor
                    .compress_to_buffer(frame, packed)
                    .expect("the buffer has the documented worst-case size");
            }
        }
        packed.as_slice().into()
    }
}

/// Unpacks frames of one codec.
pub struct Decoder {
    context: DecoderContext,
}

enum DecoderContext {
    None,
    Lz4,
    Zstd(Decompressor<'static>),
}

impl Decoder {
    /// A decoder that keeps its context from frame to frame.
    pub fn new(codec: Codec) -> Self {
        let context = match codec {
            Codec::None => DecoderContext::None,
            Codec::Lz4 => DecoderContext::Lz4,
            Codec::Zstd => DecoderContext::Zstd(zstd_decompressor()),
        };
        Self { context }
    }

    /// Unpacks a frame that must fill `out` exactly.
    ///
    /// Never writes beyond `out` and takes no memory of its own, so a hostile frame is an error at
    /// worst. What `out` holds after an error is unspecified.
    pub fn decode_into(&mut self, packed: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let expected = out.len();
        let got = match &mut self.context {
            DecoderContext::None => {
                if packed.len() == expected {
                    out.copy_from_slice(packed);
                }
                packed.len()
            }
            DecoderContext::Lz4 => block::decompress_into(packed, out).map_err(|_| DecodeError::Damaged)?,
            DecoderContext::Zstd(decompressor) => {
                decompressor.decompress_to_buffer(packed, out).map_err(|_| DecodeError::Damaged)?
            }
        };
        if got == expected { Ok(()) } else { Err(DecodeError::Size { expected, got }) }
    }
}

/// Why a packed frame cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not made by this codec, cut short, or larger than the frame's size.
    #[error("frame is damaged, of another codec, or too large")]
    Damaged,
    /// Sound, but of another size.
    #[error("frame has {got} bytes, expected {expected}")]
    Size {
        /// Size of the caller's frames.
        expected: usize,
        /// Size of this one.
        got: usize,
    },
}

/// zstd without magic number, checksum and content size: 2 bytes of header instead of 6 or more.
fn zstd_compressor(level: i32) -> Compressor<'static> {
    let mut compressor = Compressor::new(level).expect("level is in zstd's range");
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ChecksumFlag(false),
        CParameter::ContentSizeFlag(false),
    ] {
        compressor.set_parameter(parameter).expect("every zstd 1.5 knows this parameter");
    }
    compressor
}

fn zstd_decompressor() -> Decompressor<'static> {
    let mut decompressor = Decompressor::new().expect("a context without dictionary needs nothing");
    decompressor
        .set_parameter(DParameter::Format(FrameFormat::Magicless))
        .expect("every zstd 1.5 knows this parameter");
    decompressor
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn round_trip(codec: Codec, frame: &[u8]) -> usize {
        let packed = codec.pack(frame);
        let mut out = vec![0xA5; frame.len()];
        Decoder::new(codec).decode_into(&packed, &mut out).unwrap();
        assert_eq!(out, frame, "{codec}");
        packed.len()
    }

    #[test]
    fn names_round_trip_and_unknown_names_say_what_is_known() {
        for codec in Codec::ALL {
            assert_eq!(codec.to_string().parse(), Ok(codec));
            assert_eq!(read_by_serde(codec.name()), Ok(codec));
        }
        let error = "gzip".parse::<Codec>().unwrap_err();
        assert_eq!(error.to_string(), "unknown codec \"gzip\", use none, lz4 or zstd");
    }

    fn read_by_serde(name: &str) -> Result<Codec, serde::de::value::Error> {
        Codec::deserialize(serde::de::IntoDeserializer::into_deserializer(name))
    }

    #[test]
    fn flat_and_noisy_frames_round_trip_within_the_tables_bound() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for size in [1, 2, 64, 7056, 70_000] {
            let mut noise = vec![0; size];
            rng.fill_bytes(&mut noise);
            for codec in Codec::ALL {
                let flat = round_trip(codec, &vec![7; size]);
                let noisy = round_trip(codec, &noise);
                assert!(flat.max(noisy) <= size + size / 64 + 64, "{codec} {size}");
            }
        }
    }

    #[test]
    fn headers_are_left_out() {
        let plain = zstd::bulk::compress(&[0; 7056], ZSTD_LEVEL).unwrap();
        assert!(Codec::Zstd.pack(&[0; 7056]).len() + 5 <= plain.len());
    }

    #[test]
    fn an_encoder_has_no_memory() {
        for codec in Codec::ALL {
            let mut encoder = Encoder::new(codec);
            let first = encoder.encode(&[1; 500]);
            encoder.encode(&(0..=255).collect::<Vec<u8>>());
            assert_eq!(encoder.encode(&[1; 500]), first, "{codec}");
        }
    }

    #[test]
    fn another_size_is_an_error_in_both_directions() {
        for codec in Codec::ALL {
            let packed = codec.pack(&[9; 100]);
            let mut decoder = Decoder::new(codec);
            let mut larger = [0; 101];
            let expected = DecodeError::Size { expected: 101, got: 100 };
            assert_eq!(decoder.decode_into(&packed, &mut larger), Err(expected), "{codec}");
            assert!(decoder.decode_into(&packed, &mut [0; 99]).is_err(), "{codec}");
            assert_eq!(decoder.decode_into(&packed, &mut [0; 100]), Ok(()), "{codec}");
        }
    }

    proptest! {
        #[test]
        fn garbage_and_damage_never_panic(
            garbage in prop::collection::vec(any::<u8>(), 0..300),
            frame in prop::collection::vec(0u8..4, 1..300),
            flip in any::<(prop::sample::Index, u8)>(),
        ) {
            for codec in Codec::ALL {
                let mut decoder = Decoder::new(codec);
                let mut out = vec![0; frame.len()];
                let _ = decoder.decode_into(&garbage, &mut out);
                let mut packed = codec.pack(&frame);
                let at = flip.0.index(packed.len());
                packed[at] ^= flip.1;
                let _ = decoder.decode_into(&packed, &mut out);
                packed[at] ^= flip.1;
                prop_assert_eq!(decoder.decode_into(&packed, &mut out), Ok(()));
                prop_assert_eq!(&out, &frame);
            }
        }
    }
}
