//! One entry of the shard directory. The shard id, which the shard's data directory keeps, identifies a shard. The
//! address is only where the shard was last found, so callers look up the entry again before every connection.

use proto::v1;

use crate::address::{Address, AddressError};

/// One shard of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardEntry {
    /// Where it was last found.
    pub address: Address,
    /// Its shard id; empty until the shard has answered for the first time.
    pub id: String,
    /// The run continues without it.
    pub excluded: bool,
}

impl ShardEntry {
    /// A shard that has not answered yet, so its id is unknown.
    pub fn unnamed(address: Address) -> Self {
        Self { address, id: String::new(), excluded: false }
    }

    /// Always the same address without a shard id, for a writer that is configured with an address only.
    pub fn fixed(address: Address) -> impl Fn() -> Option<Self> {
        move || Some(Self::unnamed(address.clone()))
    }
}

impl From<&ShardEntry> for v1::ShardEntry {
    fn from(ShardEntry { address, id, excluded }: &ShardEntry) -> Self {
        Self { address: address.to_string(), id: id.clone(), excluded: *excluded }
    }
}

impl TryFrom<v1::ShardEntry> for ShardEntry {
    type Error = AddressError;

    fn try_from(v1::ShardEntry { address, id, excluded }: v1::ShardEntry) -> Result<Self, AddressError> {
        Ok(Self { address: address.parse()?, id, excluded })
    }
}
