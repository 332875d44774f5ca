//! Unpacks a single frame or a window of frames.

use zstd::bulk::Decompressor;
use zstd::zstd_safe::{DParameter, FrameFormat};

use super::{Codec, patch};

/// Unpacks frames of one codec, of any size.
pub struct Decoder {
    context: DecoderContext,
}

enum DecoderContext {
    None,
    Zstd(Decompressor<'static>),
    Delta,
}

impl Decoder {
    /// A decoder keeps its context between calls, but no frame.
    pub fn new(codec: Codec) -> Self {
        let context = match codec {
            Codec::None => DecoderContext::None,
            Codec::Zstd => DecoderContext::Zstd(zstd_decompressor()),
            Codec::Delta => DecoderContext::Delta,
        };
        Self { context }
    }

    /// Unpacks a key frame that must fill `out` exactly.
    ///
    /// Never writes beyond `out` and allocates nothing, so a hostile frame causes an error at worst. What `out` holds
    /// after an error is unspecified.
    pub fn decode_key(&mut self, packed: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let expected = out.len();
        let got = match &mut self.context {
            DecoderContext::None => {
                if packed.len() == expected {
                    out.copy_from_slice(packed);
                }
                packed.len()
            }
            DecoderContext::Zstd(decompressor) => {
                decompressor.decompress_to_buffer(packed, out).map_err(|_| DecodeError::Damaged)?
            }
            DecoderContext::Delta => patch::decode_key(packed, out).ok_or(DecodeError::Damaged)?,
        };
        if got == expected { Ok(()) } else { Err(DecodeError::Size { expected, got }) }
    }

    /// Applies a delta in place. As safe as [`Decoder::decode_key`], but a delta of smaller frames, or to another
    /// frame, is not detected.
    pub fn apply_delta(&mut self, packed: &[u8], frame: &mut [u8]) -> Result<(), DecodeError> {
        match self.context {
            DecoderContext::Delta => patch::apply_delta(packed, frame).ok_or(DecodeError::Damaged),
            _ => Err(DecodeError::NoDeltas),
        }
    }

    /// Unpacks consecutive frames, each with a flag for key frames, into `out`. The first `lead` frames serve only to
    /// decode the others.
    ///
    /// The first frame must be a key frame, and the frames after the lead must fill `out` exactly.
    /// As safe as [`Decoder::decode_key`].
    pub fn decode_window<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a [u8], bool)>,
        lead: usize,
        frame_bytes: usize,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        if frame_bytes == 0 || !out.len().is_multiple_of(frame_bytes) {
            return Err(DecodeError::Size { expected: out.len(), got: frame_bytes });
        }
        // Lead frames pass through the first slot, the others move on.
        let mut slot = 0;
        let mut seen = 0;
        let expected = lead.saturating_add(out.len() / frame_bytes);
        for (packed, key) in frames {
            if seen == expected {
                return Err(DecodeError::Frames { expected });
            }
            if seen == 0 && !key {
                return Err(DecodeError::NoKey);
            }
            let next = if seen > lead { slot + frame_bytes } else { slot };
            let (before, here) = out.split_at_mut(next);
            let here = here.get_mut(..frame_bytes).ok_or(DecodeError::Frames { expected })?;
            if key {
                self.decode_key(packed, here)?;
            } else {
                if next > slot {
                    patch::copy(&before[slot..], here);
                }
                self.apply_delta(packed, here)?;
            }
            slot = next;
            seen += 1;
        }
        if seen == expected { Ok(()) } else { Err(DecodeError::Frames { expected }) }
    }

    /// Unpacks the frames of an item of `length` steps into `out`: the `stack` frames of its state, then the frame
    /// after each step. If the episode began inside the stack, its first frame fills the front; if `out` has room for
    /// more steps, the last frame fills the back.
    ///
    /// `frames` and `lead` are those of [`Decoder::decode_window`]. As safe as [`Decoder::decode_key`].
    pub fn decode_item<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a [u8], bool)> + Clone,
        lead: usize,
        length: usize,
        stack: usize,
        frame_bytes: usize,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let count = frames.clone().count().saturating_sub(lead);
        let missing = (stack + length).saturating_sub(count) * frame_bytes;
        let end = missing + count * frame_bytes;
        if count <= length || end > out.len() {
            return Err(DecodeError::Damaged);
        }
        self.decode_window(frames, lead, frame_bytes, &mut out[missing..end])?;
        for at in (0..missing).step_by(frame_bytes) {
            out.copy_within(missing..missing + frame_bytes, at);
        }
        for at in (end..out.len()).step_by(frame_bytes) {
            out.copy_within(end - frame_bytes..end, at);
        }
        Ok(())
    }
}

/// Why packed frames cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Of another codec, truncated, or larger than the frame's size.
    #[error("frame is damaged, of another codec, or too large")]
    Damaged,
    /// Intact, but of another size.
    #[error("frame has {got} bytes, expected {expected}")]
    Size { expected: usize, got: usize },
    /// A delta of a codec that has none.
    #[error("frame is a delta, but its codec has only key frames")]
    NoDeltas,
    #[error("window does not begin with a key frame")]
    NoKey,
    #[error("window does not have {expected} frames")]
    Frames {
        /// The expected number, including lead frames.
        expected: usize,
    },
}

/// A zstd context for frames without magic number.
fn zstd_decompressor() -> Decompressor<'static> {
    let mut decompressor = Decompressor::new().expect("a context without dictionary needs nothing");
    decompressor
        .set_parameter(DParameter::Format(FrameFormat::Magicless))
        .expect("every zstd 1.5 knows this parameter");
    decompressor
}
