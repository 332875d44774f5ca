//! Bounds the repeated fields of a message before it is decoded.
//!
//! A packed varint can take one byte on the wire and eight in a `Vec<u64>`, so a message of small numbers within its size
//! limit could make the process allocate eight times as much. This pass walks over the headers of the fields without
//! decoding them. It is cheap: the frames, nearly all of a legitimate message, are one `bytes` field, which it skips.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use proto::limits::{CHUNK_ITEMS_MAX, CHUNK_STEPS_MAX};
use proto::{Invalid, v1};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

use crate::metrics::Metrics;
use crate::refusal::Refusal;

/// A request whose lists are measured before it is decoded.
pub(crate) trait BoundedMessage {
    /// Refuses a message whose lists are too long. Decoding finds everything else that is wrong. The default accepts
    /// all: most requests have no lists, or a size limit that leaves few bytes for them.
    fn check_bounds(_message: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Bytes of all columns of a chunk: a step takes up to 34 bytes, an item up to 20, and the headers the rest.
const COLUMNS_BYTES_MAX: usize = 34 * CHUNK_STEPS_MAX + 20 * CHUNK_ITEMS_MAX + 1024;

impl BoundedMessage for v1::InsertRequest {
    fn check_bounds(message: &[u8]) -> Result<(), Refusal> {
        const CHUNK: u64 = 2;
        const FRAMES: u64 = 6;
        // A decoder merges repeated occurrences of the chunk field, so all of them count.
        let mut columns = 0;
        for field in Fields(message) {
            let (CHUNK, Some(chunk)) = field? else { continue };
            columns += chunk.len();
            for field in Fields(chunk) {
                if let (FRAMES, Some(frames)) = field? {
                    columns -= frames.len();
                }
            }
        }
        at_most("bytes beside frames", columns, COLUMNS_BYTES_MAX)
    }
}

/// A decoded list needs at most 8 times its encoded size, so the message size limit is a sufficient bound.
impl BoundedMessage for v1::UpdatePrioritiesRequest {}

impl BoundedMessage for v1::ConfigureRequest {}
impl BoundedMessage for v1::InspectRequest {}
impl BoundedMessage for v1::GetItemRequest {}
impl BoundedMessage for v1::SnapshotRequest {}

/// Points are as large in memory as on the wire, and updates take few bytes.
impl BoundedMessage for v1::SampleRequest {}

impl BoundedMessage for v1::GrantRequest {}
impl BoundedMessage for v1::IssueTicketRequest {}
impl BoundedMessage for v1::InfoRequest {}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), Refusal> {
    if count > most {
        return Err(Invalid::range(what, count, format!("at most {most}")).into());
    }
    Ok(())
}

/// Iterates over the fields of a message: the number of each, and the content of length-delimited ones. Ends with an
/// error at the first byte that starts no valid field. Groups are not supported.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Option<&'a [u8]>), Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(Refusal::Malformed);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Option<&'a [u8]>)> {
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => self.varint().map(|_| None)?,
            1 => self.take(8).map(|_| None)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Some(self.take(length)?)
            }
            5 => self.take(4).map(|_| None)?,
            _ => return None,
        };
        Some((tag >> 3, content))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// The usual codec, with [`BoundedMessage::check_bounds`] applied to each request before it is decoded.
pub(crate) struct BoundedCodec<T, U> {
    metrics: Metrics,
    types: PhantomData<(T, U)>,
}

impl<T, U> BoundedCodec<T, U> {
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, types: PhantomData }
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Send + 'static,
    U: BoundedMessage + Send + 'static,
    T: Message,
    ProstCodec<T, U>: Codec<Encode = T, Decode = U>,
{
    type Encode = T;
    type Decode = U;
    type Encoder = WholeEncoder<T>;
    type Decoder = BoundedDecoder<<ProstCodec<T, U> as Codec>::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        WholeEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder { inner: ProstCodec::default().decoder(), metrics: self.metrics.clone() }
    }
}

/// Allocates the whole message at once. The usual encoder starts with a few kilobytes and doubles, which would copy
/// half of a batch a second time.
pub(crate) struct WholeEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for WholeEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(message.encoded_len());
        message.encode_raw(out);
        Ok(())
    }
}

pub(crate) struct BoundedDecoder<D> {
    inner: D,
    metrics: Metrics,
}

impl<D> Decoder for BoundedDecoder<D>
where
    D: Decoder<Error = Status>,
    D::Item: BoundedMessage,
{
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<D::Item>, Status> {
        // tonic hands over the whole message in one contiguous buffer.
        debug_assert_eq!(source.chunk().len(), source.remaining());
        if let Err(refusal) = D::Item::check_bounds(source.chunk()) {
            self.metrics.record_refusal(&refusal);
            return Err(refusal.status());
        }
        self.inner.decode(source)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.inner.buffer_settings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn columns_are_counted_over_all_parts_of_a_chunk() {
        let part = |bytes: usize| field(2, &field(8, &vec![1; bytes]));
        let count = |message: &[u8]| v1::InsertRequest::check_bounds(message);
        assert_eq!(count(&part(30_000)), Ok(()));
        let refused = count(&[part(30_000), part(30_000)].concat()).unwrap_err();
        assert!(refused.to_string().starts_with("bytes beside frames is 60"), "{refused}");
        // Unpacked, with a tag for each number.
        assert!(count(&field(2, &[0x40, 1].repeat(40_000))).is_err());
    }

    #[test]
    fn the_content_of_frames_is_not_counted() {
        let frames = field(6, &field(8, &[0; 100]).repeat(5000));
        assert_eq!(v1::InsertRequest::check_bounds(&field(2, &frames)), Ok(()));
        // A varint, eight bytes, four bytes, then a list.
        let others = [0x10, 0xff, 0x01, 0x29, 0, 0, 0, 0, 0, 0, 0, 0, 0x35, 0, 0, 0, 0];
        let message = [&others[..], &field(3, &[])].concat();
        assert_eq!(Fields(&message).count(), 4);
    }

    #[test]
    fn bytes_that_are_no_field_are_refused() {
        let check = |message: &[u8]| {
            assert_eq!(v1::InsertRequest::check_bounds(message), Err(Refusal::Malformed), "{message:?}");
        };
        // A group could hide anything.
        check(&[0x0b, 0x0c]);
        check(&field(1, b"cut off")[..5]);
        check(&[0xff; 11]);
        check(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        check(&[0x09, 1, 2]);
    }
}
