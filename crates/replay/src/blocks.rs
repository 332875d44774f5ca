//! A byte stream in checksummed blocks, so that a reader never processes damaged bytes.
//!
//! ```text
//! block:  length u32 | crc32c u32 | payload        little endian, length from 1 to BLOCK_BYTES
//! end:    0u32       | crc32c u32
//! ```
//!
//! The checksum also covers the block's number. So a reader detects missing, repeated and swapped blocks, and a missing
//! end shows that the stream is truncated. Takes the memory of one block.

use std::io::{self, ErrorKind, Read, Write};

const BLOCK_BYTES: usize = 1 << 16;
const HEADER_BYTES: usize = 8;

pub(crate) struct BlockWriter<W> {
    out: W,
    payload: Vec<u8>,
    number: u64,
    /// Kept because postcard reports that writing failed but not why.
    failure: Option<io::Error>,
}

impl<W: Write> BlockWriter<W> {
    pub fn new(out: W) -> Self {
        Self { out, payload: Vec::with_capacity(BLOCK_BYTES), number: 0, failure: None }
    }

    pub fn inner(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the last block and the end. Nothing may be written afterwards.
    pub fn end(&mut self) -> io::Result<()> {
        if !self.payload.is_empty() {
            self.write_block()?;
        }
        self.write_block()?;
        self.out.flush()
    }

    /// The cause of a failed write, for callers whose own error does not carry it.
    pub fn take_failure(&mut self) -> io::Error {
        self.failure.take().unwrap_or_else(|| ErrorKind::InvalidData.into())
    }

    fn write_block(&mut self) -> io::Result<()> {
        let length = self.payload.len() as u32;
        let checksum = checksum(self.number, length, &self.payload);
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&checksum.to_le_bytes())?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        self.number += 1;
        Ok(())
    }
}

impl<W: Write> Write for BlockWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.payload.len() == BLOCK_BYTES
            && let Err(error) = self.write_block()
        {
            let kind = error.kind();
            self.failure = Some(error);
            return Err(kind.into());
        }
        let count = bytes.len().min(BLOCK_BYTES - self.payload.len());
        self.payload.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct BlockReader<R> {
    input: R,
    payload: Vec<u8>,
    position: usize,
    number: u64,
    ended: bool,
    /// Kept because postcard reports that reading failed but not why.
    failure: Option<io::Error>,
}

impl<R: Read> BlockReader<R> {
    pub fn new(input: R) -> Self {
        let payload = Vec::new();
        Self { input, payload, position: 0, number: 0, ended: false, failure: None }
    }

    /// The cause of a failed read, for callers whose own error does not carry it. `None` if the bytes were intact but
    /// could not be parsed.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    fn read_block(&mut self) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES];
        self.input.read_exact(&mut header)?;
        let [l0, l1, l2, l3, c0, c1, c2, c3] = header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length as usize > BLOCK_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        self.payload.resize(length as usize, 0);
        self.position = 0;
        self.input.read_exact(&mut self.payload)?;
        if checksum(self.number, length, &self.payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
            self.payload.clear();
            return Err(ErrorKind::InvalidData.into());
        }
        self.number += 1;
        self.ended = length == 0;
        Ok(())
    }
}

impl<R: Read> Read for BlockReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.position == self.payload.len()
            && !self.ended
            && let Err(error) = self.read_block()
        {
            let kind = error.kind();
            self.failure = Some(error);
            return Err(kind.into());
        }
        let left = &self.payload[self.position..];
        let count = left.len().min(out.len());
        out[..count].copy_from_slice(&left[..count]);
        self.position += count;
        Ok(count)
    }
}

fn checksum(number: u64, length: u32, payload: &[u8]) -> u32 {
    let head = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &length.to_le_bytes());
    crc32c::crc32c_append(head, payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = BlockWriter::new(&mut out);
        writer.write_all(bytes).unwrap();
        writer.end().unwrap();
        out
    }

    fn read(stored: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        BlockReader::new(stored).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn sample(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i * i / 7) as u8).collect()
    }

    #[test]
    fn a_stream_of_any_length_survives_the_round_trip() {
        for size in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 17] {
            assert_eq!(read(&written(&sample(size))).unwrap(), sample(size));
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_detected() {
        let stored = written(&sample(100));
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_truncation_anywhere_is_detected() {
        let stored = written(&sample(100));
        assert!((0..stored.len()).all(|length| read(&stored[..length]).is_err()));
    }

    #[test]
    fn swapped_missing_and_repeated_blocks_are_detected() {
        let stored = written(&sample(2 * BLOCK_BYTES));
        let block = HEADER_BYTES + BLOCK_BYTES;
        let (first, rest) = stored.split_at(block);
        let (second, end) = rest.split_at(block);
        assert!(read(&[first, second, end].concat()).is_ok());
        assert!(read(&[second, first, end].concat()).is_err());
        assert!(read(&[first, end].concat()).is_err());
        assert!(read(&[first, first, end].concat()).is_err());
    }

    #[test]
    fn a_length_beyond_a_block_allocates_nothing() {
        let mut reader = BlockReader::new(&[255u8; 64][..]);
        assert!(reader.read_exact(&mut [0; 1]).is_err());
        assert_eq!(reader.payload.capacity(), 0);
        assert_eq!(reader.take_failure().unwrap().kind(), ErrorKind::InvalidData);
    }
}
