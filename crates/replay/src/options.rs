//! Options of a store. [`StoreOptions::check`] validates them once; later code relies on that.

use serde::{Deserialize, Serialize};

/// The most tables of a store. Each has a reserved entry in the persistent state.
pub const TABLES_MAX: usize = 4;

/// Units in which flags and settings state sizes in bytes.
pub const BYTE_UNITS: [(&str, u64); 6] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// How items are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// In proportion to `(priority + constant)^exponent`.
    #[default]
    Proportional,
    /// All items with equal probability. Priorities are stored but not used.
    Uniform,
    /// The oldest item. With `max_times_sampled` 1, a queue.
    Fifo,
    /// The newest item. With `max_times_sampled` 1, a stack.
    Lifo,
}

value::names! {
    Sampler, "sampler",
    Proportional = "proportional", Uniform = "uniform", Fifo = "fifo", Lifo = "lifo",
}

/// Which item is evicted from a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remover {
    /// The oldest.
    #[default]
    Fifo,
    /// The newest.
    Lifo,
    /// The item of lowest priority, as in Ape-X DPG.
    LowestPriority,
}

value::names!(Remover, "remover", Fifo = "fifo", Lifo = "lifo", LowestPriority = "lowest-priority");

/// One table: a view of the stored frames with its own items, sampler and remover.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableOptions {
    pub name: String,
    /// The most items that the table keeps.
    pub capacity: usize,
    /// How items are sampled.
    pub sampler: Sampler,
    /// Which item is evicted when the table is full.
    pub remover: Remover,
    /// An item is removed after it was sampled this often. 0: never.
    pub max_times_sampled: u32,
    /// The exponent α of `(priority + constant)^α`.
    pub priority_exponent: f64,
    /// Added to the priority before the exponent, so that items of priority 0 can be sampled.
    pub priority_constant: f64,
    /// The value of [`InitialPriority::Largest`](crate::InitialPriority::Largest) until the table has seen a larger
    /// priority.
    pub first_priority: f64,
}

/// Options of a [`Store`](crate::Store). No defaults: they depend on the caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreOptions {
    /// Size of the ring of chunks: a hard limit on all packed frames and step records together. A long run fills the
    /// whole ring, so this much memory (or disk) will be used.
    pub bytes_max: usize,
    /// Frames in a state.
    pub stack: usize,
    /// Size of an unpacked frame. Also bounds the size of a packed one.
    pub frame_bytes: usize,
    /// The most steps of an item. Bounds the work that a chunk can cause.
    pub max_length: u8,
    /// The tables, at least one.
    pub tables: Vec<TableOptions>,
}

impl StoreOptions {
    /// The largest size of a packed frame: the worst case of any codec, on noise.
    pub fn packed_bytes_max(&self) -> usize {
        self.frame_bytes.saturating_add(self.frame_bytes / 64).saturating_add(64)
    }

    /// Fails with the first invalid option.
    pub fn check(&self) -> Result<(), OptionsError> {
        if !(1..=usize::from(u8::MAX)).contains(&self.stack) {
            return Err(OptionsError::Stack(self.stack));
        }
        if !(1..=u32::MAX as usize / 2).contains(&self.frame_bytes) {
            return Err(OptionsError::FrameBytes(self.frame_bytes));
        }
        if self.max_length == 0 {
            return Err(OptionsError::MaxLength);
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

/// Why a store cannot be created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// No items, or more than keys can distinguish.
    #[error("capacity must be from 1 to 4294967294, got {0}")]
    Capacity(usize),
    #[error("there must be from 1 to {TABLES_MAX} tables, got {0}")]
    Tables(usize),
    #[error("table name {0:?} must be unique, of 1 to 64 letters, digits, '.', '-' and '_'")]
    Name(String),
    #[error("stack must be from 1 to 255, got {0}")]
    Stack(usize),
    #[error("frame_bytes must be from 1 to 2147483647, got {0}")]
    FrameBytes(usize),
    #[error("max_length must be from 1 to 255, got 0")]
    MaxLength,
    /// The ring is too small for one transition.
    #[error("bytes_max must be at least {least} to hold one transition, got {given}: raise replay_bytes")]
    BytesMax { given: usize, least: usize },
    #[error("{name} must be finite and at least 0, got {value}")]
    Number { name: &'static str, value: f64 },
    #[error("cannot allocate {bytes} bytes: choose a smaller capacity or bytes_max")]
    Memory { bytes: usize },
}
