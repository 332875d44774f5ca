//! Packing of frames: done once by the actor, undone once by whoever trains.
//!
//! Frames are small (7,056 bytes for Atari, a few hundred when packed), so what a format spends on
//! magic numbers, sizes and checksums is left out: both sides know the size, and the carrier has
//! checksums. Contexts are kept, because making one costs more than packing a frame.
//!
//! A *key frame* is packed alone. [`Codec::Delta`] packs most frames as a *delta* to the frame
//! before, so a window of frames is unpacked from the last key frame at or before its start; the
//! others make every frame a key frame. `examples/codecs.rs` measures what each is worth.

mod decode;
mod patch;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, FrameFormat};

pub use decode::{DecodeError, Decoder};

/// Level of [`Codec::Zstd`]. On real frames of nine games, level 3 gave from 1 percent more to 8
/// percent fewer bytes than level 1, and mostly took 10 to 20 percent longer to pack.
const ZSTD_LEVEL: i32 = 1;

/// Most deltas between two key frames, so also the most frames that anyone unpacks only to get at
/// another. Twice as many would save 5 percent of the bytes.
pub const KEY_DISTANCE_MAX: usize = 15;
const _: () = assert!(KEY_DISTANCE_MAX <= crate::KEY_DISTANCE_MAX as usize);

/// How frames are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// As they are.
    None,
    /// Zstandard: every frame alone, for pictures that have little to do with the one before.
    Zstd,
    /// What changed since the frame before: the smallest and the fastest for a screen.
    #[default]
    Delta,
}

impl Codec {
    /// Every codec, for help texts and tests.
    pub const ALL: [Codec; 3] = [Codec::None, Codec::Zstd, Codec::Delta];

    /// The name in configuration files and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Zstd => "zstd",
            Codec::Delta => "delta",
        }
    }

    /// Packs one frame alone. Makes a context each time: keep an [`Encoder`] where many are packed.
    pub fn pack(self, frame: &[u8]) -> Box<[u8]> {
        let mut packed = Vec::new();
        Encoder::new(self, frame.len()).encode_into(frame, &mut packed);
        packed.into()
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
#[error("unknown codec {0:?}, use none, zstd or delta")]
pub struct UnknownCodec(pub String);

/// Packs the frames of one lane with one codec.
pub struct Encoder {
    frame_bytes: usize,
    context: EncoderContext,
}

enum EncoderContext {
    None,
    /// With the buffer that zstd packs into: it cannot append.
    Zstd(Compressor<'static>, Vec<u8>),
    Delta(DeltaEncoder),
}

impl Encoder {
    /// An encoder for frames of this size. The first frame will be a key frame.
    ///
    /// # Panics
    ///
    /// If frames have no bytes.
    pub fn new(codec: Codec, frame_bytes: usize) -> Self {
        assert!(frame_bytes > 0, "a frame has bytes");
        let context = match codec {
            Codec::None => EncoderContext::None,
            Codec::Zstd => EncoderContext::Zstd(
                zstd_compressor(ZSTD_LEVEL),
                Vec::with_capacity(zstd::zstd_safe::compress_bound(frame_bytes)),
            ),
            Codec::Delta => EncoderContext::Delta(DeltaEncoder::default()),
        };
        Self { frame_bytes, context }
    }

    /// Makes the next frame a key frame: it has nothing to do with the frame before.
    pub fn restart(&mut self) {
        if let EncoderContext::Delta(delta) = &mut self.context {
            delta.previous.clear();
        }
    }

    /// What the next frame's packing depends on, to be saved with a lane.
    pub fn state(&self) -> EncoderState {
        match &self.context {
            EncoderContext::Delta(delta) => EncoderState(delta.clone()),
            _ => EncoderState::default(),
        }
    }

    /// Goes on from a state, unless it is of frames of another size or none that an encoder comes to.
    pub fn restore(&mut self, state: EncoderState) -> bool {
        let EncoderState(state) = state;
        let of_this_size = state.previous.is_empty() || state.previous.len() == self.frame_bytes;
        let fits = of_this_size && state.deltas <= KEY_DISTANCE_MAX;
        if let (true, EncoderContext::Delta(delta)) = (fits, &mut self.context) {
            *delta = state;
        }
        fits
    }

    /// Appends a packed frame, at least one byte, to `out`. Returns whether it is a key frame.
    ///
    /// After a restart the same frames always give the same bytes, whatever came before.
    ///
    /// # Panics
    ///
    /// If the frame is of another size.
    pub fn encode_into(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        assert_eq!(frame.len(), self.frame_bytes, "an encoder's frames have one size");
        match &mut self.context {
            EncoderContext::None => out.extend_from_slice(frame),
            EncoderContext::Zstd(compressor, packed) => {
                packed.clear();
                compressor
                    .compress_to_buffer(frame, packed)
                    .expect("the buffer has the documented worst-case size");
                out.extend_from_slice(packed);
            }
            EncoderContext::Delta(delta) => return delta.encode_into(frame, out),
        }
        true
    }
}

/// What an encoder remembers from frame to frame.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EncoderState(DeltaEncoder);

/// Decides which frames are key frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct DeltaEncoder {
    /// Empty after a restart.
    previous: Vec<u8>,
    key_bytes: usize,
    deltas: usize,
    delta_bytes: usize,
}

impl DeltaEncoder {
    fn encode_into(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut key = self.key_is_due();
        if !key {
            patch::encode_delta(frame, &self.previous, out);
        }
        let end = out.len();
        // To try a key frame each time would double the work, so only such a delta has to compete.
        if key || end - start >= self.key_bytes {
            patch::encode_key(frame, out);
            key |= out.len() - end <= end - start;
            out.drain(if key { start..end } else { end..out.len() });
        }
        let size = out.len() - start;
        if key {
            (self.key_bytes, self.deltas, self.delta_bytes) = (size, 0, 0);
        } else {
            self.deltas += 1;
            self.delta_bytes = self.delta_bytes.saturating_add(size);
        }
        self.previous.clear();
        self.previous.extend_from_slice(frame);
        key
    }

    /// A key frame is due once the deltas that a reader has to take with the last one have more
    /// bytes than it. A fixed distance of 10 gives as many bytes per frame, and readers take 9
    /// percent more.
    fn key_is_due(&self) -> bool {
        self.previous.is_empty() || self.deltas == KEY_DISTANCE_MAX || self.delta_bytes >= self.key_bytes
    }
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
