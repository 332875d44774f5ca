//! Correct checksums for any bytes, in the layout of `docs/replay.md`.

const RECORD_ALIGNMENT: usize = 64;
const RECORD_HEADER: usize = 96;
pub const SLOT: usize = 24;
pub const MARK: usize = 64;
pub const STATE: usize = 416;

fn put(bytes: &mut [u8], at: usize, checksum: u32) {
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// One record: number, then everything behind the checksum.
pub fn record(record: &mut [u8]) {
    if record.len() >= RECORD_HEADER {
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&record[8..16]), &record[20..]);
        put(record, 16, checksum);
    }
}

/// Everything in a ring that begins like a record of a store with this salt.
pub fn ring(ring: &mut [u8], salt: u64) {
    for place in (0..ring.len()).step_by(RECORD_ALIGNMENT) {
        let here = &mut ring[place..];
        if here.len() >= RECORD_HEADER && here[..8] == salt.to_le_bytes() {
            let length = u32::from_le_bytes([here[20], here[21], here[22], here[23]]) as usize;
            if let Some(found) = here.get_mut(..length) {
                record(found);
            }
        }
    }
}

/// Slots or marks, but for those that were never used. The checksum is the last thing in each.
pub fn each(bytes: &mut [u8], unit: usize) {
    for one in bytes.chunks_exact_mut(unit).filter(|one| one.iter().any(|&byte| byte != 0)) {
        let checksum = crc32c::crc32c(&one[..unit - 4]);
        put(one, unit - 4, checksum);
    }
}

/// Copies of the state, one after the other.
pub fn states(bytes: &mut [u8]) {
    for copy in bytes.chunks_exact_mut(STATE) {
        let checksum = crc32c::crc32c(&copy[..STATE - 8]);
        copy[STATE - 8..].copy_from_slice(&u64::from(checksum).to_le_bytes());
    }
}

/// A stream as blocks with their checksums, and its end.
pub fn blocks(stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, payload) in (0u64..).zip(stream.chunks(1 << 16).chain([&[][..]])) {
        let length = (payload.len() as u32).to_le_bytes();
        let checksum = [&number.to_le_bytes()[..], &length, payload].concat();
        out.extend([&length[..], &crc32c::crc32c(&checksum).to_le_bytes(), payload].concat());
    }
    out
}

/// What lies in the blocks that [`blocks`] makes.
pub fn stream(blocks: &[u8]) -> Vec<u8> {
    let (mut blocks, mut out) = (blocks, Vec::new());
    while let Some((head, rest)) = blocks.split_first_chunk::<8>() {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (payload, rest) = rest.split_at(length);
        out.extend_from_slice(payload);
        blocks = rest;
    }
    out
}
