//! What steps without items cost.
//!
//! The learner grants inserts: each item is one. Steps take room in the ring too. If only items were counted, a writer
//! that sends none could displace the whole ring with one granted insert. So an item pays for as many steps as the
//! longest item has states, and steps that no item pays for are charged as inserts, at the same price.
//!
//! A writer that sends an item for each step, or for each window of steps, pays for all of them: only the steps of its
//! lanes' open windows are unpaid for a while, and the last ones of an actor that dies stay so. These are within
//! [`FREE_ITEMS`], and the items of any lane pay for them later. So an honest run has no surcharge, and its samples per
//! insert are those of its items.

/// Steps that so many items would pay for are free. Covers the open windows of some hundred lanes.
const FREE_ITEMS: u64 = 256;

/// The steps that no item has paid for yet. Not stored: a restart of the shard forgives them.
#[derive(Debug, Default)]
pub(crate) struct UnpaidSteps(u64);

impl UnpaidSteps {
    /// Counts a stored chunk. Returns how many inserts to charge beside its items.
    pub fn charge(&mut self, steps: u64, items: u64, max_length: u8) -> u64 {
        let steps_per_insert = u64::from(max_length) + 1;
        self.0 = (self.0 + steps).saturating_sub(items * steps_per_insert);
        let charged = self.0.saturating_sub(FREE_ITEMS * steps_per_insert) / steps_per_insert;
        self.0 -= charged * steps_per_insert;
        charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_of_an_item_per_step_or_per_window_are_never_charged() {
        for (max_length, steps, items) in [(1, 8, 8), (1, 2, 1), (3, 1, 1), (80, 80, 1), (255, 256, 1)] {
            let mut unpaid = UnpaidSteps::default();
            // Lanes at the beginning of their episodes.
            let begun: u64 = (0..256).map(|_| unpaid.charge(u64::from(max_length), 0, max_length)).sum();
            let later: u64 = (0..10_000).map(|_| unpaid.charge(steps, items, max_length)).sum();
            assert_eq!((begun, later), (0, 0), "{max_length} {steps} {items}");
        }
    }

    #[test]
    fn steps_without_items_are_charged_at_the_price_of_items() {
        for max_length in [1, 3, 255] {
            let mut unpaid = UnpaidSteps::default();
            let steps = 1_000_000;
            let charged: u64 = (0..1000).map(|_| unpaid.charge(steps / 1000, 0, max_length)).sum();
            let price = u64::from(max_length) + 1;
            assert_eq!(charged, (steps / price) - FREE_ITEMS, "{max_length}");
        }
    }
}
