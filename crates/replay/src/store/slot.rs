//! What of an item changes, as it survives a crash.

use bytemuck::{Pod, Zeroable};
use value::priority::Priority;

/// What stands for the priority in a slot without an item.
const VACANT: f64 = -1.0;

/// What of an item changes: 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct Slot {
    /// Of the item that is there, or was.
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

    /// The item of this number has left, and so have all before it.
    pub fn vacant(number: u64) -> Self {
        Self::new(number, VACANT, 0)
    }

    pub fn is_vacant(&self) -> bool {
        self.priority == VACANT
    }

    /// Whether it holds the item of this number, with this priority.
    pub fn is(&self, number: u64, priority: f64) -> bool {
        self.number == number && self.priority == priority
    }

    /// Whether it can be believed. One that was never written has no item.
    pub fn is_sound(&self) -> bool {
        self.checksum == self.computed() && (self.is_vacant() || Priority::try_new(self.priority).is_ok())
    }
}
