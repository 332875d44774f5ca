//! Writes a store to a stream, and reads it back.
//!
//! A loaded store behaves bit for bit like the saved one: it samples the same items, reclaims the same chunks, gives
//! out the same keys and continues the same counters. Sum trees are not saved, since they are functions of their
//! leaves. The stream is checksummed ([`crate::blocks`]), and each record is validated as in recovery. So a damaged or
//! foreign stream is an error and never a store.
//!
//! A store can be saved piece by piece while it changes. The save then holds what was stored when the first piece was
//! written, less what was removed before it was reached. So a save ends, however fast others write.

use std::io::{self, ErrorKind, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::blocks::{BlockReader, BlockWriter};
use crate::options::{OptionsError, StoreOptions};
use crate::store::lanes::MARK;
use crate::store::record;
use crate::store::slot::SLOT;
use crate::store::state::State;
use crate::store::storage::{Storage, StorageError};
use crate::store::table::Table;
use crate::store::{Recovered, Store, slots_file};

/// First bytes of a save. The last byte is the version of the format.
const MAGIC: [u8; 8] = *b"quivrep\x04";

/// Size of the salt at the start of a record.
const SALT_BYTES: usize = size_of::<u64>();

/// The most bytes of slots in one piece.
const SLOTS_PIECE: usize = 240 << 10;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    options: StoreOptions,
}

/// A save in progress.
pub struct SnapshotWriter<W: Write> {
    out: BlockWriter<W>,
    stage: Stage,
    /// The state when the save began.
    state: State,
}

enum Stage {
    Head,
    /// The next chunk to be written.
    Chunks(u64),
    /// The table, and the offset in its slots.
    Slots(usize, usize),
    Marks,
}

impl<W: Write> SnapshotWriter<W> {
    /// Starts a save to `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        Ok(Self { out: BlockWriter::new(out), stage: Stage::Head, state: State::default() })
    }

    /// Writes about this many bytes, and returns whether there is more to write.
    pub fn write_some(&mut self, store: &Store, bytes: usize) -> io::Result<bool> {
        let mut written = 0;
        while written < bytes.max(1) {
            match self.stage {
                Stage::Head => {
                    put(&mut self.out, &Head { options: store.options.clone() })?;
                    self.state = store.state.read().expect("a store always has a state");
                    self.stage = Stage::Chunks(store.log.numbers().start);
                }
                Stage::Chunks(number) => {
                    // Chunks reclaimed before they were reached are not part of the save.
                    let oldest = store.log.numbers().start;
                    let number = number.max(oldest);
                    if number > self.state.newest {
                        self.out.write_all(&0u32.to_le_bytes())?;
                        self.state.oldest = oldest.min(self.state.newest + 1);
                        self.out.write_all(bytemuck::bytes_of(&self.state.with_serial(1)))?;
                        self.stage = Stage::Slots(0, 0);
                        continue;
                    }
                    if let (Some(record), Some(offset)) =
                        (store.log.record(number), store.log.offset_of(number))
                    {
                        let record = record.as_bytes();
                        self.out.write_all(&(record.len() as u32).to_le_bytes())?;
                        self.out.write_all(&(offset as u64).to_le_bytes())?;
                        // Zeros in place of the salt, which is a secret.
                        self.out.write_all(&[0; SALT_BYTES])?;
                        self.out.write_all(&record[SALT_BYTES..])?;
                        written += record.len();
                    }
                    self.stage = Stage::Chunks(number + 1);
                }
                Stage::Slots(table, at) => {
                    let Some(from) = store.tables.get(table) else {
                        self.stage = Stage::Marks;
                        continue;
                    };
                    let (slots, free) = from.saved();
                    let piece = &slots[at.min(slots.len())..slots.len().min(at + SLOTS_PIECE)];
                    self.out.write_all(&(piece.len() as u32).to_le_bytes())?;
                    self.out.write_all(piece)?;
                    written += piece.len();
                    self.stage = Stage::Slots(table, at + piece.len());
                    if piece.is_empty() {
                        put(&mut self.out, &free)?;
                        written += size_of_val(free);
                        self.stage = Stage::Slots(table + 1, 0);
                    }
                }
                Stage::Marks => {
                    let marks = store.lanes.marks(self.state.newest);
                    self.out.write_all(&(marks.clone().count() as u32).to_le_bytes())?;
                    for mark in marks {
                        self.out.write_all(mark)?;
                    }
                    self.out.end()?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The output, to be drained between pieces.
    pub fn sink(&mut self) -> &mut W {
        self.out.inner()
    }
}

impl Store {
    /// Writes the whole store, in blocks of 64 KiB and with little memory.
    pub fn save(&self, out: &mut impl Write) -> io::Result<()> {
        let mut saving = SnapshotWriter::new(out)?;
        while saving.write_some(self, usize::MAX)? {}
        Ok(())
    }

    /// Reads a store that [`Store::save`] wrote into the memory of this process.
    ///
    /// Sizes and samplers must equal those of the saved store. If keys may have been given out after the save, pass a
    /// new `incarnation`, so that those keys do not refer to other items.
    pub fn load(options: StoreOptions, incarnation: u32, input: &mut impl Read) -> Result<Store, LoadError> {
        let mut input = begin(input)?;
        let head: Head = get(&mut input)?;
        compare(&head.options, &options)?;
        let store = Store::new(options, incarnation)?;
        let (store, recovered) = store.fill(&mut input)?;
        if !recovered.is_whole() {
            return Err(LoadError::Damaged("its parts are inconsistent"));
        }
        Ok(store)
    }

    /// Reads a store that was saved while it served, with the saved options, into a new storage.
    pub fn restore(
        incarnation: u32,
        storage: Storage,
        input: &mut impl Read,
    ) -> Result<(Store, Recovered), LoadError> {
        let mut input = begin(input)?;
        let head: Head = get(&mut input)?;
        let (store, _) = Store::open(head.options, incarnation, storage)?;
        let (mut store, recovered) = store.fill(&mut input)?;
        store.start_incarnation(incarnation);
        Ok((store, recovered))
    }

    fn fill(mut self, input: &mut BlockReader<impl Read>) -> Result<(Store, Recovered), LoadError> {
        let mut bytes = Vec::new();
        while let length @ 1.. = length(input)? {
            if length > self.log.size() || length > record::bytes(1 << 20, 1 << 20, 1 << 30) {
                return Err(LoadError::Damaged("invalid size of a chunk"));
            }
            let mut offset = [0; 8];
            input.read_exact(&mut offset)?;
            bytes.resize(length, 0);
            input.read_exact(&mut bytes)?;
            let offset = usize::try_from(u64::from_le_bytes(offset));
            if !offset.is_ok_and(|offset| self.log.restore(offset, &bytes)) {
                return Err(LoadError::Damaged("invalid chunk"));
            }
        }
        let mut state = [0; size_of::<State>()];
        input.read_exact(&mut state)?;
        let state: State = bytemuck::pod_read_unaligned(&state);
        if !state.is_valid() {
            return Err(LoadError::Damaged("invalid counters"));
        }
        // Chunks that were reclaimed while later ones were being saved.
        self.log.drop_until(state.oldest);
        self.log.skip_to(state.newest + 1);
        let missing = self.log.numbers().start.saturating_sub(state.oldest);
        let mut free_lists = Vec::new();
        for (index, table) in self.tables.iter_mut().enumerate() {
            let mut at = 0;
            while let length @ 1.. = length(input)? {
                if length > SLOTS_PIECE {
                    return Err(LoadError::Damaged("invalid slots"));
                }
                bytes.resize(length, 0);
                input.read_exact(&mut bytes)?;
                // A table that was larger once has more slots than its capacity.
                let slots = table.slots_len();
                if at + length > Table::slots_bytes(slots) {
                    let more = Table::slots_bytes(2 * slots).max((at + length).next_multiple_of(SLOT));
                    let larger = self.storage.larger(&slots_file(index), table.memory(), more)?;
                    table.set_capacity(table.options().capacity, Some(larger));
                }
                if !table.restore_slots(at, &bytes) {
                    return Err(LoadError::Damaged("invalid slots"));
                }
                at += length;
            }
            free_lists.push(get::<Vec<u32>>(input)?);
        }
        for index in 0..length(input)? {
            let mut mark = [0; MARK];
            input.read_exact(&mut mark)?;
            if !self.lanes.restore_mark(index, &mark) {
                return Err(LoadError::Damaged("invalid lanes"));
            }
        }
        if input.read(&mut [0])? != 0 {
            return Err(LoadError::Damaged("extra bytes after the store"));
        }
        let recovered = self.recover(Some(state), missing);
        for (table, free) in self.tables.iter_mut().zip(free_lists) {
            // If the store was saved while it served, the list may be newer than the items and is ignored. Any order is
            // valid.
            table.finish_recovery(Some(free));
        }
        self.commit();
        Ok((self, recovered))
    }
}

fn begin<R: Read>(input: R) -> Result<BlockReader<R>, LoadError> {
    let mut input = input;
    let mut magic = [0; MAGIC.len()];
    input.read_exact(&mut magic).map_err(|_| LoadError::Foreign)?;
    if magic != MAGIC {
        return Err(LoadError::Foreign);
    }
    Ok(BlockReader::new(input))
}

fn length(input: &mut BlockReader<impl Read>) -> Result<usize, LoadError> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes) as usize)
}

fn compare(saved: &StoreOptions, given: &StoreOptions) -> Result<(), LoadError> {
    let same = |name: &str, saved: String, given: String| {
        let name = name.to_owned();
        if saved == given { Ok(()) } else { Err(LoadError::Mismatch { name, saved, given }) }
    };
    same("bytes_max", saved.bytes_max.to_string(), given.bytes_max.to_string())?;
    same("stack", saved.stack.to_string(), given.stack.to_string())?;
    same("frame_bytes", saved.frame_bytes.to_string(), given.frame_bytes.to_string())?;
    same("max_length", saved.max_length.to_string(), given.max_length.to_string())?;
    same("number of tables", saved.tables.len().to_string(), given.tables.len().to_string())?;
    for (saved, given) in saved.tables.iter().zip(&given.tables) {
        same("table", saved.name.clone(), given.name.clone())?;
        same("capacity", saved.capacity.to_string(), given.capacity.to_string())?;
        same("sampler", saved.sampler.to_string(), given.sampler.to_string())?;
        same("remover", saved.remover.to_string(), given.remover.to_string())?;
    }
    Ok(())
}

fn put(out: &mut BlockWriter<impl Write>, value: &impl Serialize) -> io::Result<()> {
    match postcard::to_io(value, &mut *out) {
        Ok(_) => Ok(()),
        Err(_) => Err(out.take_failure()),
    }
}

fn get<T: DeserializeOwned>(input: &mut BlockReader<impl Read>) -> Result<T, LoadError> {
    // The buffer bounds strings and byte arrays. Names are the longest of them.
    match postcard::from_io((&mut *input, &mut [0; 1024])) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(input.take_failure().map_or(LoadError::Damaged("invalid record"), LoadError::from)),
    }
}

/// Why a save cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read the saved replay; check its permissions")]
    Io(#[source] io::Error),
    #[error("the file is no saved replay, or of another version: use the version of quiver that wrote it")]
    Foreign,
    /// Truncated, changed, or not written by `save`.
    #[error("the saved replay is damaged ({0}): use an older checkpoint or snapshot")]
    Damaged(&'static str),
    #[error(
        "the replay was saved with {name} {saved}, not {given}: set it back, or start with an empty replay"
    )]
    Mismatch { name: String, saved: String, given: String },
    /// The options are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The storage cannot hold the store.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => LoadError::Damaged("it is truncated"),
            ErrorKind::InvalidData => LoadError::Damaged("a checksum does not match"),
            _ => LoadError::Io(error),
        }
    }
}
