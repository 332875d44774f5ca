//! The state of a store beside chunks and items: a few numbers that change with every call.
//!
//! Two copies, written alternately, each with a checksum. A process that dies while it writes one leaves the other
//! intact.

use bytemuck::{Pod, Zeroable};

use crate::options::TABLES_MAX;
use crate::outcome::{Counters, TableCounters};
use crate::store::insert::NUMBER_MAX;
use crate::store::memory::Memory;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub(crate) struct TableState {
    pub next_number: u64,
    pub largest_priority: f64,
    pub counters: TableCounters,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub(crate) struct State {
    /// Grows with every write; 0 before the first.
    pub serial: u64,
    /// The incarnation that the counters belong to.
    pub incarnation: u64,
    /// The oldest valid chunk. Older ones may be partly overwritten.
    pub oldest: u64,
    /// The newest chunk that the rest of the state includes.
    pub newest: u64,
    /// Number of chunks between them that are known to be lost.
    pub lost: u64,
    pub counters: Counters,
    pub tables: [TableState; TABLES_MAX],
    pub checksum: u64,
}

impl State {
    /// Whether the state is intact and plausible: no number is so large that adding to it could overflow, and no future
    /// chunk counts as stored.
    pub fn is_valid(&self) -> bool {
        let totals: [u64; size_of::<Counters>() / 8] = bytemuck::cast(self.counters);
        let of_table = |table: &TableState| {
            let totals: [u64; size_of::<TableCounters>() / 8] = bytemuck::cast(table.counters);
            totals.into_iter().chain([table.next_number])
        };
        let numbers = [self.serial, self.oldest, self.newest].into_iter().chain(totals);
        let mut numbers = numbers.chain(self.tables.iter().flat_map(of_table));
        self.serial > 0
            && self.checksum == checksum(self)
            && numbers.all(|number| number < NUMBER_MAX)
            && self.oldest <= self.newest + 1
    }

    /// Sets the counters to 0 if they belong to another incarnation.
    pub fn of_incarnation(mut self, incarnation: u32) -> Self {
        if self.incarnation != u64::from(incarnation) {
            self.counters = Counters::default();
            self.tables.iter_mut().for_each(|table| table.counters = TableCounters::default());
        }
        self
    }

    /// The same state with another serial and a matching checksum.
    pub fn with_serial(self, serial: u64) -> Self {
        let mut state = Self { serial, ..self };
        state.checksum = checksum(&state);
        state
    }
}

const STATE: usize = size_of::<State>();
const COPY_BYTES: usize = 2048;

pub(crate) struct StatePage {
    memory: Memory,
    serial: u64,
}

impl StatePage {
    pub const BYTES: usize = 2 * COPY_BYTES;

    pub fn new(memory: Memory) -> Self {
        let mut page = Self { memory, serial: 0 };
        page.serial = page.read().map_or(0, |state| state.serial);
        page
    }

    /// The newest intact copy.
    pub fn read(&self) -> Option<State> {
        let copies = [0, COPY_BYTES].map(|at| *bytemuck::from_bytes::<State>(&self.memory[at..at + STATE]));
        copies.into_iter().filter(State::is_valid).max_by_key(|copy| copy.serial)
    }

    pub fn write(&mut self, state: State) {
        self.serial += 1;
        let state = state.with_serial(self.serial);
        let at = (self.serial % 2) as usize * COPY_BYTES;
        self.memory[at..at + STATE].copy_from_slice(bytemuck::bytes_of(&state));
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

fn checksum(state: &State) -> u64 {
    crc32c::crc32c(&bytemuck::bytes_of(state)[..STATE - 8]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_write_leaves_the_state_before_it() {
        let mut page = StatePage::new(Memory::anonymous(StatePage::BYTES).unwrap());
        assert_eq!(page.read(), None);
        for newest in 1..10 {
            page.write(State { newest, ..State::default() });
            assert_eq!(page.read().unwrap().newest, newest);
        }
        let newest = (page.serial % 2) as usize * COPY_BYTES;
        page.memory[newest + 20] ^= 1;
        assert_eq!(page.read().unwrap().newest, 8);
    }

    #[test]
    fn an_implausible_state_is_invalid() {
        let valid = |state: State, serial| state.with_serial(serial).is_valid();
        let state = State { oldest: 5, newest: 4, ..State::default() };
        assert!(valid(state, 1));
        assert!(!valid(state, 0) && !valid(state, u64::MAX));
        assert!(!valid(State { newest: 3, ..state }, 1));
        assert!(!valid(State { newest: NUMBER_MAX, ..state }, 1));
    }
}
