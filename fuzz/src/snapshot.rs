//! A snapshot file, or a checkpoint's `replay.bin`: whole files as they are, or a stream under the right checksums.
//!
//! Input: what is done with the rest (1 byte, see the constants).

use std::fs;
use std::path::Path;

use replay::store::Storage;
use replay::store::directory::{SlotDirectory, StoreManifest};
use replay::{LoadError, Store};
use replay_server::shard::Shard;
use replay_server::store_backend::StoreBackend;
use tempfile::TempDir;

use crate::seal::{self, MARK, SLOT, STATE};
use crate::small::{self, INCARNATION};

/// The rest is the stream behind the options of [`small`]: records, state, slots, marks.
const STREAM: u8 = 1;
/// Records, state, slots and marks of the stream get their checksums.
const SEALED: u8 = 2;

const MAGIC: &[u8; 8] = b"quivrep\x04";

thread_local! {
    static DIRECTORY: TempDir = TempDir::new().expect("a directory for a file");
}

pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    if kind & STREAM == 0 {
        return whole_file(rest);
    }
    let mut stream = rest.to_vec();
    if kind & SEALED != 0 {
        seal_stream(&mut stream);
    }
    let file = [MAGIC, &seal::blocks(&[head(), stream].concat())[..]].concat();
    store(&file);
}

fn whole_file(file: &[u8]) {
    let mut input = file;
    let Ok((id, manifest)) = SlotDirectory::read_snapshot_head(&mut input) else { return };
    let mut again = SlotDirectory::snapshot_head(&id, &manifest).expect("what was read can be written");
    again.extend_from_slice(input);
    let (same_id, same) = SlotDirectory::read_snapshot_head(&mut again.as_slice()).expect("and read again");
    let facts = |manifest: &StoreManifest| {
        (manifest.run.clone(), manifest.codec.clone(), manifest.actions, manifest.options.clone())
    };
    assert_eq!((same_id, facts(&same)), (id, facts(&manifest)));
    store(input);
    DIRECTORY.with(|directory| shard(&directory.path().join("snapshot"), file));
}

/// The same through a shard: its configuration matches its store.
fn shard(path: &Path, file: &[u8]) {
    fs::write(path, file).expect("a file is written");
    let mut backend = StoreBackend::in_memory("other".into());
    if backend.restore(path).is_err() {
        return;
    }
    let Ok(shard) = Shard::open(backend, u64::MAX) else { return };
    let (_, spec) = shard.configuration().expect("it was restored");
    assert!(spec.options.check().is_ok());
    assert_eq!(shard.status().bytes_max, spec.options.bytes_max as u64);
}

/// Any snapshot that can be restored gives a valid store, and one that can be loaded gives the same store.
fn store(file: &[u8]) {
    let loaded = Store::load(small::options(), INCARNATION, &mut &*file);
    let restored = Store::restore(INCARNATION, Storage::in_memory(), &mut &*file);
    if let Err(LoadError::Io(error)) = &restored {
        panic!("memory can always be read: {error}");
    }
    let Ok((mut restored, _)) = restored else {
        assert!(loaded.is_err(), "what can't be restored can't be loaded");
        return;
    };
    let found = small::contents(&restored);
    if !small::counts_can_grow(file) {
        return;
    }
    if let Ok(mut loaded) = loaded {
        assert_eq!(small::contents(&loaded), found);
        small::put_to_use(&mut loaded);
    }
    small::put_to_use(&mut restored);
}

/// The options at the beginning of the stream.
fn head() -> Vec<u8> {
    postcard::to_stdvec(&small::options()).expect("options can be written")
}

/// Walks over a stream to its last valid block.
fn seal_stream(stream: &mut [u8]) {
    let Some(rest) = seal_records(stream) else { return };
    let Some((state, rest)) = rest.split_at_mut_checked(STATE) else { return };
    seal::states(state);
    let mut rest = Some(rest);
    for _ in 0..small::CAPACITIES.len() {
        rest = rest.and_then(seal_slots);
    }
    if let Some((_, marks)) = rest.and_then(|rest| rest.split_at_mut_checked(4)) {
        seal::each(marks, MARK);
    }
}

fn take_length(stream: &mut [u8]) -> Option<(usize, &mut [u8])> {
    let (length, rest) = stream.split_first_chunk_mut()?;
    Some((u32::from_le_bytes(*length) as usize, rest))
}

/// Length, offset and record, again and again, until a length of 0.
fn seal_records(stream: &mut [u8]) -> Option<&mut [u8]> {
    let (length, rest) = take_length(stream)?;
    if length == 0 {
        return Some(rest);
    }
    let (_, rest) = rest.split_at_mut_checked(8)?;
    let (record, rest) = rest.split_at_mut_checked(length)?;
    seal::record(record);
    seal_records(rest)
}

/// Length and slots, again and again, until a length of 0; then the vacant ones: how many, and which.
fn seal_slots(stream: &mut [u8]) -> Option<&mut [u8]> {
    let (length, rest) = take_length(stream)?;
    if length > 0 {
        let (slots, rest) = rest.split_at_mut_checked(length)?;
        seal::each(slots, SLOT);
        return seal_slots(rest);
    }
    let (free, left) =
        postcard::take_from_bytes::<Vec<u32>>(rest).ok().map(|(free, left)| (free, left.len()))?;
    drop(free);
    let read = rest.len() - left;
    Some(&mut rest[read..])
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for chunks in [0, 3, 9, 25, 60] {
        let mut store = Store::new(small::options(), INCARNATION).expect("a small store");
        small::fill(&mut store, chunks);
        let file = small::saved(&store);
        let stream = seal::stream(&file[MAGIC.len()..]);
        seeds.push([&[STREAM | SEALED], &stream[head().len()..]].concat());
        let manifest =
            StoreManifest::new("run".into(), "delta".into(), 4, small::options()).expect("random numbers");
        let whole = SlotDirectory::snapshot_head("shard", &manifest).expect("a head can be written");
        seeds.push([&[0][..], &whole, &file].concat());
    }
    seeds
}
