//! The connection slots of a server: a total, and at most half of it for one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots for open connections. Clones share them.
#[derive(Clone)]
pub(crate) struct Slots(Arc<Shared>);

struct Shared {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Why a connection gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// All are taken.
    Full,
    /// Its address has half of them already. So one machine cannot lock out the others.
    Address,
}

/// A slot, free again when it is dropped.
pub(crate) struct Slot {
    slots: Slots,
    address: Option<IpAddr>,
}

impl Slots {
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, taken: Mutex::default() }))
    }

    /// A slot for a connection from this address; `None` on a socket file.
    pub fn take(&self, address: Option<IpAddr>) -> Result<Slot, NoSlot> {
        let mut taken = self.lock();
        if taken.total >= self.0.most {
            return Err(NoSlot::Full);
        }
        if let Some(address) = address {
            let of_address = taken.by_address.entry(address).or_default();
            if *of_address >= self.0.most.div_ceil(2) {
                return Err(NoSlot::Address);
            }
            *of_address += 1;
        }
        taken.total += 1;
        Ok(Slot { slots: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.total -= 1;
        let Some(address) = self.address else { return };
        if let Some(of_address) = taken.by_address.get_mut(&address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_at_most_half_of_the_slots() {
        let slots = Slots::new(4);
        let [one, other, third] = [1, 2, 3].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        let mut held = vec![slots.take(one).unwrap(), slots.take(one).unwrap()];
        assert_eq!(slots.take(one).err(), Some(NoSlot::Address));
        held.push(slots.take(other).unwrap());
        held.push(slots.take(None).unwrap());
        assert_eq!(slots.take(third).err(), Some(NoSlot::Full));
        held.remove(0);
        held.push(slots.take(one).unwrap());
        drop(held);
        assert!(slots.lock().by_address.is_empty() && slots.lock().total == 0);
    }
}
