//! Keys of items. A key stays unique after its item is gone.

use serde::{Deserialize, Serialize};

/// Identifies one item of one table, permanently.
///
/// The generation is the item's number in the order of insertion. The next item in the same slot has another
/// generation, and a store restored from an older save has another incarnation. So a key held by a slow learner never
/// refers to another item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ItemKey {
    /// Incarnation of the store that created the key, see [`Store::open`](crate::Store::open).
    pub incarnation: u32,
    /// Index of the item in its table.
    pub slot: u32,
    /// How many items were inserted into the table before it.
    pub generation: u64,
}
