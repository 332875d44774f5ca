//! A table to bytes and back, exactly.
//!
//! A loaded table behaves bit for bit as the saved one would have: it draws the same items, forgets
//! the same frames, gives the same keys and goes on with the same counters. The sum tree is not
//! saved, being a function of its leaves. Frames are saved in ring order; their places follow from
//! the first one's.
//!
//! The stream is checksummed ([`crate::blocks`]) and what it says is checked ([`crate::check`]), so a
//! damaged or foreign one is an error before it is a table.

use std::io::{self, ErrorKind, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::blocks::{BlockReader, BlockWriter};
use crate::check::{check_frames_fit, check_state};
use crate::options::{OptionsError, Sampler, TableOptions};
use crate::selector::Selector;
use crate::table::{State, Table};

/// First bytes of a save. The last one is the version of the format.
const MAGIC: [u8; 8] = *b"quivrep\x02";

/// The options that decide how the rest is to be read.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    capacity: u64,
    bytes_max: u64,
    stack: u64,
    frame_bytes: u64,
    sampler: Sampler,
    /// Where the oldest frame lies in the ring.
    ring_tail: u64,
}

impl Table {
    /// Writes the whole table: its state and every stored frame.
    ///
    /// `out` gets blocks of 64 KiB. Takes no memory to speak of.
    pub fn save(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        let mut out = BlockWriter::new(out);
        put(&mut out, &header(&self.options, self.ring.tail()))?;
        put(&mut out, &self.state)?;
        match &self.selector {
            Selector::Proportional(_) => {}
            Selector::Uniform(set) => put(&mut out, &set.slots)?,
        }
        let mut taken = vec![0; self.state.lanes.segments.len()];
        for &index in &self.state.order {
            let step = &self.state.lanes.segment(index).steps[taken[index as usize]];
            taken[index as usize] += 1;
            out.write_all(self.ring.get(step.place, step.length as usize))?;
        }
        out.finish()
    }

    /// Reads a table that [`Table::save`] wrote.
    ///
    /// `capacity`, `bytes_max`, `stack`, `frame_bytes` and `sampler` must be those of the saved table.
    /// The others are taken as given here, so a live change of the exponent is to be passed on; with
    /// the same ones the table goes on exactly. If keys may have been given out after the save, give
    /// a new `incarnation`, so that they don't come to mean other items.
    pub fn load(options: TableOptions, input: &mut impl Read) -> Result<Table, LoadError> {
        let mut magic = [0; MAGIC.len()];
        input.read_exact(&mut magic).map_err(|_| LoadError::Foreign)?;
        if magic != MAGIC {
            return Err(LoadError::Foreign);
        }
        let mut table = Table::new(options)?;
        let mut input = BlockReader::new(input);
        let saved: Header = get(&mut input)?;
        compare(&saved, &header(&table.options, 0))?;
        table.state = get::<State>(&mut input)?;
        check_state(&table.state, &table.options).map_err(LoadError::Damaged)?;
        let missing = table.options.capacity - table.state.items.len();
        table.state.items.reserve_exact(missing);
        table.load_selector(&mut input)?;
        let ring_tail =
            usize::try_from(saved.ring_tail).map_err(|_| LoadError::Damaged("the oldest frame's place"))?;
        table.load_frames(ring_tail, &mut input)?;
        match input.read(&mut [0]) {
            Ok(0) => Ok(table),
            Ok(_) => Err(LoadError::Damaged("more bytes than frames")),
            Err(error) => Err(error.into()),
        }
    }

    fn load_selector(&mut self, input: &mut BlockReader<impl Read>) -> Result<(), LoadError> {
        if let Selector::Uniform(set) = &mut self.selector {
            let slots: Vec<u32> = get(input)?;
            for slot in slots {
                let live = self.state.items.get(slot as usize).is_some_and(|item| item.is_live());
                if !live || set.contains(slot) {
                    return Err(LoadError::Damaged("the sampler's order"));
                }
                set.insert(slot);
            }
            if set.slots.len() != self.state.live_items {
                return Err(LoadError::Damaged("the sampler's size"));
            }
        }
        self.rebuild_weights();
        Ok(())
    }

    fn load_frames(&mut self, ring_tail: usize, input: &mut BlockReader<impl Read>) -> Result<(), LoadError> {
        let (ring, state) = (&mut self.ring, &mut self.state);
        let mut taken = vec![0; state.lanes.segments.len()];
        for &index in &state.order {
            let step = &mut state.lanes.segments[index as usize].steps[taken[index as usize]];
            taken[index as usize] += 1;
            let length = step.length as usize;
            step.place = check_frames_fit(ring, ring_tail, length).map_err(LoadError::Damaged)?;
            input.read_exact(ring.take(step.place, length))?;
        }
        Ok(())
    }
}

fn header(options: &TableOptions, ring_tail: usize) -> Header {
    Header {
        capacity: options.capacity as u64,
        bytes_max: options.bytes_max as u64,
        stack: options.stack as u64,
        frame_bytes: options.frame_bytes as u64,
        sampler: options.sampler,
        ring_tail: ring_tail as u64,
    }
}

fn compare(saved: &Header, given: &Header) -> Result<(), LoadError> {
    let same = |name, saved: u64, given: u64| {
        if saved == given { Ok(()) } else { Err(LoadError::Mismatch { name, saved, given }) }
    };
    same("capacity", saved.capacity, given.capacity)?;
    same("bytes_max", saved.bytes_max, given.bytes_max)?;
    same("stack", saved.stack, given.stack)?;
    same("frame_bytes", saved.frame_bytes, given.frame_bytes)?;
    if saved.sampler != given.sampler {
        return Err(LoadError::Sampler { saved: saved.sampler, given: given.sampler });
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
    // Nothing that is read borrows; the scratch buffer only has to hold one number.
    match postcard::from_io((&mut *input, &mut [0; 8])) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(input.take_failure().map_or(LoadError::Damaged("a record"), LoadError::from)),
    }
}

/// Why a save cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Reading failed.
    #[error("cannot read the saved table")]
    Io(#[source] io::Error),
    /// Not a save of a table, or one of another version.
    #[error("not a saved replay table of this version")]
    Foreign,
    /// Cut short, changed, or not made by `save`.
    #[error("saved table is damaged ({0}), use an older save")]
    Damaged(&'static str),
    /// Saved under other options.
    #[error("saved table has {name} {saved}, not {given}; set it back or start afresh")]
    Mismatch {
        /// Which option.
        name: &'static str,
        /// Its value in the save.
        saved: u64,
        /// Its value now.
        given: u64,
    },
    /// Saved with another sampler.
    #[error("saved table has sampler {saved:?}, not {given:?}; set it back or start afresh")]
    Sampler {
        /// The sampler in the save.
        saved: Sampler,
        /// The sampler now.
        given: Sampler,
    },
    /// The given options are wrong in themselves.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => LoadError::Damaged("it is cut short"),
            ErrorKind::InvalidData => LoadError::Damaged("a checksum does not match"),
            _ => LoadError::Io(error),
        }
    }
}
