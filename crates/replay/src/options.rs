//! How a table is set up. Checked once, in [`TableOptions::check`], so nothing asks again.

use serde::{Deserialize, Serialize};

/// How items are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// In proportion to `(priority + constant)^exponent`.
    Proportional,
    /// Every item alike. Priorities are still stored.
    Uniform,
}

/// Everything a [`Table`](crate::Table) needs to know. There is no default: the caller knows better.
#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// How many of the newest items are kept.
    pub capacity: usize,
    /// Size of the frame ring, the hard cap of all packed frames together. The ring is used round
    /// and round, so in a long run this much memory is really taken.
    pub bytes_max: usize,
    /// Frames in a state.
    pub stack: usize,
    /// The exponent α of `(priority + constant)^α`.
    pub priority_exponent: f64,
    /// Added before the exponent so that nothing starves.
    pub priority_constant: f64,
    /// How items are drawn.
    pub sampler: Sampler,
    /// Goes into every key. Take a new one for a table restored from a save after which keys may
    /// have been given out.
    pub incarnation: u32,
    /// What [`InitialPriority::Largest`](crate::InitialPriority::Largest) means in a table that has
    /// not seen a larger priority.
    pub first_priority: f64,
    /// Size of an unpacked frame. Bounds what a packed one may weigh.
    pub frame_bytes: usize,
}

impl TableOptions {
    /// The most that one packed frame may weigh: any codec's worst case on noise.
    pub fn packed_bytes_max(&self) -> usize {
        self.frame_bytes.saturating_add(self.frame_bytes / 64).saturating_add(64)
    }

    /// How many steps are kept at most: enough for any usual way of making items from steps, and
    /// a bound on the memory of writers that send steps and no items.
    pub fn steps_max(&self) -> usize {
        self.capacity.saturating_mul(4).saturating_add(1024)
    }

    /// The first thing wrong with these options.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        if !(1..=u32::MAX as usize).contains(&self.capacity) {
            return Err(OptionsError::Capacity(self.capacity));
        }
        if !(1..=usize::from(u8::MAX)).contains(&self.stack) {
            return Err(OptionsError::Stack(self.stack));
        }
        if !(1..=u32::MAX as usize / 2).contains(&self.frame_bytes) {
            return Err(OptionsError::FrameBytes(self.frame_bytes));
        }
        let least = self.packed_bytes_max().saturating_mul(self.stack + 1);
        if self.bytes_max < least {
            return Err(OptionsError::BytesMax { given: self.bytes_max, least });
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

/// Why a table cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// No items, or more than a key can tell apart.
    #[error("capacity must be from 1 to 4294967295, got {0}")]
    Capacity(usize),
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
