//! The mutable part of an item, in a form that survives a crash.

use bytemuck::{Pod, Zeroable};
use value::priority::Priority;

/// The priority of a slot without an item.
const VACANT: f64 = -1.0;

/// The mutable part of an item: 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct Slot {
    /// Number of the current item, or of the last one if the slot is vacant.
    pub number: u64,
    pub priority: f64,
    pub times_sampled: u32,
    checksum: u32,
}

pub(crate) const SLOT: usize = size_of::<Slot>();

impl Slot {
    pub fn new(number: u64, priority: f64, times_sampled: u32) -> Self {
        let mut slot = Self { number, priority, times_sampled, checksum: 0 };
        slot.checksum = slot.computed();
        slot
    }

    fn computed(&self) -> u32 {
        crc32c::crc32c(&bytemuck::bytes_of(self)[..SLOT - 4])
    }

    /// A vacant slot, from which this item and all items before it were removed.
    pub fn vacant(number: u64) -> Self {
        Self::new(number, VACANT, 0)
    }

    pub fn is_vacant(&self) -> bool {
        self.priority == VACANT
    }

    /// Whether the slot has this item, with this priority.
    pub fn is(&self, number: u64, priority: f64) -> bool {
        self.number == number && self.priority == priority
    }

    /// Whether the slot is intact. A slot that was never written is not.
    pub fn is_valid(&self) -> bool {
        self.checksum == self.computed() && (self.is_vacant() || Priority::try_new(self.priority).is_ok())
    }
}
