//! The format of [`Codec::Delta`](super::Codec::Delta): what differs from a prediction.
//!
//! A delta is predicted from the frame before it, a key frame from its own previous row. So both are a few tokens
//! between long runs that match the prediction. A token is one byte, or three bytes if its length is large:
//!
//! ```text
//! 0lllllll           keep l + 1 bytes as predicted
//! 10llllll bytes...  the next l + 1 bytes as they are
//! 11llllll byte      l + 1 times this byte
//! ```
//!
//! Where all bits of `l` are set, the length is in the two bytes that follow, little end first. A
//! delta may end early, the rest is kept. Its application touches only what it changes.
//!
//! Decoding takes time linear in packed and unpacked bytes, for any input.

const LITERAL: u8 = 0x80;
const FILL: u8 = 0xC0;
/// All bits of a keep token's length, and of the others'.
const KEEP_MASK: u8 = 0x7F;
const OTHER_MASK: u8 = 0x3F;

/// Shortest stretch that gets a token of its own instead of being part of the literals around it.
/// 3 saves 1 percent of the bytes and makes more tokens, which are what decoding waits for.
const STRETCH_MIN: usize = 4;

/// Bytes that a key frame is unpacked by at a time, beyond a token's end: what comes next
/// overwrites them. 8 and 32 were slower.
const CHUNK: usize = 16;

/// Packs a frame alone.
pub fn encode_key(frame: &[u8], out: &mut Vec<u8>) {
    encode::<true>(frame, frame, row_bytes(frame.len()), out);
}

/// Packs the difference to `previous`, which is as long as `frame`. The result is never empty.
pub fn encode_delta(frame: &[u8], previous: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    encode::<false>(frame, previous, 0, out);
    if out.len() == start {
        put_token(0, KEEP_MASK, 1, out);
    }
}

/// Bytes of a row, assuming a square frame. If the size is no square, the whole frame is one row, without a row above
/// it.
fn row_bytes(frame_bytes: usize) -> usize {
    let side = frame_bytes.isqrt();
    if side * side == frame_bytes && side >= CHUNK { side } else { frame_bytes }
}

/// The byte at `position` is predicted to be `prediction[position - shift]`.
fn encode<const KEY: bool>(frame: &[u8], prediction: &[u8], shift: usize, out: &mut Vec<u8>) {
    let (mut position, mut literals_from) = (0, 0);
    while position < frame.len() {
        let rest = &frame[position..];
        let kept = if position < shift { 0 } else { same(rest, &prediction[position - shift..]) };
        if !KEY && kept == rest.len() {
            break;
        }
        // Keeping bytes is free when a delta is applied, so prefer a keep token to a fill.
        let enough = if KEY { CHUNK } else { STRETCH_MIN };
        let run = if kept < enough { 1 + same(&rest[1..], rest) } else { 0 };
        let length = kept.max(run);
        if length < STRETCH_MIN {
            position += 1;
            continue;
        }
        put_literals(&frame[literals_from..position], out);
        let mut left = length;
        while left > 0 {
            if kept >= run {
                left -= put_token(0, KEEP_MASK, left, out);
            } else {
                left -= put_token(FILL, OTHER_MASK, left, out);
                out.push(rest[0]);
            }
        }
        position += length;
        literals_from = position;
    }
    put_literals(&frame[literals_from..position], out);
}

/// Length of the common prefix.
fn same(a: &[u8], b: &[u8]) -> usize {
    let mut length = 0;
    for (a, b) in a.as_chunks().0.iter().zip(b.as_chunks().0) {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if difference != 0 {
            return length + difference.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length + a[length..].iter().zip(&b[length..]).take_while(|(a, b)| a == b).count()
}

fn put_literals(mut literals: &[u8], out: &mut Vec<u8>) {
    while !literals.is_empty() {
        let (now, later) = literals.split_at(put_token(LITERAL, OTHER_MASK, literals.len(), out));
        out.extend_from_slice(now);
        literals = later;
    }
}

/// Returns how much of `length`, which is not 0, one token can encode.
fn put_token(kind: u8, mask: u8, length: usize, out: &mut Vec<u8>) -> usize {
    let said = u16::try_from(length).unwrap_or(u16::MAX);
    if said <= u16::from(mask) {
        out.push(kind | (said - 1) as u8);
    } else {
        out.push(kind | mask);
        out.extend_from_slice(&said.to_le_bytes());
    }
    usize::from(said)
}

/// Unpacks a key frame. Returns its size, or nothing if it is damaged or larger than `out`.
pub fn decode_key(mut packed: &[u8], out: &mut [u8]) -> Option<usize> {
    let (size, row) = (out.len(), row_bytes(out.len()));
    let mut position = 0;
    while let Some(&tag) = packed.split_off_first() {
        let end;
        if tag < LITERAL {
            end = position + take_length(tag, KEEP_MASK, &mut packed)?;
            if position < row || end > size {
                return None;
            }
            if end + CHUNK <= size {
                for at in (position..end).step_by(CHUNK) {
                    let (above, here) = out.split_at_mut_checked(at)?;
                    *here.first_chunk_mut::<CHUNK>()? = *above.get(at - row..)?.first_chunk()?;
                }
            } else {
                (position..end).for_each(|at| out[at] = out[at - row]);
            }
        } else if tag < FILL {
            let length = take_length(tag, OTHER_MASK, &mut packed)?;
            end = position + length;
            let here = out.get_mut(position..)?;
            if length <= CHUNK
                && let (Some(here), Some(literals)) = (here.first_chunk_mut::<CHUNK>(), packed.first_chunk())
            {
                *here = *literals;
                packed = &packed[length..];
            } else {
                here.get_mut(..length)?.copy_from_slice(packed.split_off(..length)?);
            }
        } else {
            end = position + take_length(tag, OTHER_MASK, &mut packed)?;
            let value = *packed.split_off_first()?;
            if end + CHUNK <= size {
                for at in (position..end).step_by(CHUNK) {
                    *out.get_mut(at..)?.first_chunk_mut()? = [value; CHUNK];
                }
            } else {
                out.get_mut(position..end)?.fill(value);
            }
        }
        position = end;
    }
    Some(position)
}

/// Applies a delta to the frame before it. Returns `None` if the delta is damaged, or empty: even an unchanged frame
/// has a token.
pub fn apply_delta(mut packed: &[u8], frame: &mut [u8]) -> Option<()> {
    let mut position = 0;
    while let Some(&tag) = packed.split_off_first() {
        if tag < LITERAL {
            position += take_length(tag, KEEP_MASK, &mut packed)?;
            continue;
        }
        let length = take_length(tag, OTHER_MASK, &mut packed)?;
        let here = frame.get_mut(position..)?;
        position += length;
        if tag >= FILL {
            here.get_mut(..length)?.fill(*packed.split_off_first()?);
        } else if let (1..=8, Some(old), Some(new)) = (length, here.first_chunk_mut(), packed.first_chunk()) {
            // Most changes are short, and copying so few bytes takes longer than masking a word.
            let mask = u64::MAX >> (64 - 8 * length);
            let word = (u64::from_le_bytes(*old) & !mask) | (u64::from_le_bytes(*new) & mask);
            *old = word.to_le_bytes();
            packed = &packed[length..];
        } else {
            here.get_mut(..length)?.copy_from_slice(packed.split_off(..length)?);
        }
    }
    (1..=frame.len()).contains(&position).then_some(())
}

/// Copies a frame.
///
/// Not by `copy_from_slice`: for a few kilobytes glibc 2.36 takes `rep movsb`, which on the AMD processors that we
/// measured moves a frame two to three times slower than these plain stores.
pub fn copy(from: &[u8], to: &mut [u8]) {
    // 0, but the compiler does not know: it would make the same call of this loop.
    let nothing = std::hint::black_box(0);
    let ((from, from_rest), (to, to_rest)) = (from.as_chunks(), to.as_chunks_mut());
    for (from, to) in from.iter().zip(to) {
        *to = (u64::from_ne_bytes(*from) ^ nothing).to_ne_bytes();
    }
    to_rest.copy_from_slice(from_rest);
}

#[inline(always)]
fn take_length(tag: u8, mask: u8, packed: &mut &[u8]) -> Option<usize> {
    if tag & mask != mask {
        return Some(usize::from(tag & mask) + 1);
    }
    let (bytes, rest) = packed.split_first_chunk()?;
    *packed = rest;
    Some(usize::from(u16::from_le_bytes(*bytes)))
}
