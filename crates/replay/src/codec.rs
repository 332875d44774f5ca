//! Compression of frames. Actors pack frames, learners unpack them.
//!
//! Frames are small (7,056 bytes for Atari, a few hundred when packed), so the formats omit magic numbers, sizes and
//! checksums: both sides know the size, and the transport has checksums. Encoders and decoders keep their contexts,
//! because creating one costs more than packing a frame.
//!
//! A *key frame* is packed alone. [`Codec::Delta`] packs most frames as a *delta* to the frame before, so a window of
//! frames is unpacked from the last key frame at or before its start. With the other codecs every frame is a key frame.
//! `examples/codecs.rs` measures sizes and speeds.

mod decode;
mod patch;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, FrameFormat};

pub use decode::{DecodeError, Decoder};

/// Level of [`Codec::Zstd`]. On real frames of nine games, level 3 gave from 1 percent more to 8
/// percent fewer bytes than level 1, and mostly took 10 to 20 percent longer to pack.
const ZSTD_LEVEL: i32 = 1;

/// The most deltas between two key frames, and so the most frames that are decoded only to reach another one. Twice as
/// many would save 5 percent of the bytes.
pub const KEY_DISTANCE_MAX: usize = 15;
const _: () = assert!(KEY_DISTANCE_MAX <= crate::KEY_DISTANCE_MAX as usize);

/// How frames are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// Not compressed.
    None,
    /// Zstandard, every frame alone. For frames that have little in common with the frame before.
    Zstd,
    /// Differences to the frame before. The smallest and fastest for screens of games.
    #[default]
    Delta,
}

value::names!(Codec, "codec", None = "none", Zstd = "zstd", Delta = "delta");

impl Codec {
    /// Packs one frame alone. Creates a context each time: use an [`Encoder`] to pack many frames.
    pub fn pack(self, frame: &[u8]) -> Box<[u8]> {
        let mut packed = Vec::new();
        Encoder::new(self, frame.len()).encode_into(frame, &mut packed);
        packed.into()
    }
}

/// Packs the frames of one lane with one codec.
pub struct Encoder {
    frame_bytes: usize,
    context: EncoderContext,
}

enum EncoderContext {
    None,
    /// With an output buffer, since zstd cannot append.
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

    /// Makes the next frame a key frame.
    pub fn restart(&mut self) {
        if let EncoderContext::Delta(delta) = &mut self.context {
            delta.previous.clear();
        }
    }

    /// The state that the next packed frame depends on, to be saved with a lane.
    pub fn state(&self) -> EncoderState {
        match &self.context {
            EncoderContext::Delta(delta) => EncoderState(delta.clone()),
            _ => EncoderState::default(),
        }
    }

    /// Continues from a saved state. Refuses a state of another frame size, or one that no encoder can reach.
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

/// The state of an encoder between frames.
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
        // Packing every frame as a key frame too would double the work, so only such a delta is compared with one.
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

    /// A key frame is due once the deltas that a reader needs since the last one have more bytes than it. A fixed
    /// distance of 10 would give the same bytes per frame, but readers would read 9 percent more.
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
