//! How a store is set up. Checked once, in [`StoreOptions::check`], so nothing asks again.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Tables over one set of frames, at most. Each has its place in the state that survives a crash.
pub const TABLES_MAX: usize = 4;

/// How items are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// In proportion to `(priority + constant)^exponent`.
    #[default]
    Proportional,
    /// Every item alike. Priorities are still stored.
    Uniform,
    /// The oldest one. With `max_times_sampled` 1, a queue.
    Fifo,
    /// The newest one. With `max_times_sampled` 1, a stack.
    Lifo,
}

/// Which item makes room when a table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remover {
    /// The oldest.
    #[default]
    Fifo,
    /// The newest.
    Lifo,
    /// The one of least priority, as in Ape-X DPG.
    LowestPriority,
}

/// A name that means nothing here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {name:?}, use {known}")]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: &'static str,
}

impl Sampler {
    /// The name in configuration files and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Sampler::Proportional => "proportional",
            Sampler::Uniform => "uniform",
            Sampler::Fifo => "fifo",
            Sampler::Lifo => "lifo",
        }
    }
}

impl Remover {
    /// The name in configuration files and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Remover::Fifo => "fifo",
            Remover::Lifo => "lifo",
            Remover::LowestPriority => "lowest-priority",
        }
    }
}

impl FromStr for Sampler {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let all = [Sampler::Proportional, Sampler::Uniform, Sampler::Fifo, Sampler::Lifo];
        let known = "proportional, uniform, fifo or lifo";
        let unknown = || UnknownName { what: "sampler", name: name.to_owned(), known };
        all.into_iter().find(|sampler| sampler.name() == name).ok_or_else(unknown)
    }
}

impl FromStr for Remover {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let all = [Remover::Fifo, Remover::Lifo, Remover::LowestPriority];
        let known = "fifo, lifo or lowest-priority";
        let unknown = || UnknownName { what: "remover", name: name.to_owned(), known };
        all.into_iter().find(|remover| remover.name() == name).ok_or_else(unknown)
    }
}

impl fmt::Display for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Remover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One table: a view of the stored frames with its own items, sampler and remover.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableOptions {
    /// What people call it.
    pub name: String,
    /// How many items are kept.
    pub capacity: usize,
    /// How items are drawn.
    pub sampler: Sampler,
    /// Which item makes room for a new one.
    pub remover: Remover,
    /// An item drawn so often goes; 0 keeps it.
    pub max_times_sampled: u32,
    /// The exponent α of `(priority + constant)^α`.
    pub priority_exponent: f64,
    /// Added before the exponent so that nothing starves.
    pub priority_constant: f64,
    /// What [`InitialPriority::Largest`](crate::InitialPriority::Largest) means in a table that has
    /// not seen a larger priority.
    pub first_priority: f64,
}

/// Everything a [`Store`](crate::Store) needs to know. There is no default: the caller knows better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreOptions {
    /// Size of the ring of chunks, the hard cap of all packed frames and step records together. The ring
    /// is used round and round, so in a long run this much memory (or disk) is really taken.
    pub bytes_max: usize,
    /// Frames in a state.
    pub stack: usize,
    /// Size of an unpacked frame. Bounds what a packed one may weigh.
    pub frame_bytes: usize,
    /// The tables, at least one.
    pub tables: Vec<TableOptions>,
}

impl StoreOptions {
    /// The most that one packed frame may weigh: any codec's worst case on noise.
    pub fn packed_bytes_max(&self) -> usize {
        self.frame_bytes.saturating_add(self.frame_bytes / 64).saturating_add(64)
    }

    /// The first thing wrong with these options.
    pub fn check(&self) -> Result<(), OptionsError> {
        if !(1..=usize::from(u8::MAX)).contains(&self.stack) {
            return Err(OptionsError::Stack(self.stack));
        }
        if !(1..=u32::MAX as usize / 2).contains(&self.frame_bytes) {
            return Err(OptionsError::FrameBytes(self.frame_bytes));
        }
        let least =
            crate::store::record::bytes(self.stack + 1, 1, self.packed_bytes_max() * (self.stack + 1));
        if self.bytes_max < least {
            return Err(OptionsError::BytesMax { given: self.bytes_max, least });
        }
        if !(1..=TABLES_MAX).contains(&self.tables.len()) {
            return Err(OptionsError::Tables(self.tables.len()));
        }
        for (index, table) in self.tables.iter().enumerate() {
            table.check()?;
            if self.tables[..index].iter().any(|other| other.name == table.name) {
                return Err(OptionsError::Name(table.name.clone()));
            }
        }
        Ok(())
    }
}

impl TableOptions {
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        if !(1..u32::MAX as usize).contains(&self.capacity) {
            return Err(OptionsError::Capacity(self.capacity));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(plain) {
            return Err(OptionsError::Name(self.name.clone()));
        }
        for (name, value) in [
            ("priority_exponent", self.priority_exponent),
            ("priority_constant", self.priority_constant),
            ("first_priority", self.first_priority),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(OptionsError::Number { name, value });
            }
        }
        Ok(())
    }
}

/// Why a store cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// No items, or more than a key can tell apart.
    #[error("capacity must be from 1 to 4294967294, got {0}")]
    Capacity(usize),
    /// No tables, or too many.
    #[error("there must be from 1 to {TABLES_MAX} tables, got {0}")]
    Tables(usize),
    /// A name that is taken or can't be typed.
    #[error("table name {0:?} must be unique, of 1 to 64 letters, digits, '.', '-' and '_'")]
    Name(String),
    /// No frames in a state, or too many.
    #[error("stack must be from 1 to 255, got {0}")]
    Stack(usize),
    /// Frames of no size, or too large.
    #[error("frame_bytes must be from 1 to 2147483647, got {0}")]
    FrameBytes(usize),
    /// Not even one transition would fit.
    #[error("bytes_max must be at least {least} to hold one transition, got {given}")]
    BytesMax {
        /// What was asked for.
        given: usize,
        /// The smallest that works.
        least: usize,
    },
    /// A number that is NaN, infinite or negative.
    #[error("{name} must be finite and at least 0, got {value}")]
    Number {
        /// Which option.
        name: &'static str,
        /// What was asked for.
        value: f64,
    },
    /// The system would not give the memory.
    #[error("cannot allocate {bytes} bytes, choose a smaller capacity or bytes_max")]
    Memory {
        /// How much was asked for.
        bytes: usize,
    },
}
