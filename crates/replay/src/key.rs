//! Names of items that outlive them.

use serde::{Deserialize, Serialize};

/// Names one item of one table for ever.
///
/// The slot is where it lies, the generation is its number in the order of insertion. A successor
/// in the same slot has another generation, and a table restored from an older save gets another
/// incarnation, so a key held by a slow learner never means a different item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ItemKey {
    /// Of the store that gave it, see [`Store::open`](crate::Store::open).
    pub incarnation: u32,
    /// Where the item lies.
    pub slot: u32,
    /// How many items had been inserted before it.
    pub generation: u64,
}
