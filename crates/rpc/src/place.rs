//! Which shard, and where. A shard is known by its name, which its data directory keeps; its address is only where it was
//! last found, and whoever holds a `Place` looks it up anew for every connection.

use proto::v1;

use crate::address::{Address, AddressError};

/// One shard of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it was last found.
    pub address: Address,
    /// Its name; empty if nobody has heard it yet.
    pub id: String,
    /// The run goes on without it.
    pub absent: bool,
}

impl Place {
    /// A shard that was not heard yet.
    pub fn unheard(address: Address) -> Self {
        Self { address, id: String::new(), absent: false }
    }

    /// Whoever is at an address, for a writer that was told no more than that.
    pub fn fixed(address: Address) -> impl Fn() -> Option<Self> {
        move || Some(Self::unheard(address.clone()))
    }
}

impl From<&Place> for v1::ShardAddress {
    fn from(Place { address, id, absent }: &Place) -> Self {
        Self { address: address.to_string(), id: id.clone(), absent: *absent }
    }
}

impl TryFrom<v1::ShardAddress> for Place {
    type Error = AddressError;

    fn try_from(v1::ShardAddress { address, id, absent }: v1::ShardAddress) -> Result<Self, AddressError> {
        Ok(Self { address: address.parse()?, id, absent })
    }
}
