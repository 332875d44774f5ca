//! Which item is drawn next: Reverb's selectors, as one closed set.

use crate::options::{OptionsError, Sampler};
use crate::ring::reserve;
use crate::sum_tree::SumTree;

/// The largest weight of one item. Even 2³² of them add up to a finite sum.
pub(crate) const WEIGHT_MAX: f64 = 1e280;

/// A slot and its new weight, or `None` if its item is gone.
pub(crate) type Change = (u32, Option<f64>);

pub(crate) enum Selector {
    Proportional(SumTree),
    Uniform(DenseSet),
}

impl Selector {
    pub fn new(sampler: Sampler, capacity: usize) -> Result<Self, OptionsError> {
        Ok(match sampler {
            Sampler::Proportional => {
                reserve(SumTree::bytes_for(capacity))?;
                Selector::Proportional(SumTree::new(capacity))
            }
            Sampler::Uniform => {
                reserve(capacity.saturating_mul(2 * size_of::<u32>()))?;
                Selector::Uniform(DenseSet::new(capacity))
            }
        })
    }

    /// Applies changes in order, so the last one of a slot wins.
    pub fn apply(&mut self, changes: &[Change]) {
        match self {
            Selector::Proportional(tree) => {
                tree.set_many(changes.iter().map(|&(slot, weight)| (slot, weight.unwrap_or(0.0))));
            }
            Selector::Uniform(set) => {
                for &(slot, weight) in changes {
                    if weight.is_some() { set.insert(slot) } else { set.remove(slot) }
                }
            }
        }
    }

    /// What this table weighs beside others: the sum of weights, or the number of items.
    pub fn mass(&self) -> f64 {
        match self {
            Selector::Proportional(tree) => tree.total(),
            Selector::Uniform(set) => set.slots.len() as f64,
        }
    }

    /// The slot at a fraction of the mass from 0 to 1, and its exact probability. `None` without
    /// mass.
    pub fn draw(&self, fraction: f64) -> Option<(u32, f64)> {
        match self {
            Selector::Proportional(tree) => {
                let slot = tree.find(fraction * tree.total())?;
                Some((slot, tree.get(slot) / tree.total()))
            }
            Selector::Uniform(set) => {
                let count = set.slots.len();
                let index = ((fraction * count as f64) as usize).min(count.checked_sub(1)?);
                Some((set.slots[index], 1.0 / count as f64))
            }
        }
    }
}

/// A set of slots that can be indexed: removal moves the last one into the gap. The order depends
/// on history and decides what is drawn, so a save keeps it.
pub(crate) struct DenseSet {
    pub slots: Vec<u32>,
    /// Where each slot is in `slots`.
    positions: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl DenseSet {
    fn new(capacity: usize) -> Self {
        Self { slots: Vec::new(), positions: vec![ABSENT; capacity] }
    }

    pub fn contains(&self, slot: u32) -> bool {
        self.positions.get(slot as usize).is_some_and(|&position| position != ABSENT)
    }

    pub fn insert(&mut self, slot: u32) {
        if !self.contains(slot) {
            self.positions[slot as usize] = self.slots.len() as u32;
            self.slots.push(slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        if self.contains(slot) {
            let position = std::mem::replace(&mut self.positions[slot as usize], ABSENT);
            self.slots.swap_remove(position as usize);
            if let Some(&moved) = self.slots.get(position as usize) {
                self.positions[moved as usize] = position;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_dense_set_is_a_set(changes in prop::collection::vec((0u32..20, any::<bool>()), 0..200)) {
            let (mut set, mut model) = (DenseSet::new(20), BTreeSet::new());
            for (slot, insert) in changes {
                if insert {
                    set.insert(slot);
                    model.insert(slot);
                } else {
                    set.remove(slot);
                    model.remove(&slot);
                }
                let slots: BTreeSet<u32> = set.slots.iter().copied().collect();
                prop_assert_eq!(set.slots.len(), model.len());
                prop_assert_eq!(&slots, &model);
                prop_assert!((0..20).all(|slot| set.contains(slot) == model.contains(&slot)));
            }
        }
    }

    #[test]
    fn the_largest_weights_still_add_up() {
        assert!((WEIGHT_MAX * 2f64.powi(32)).is_finite());
    }

    #[test]
    fn both_ends_of_the_mass_are_items() {
        for sampler in [Sampler::Uniform, Sampler::Proportional] {
            let mut selector = Selector::new(sampler, 8).unwrap();
            assert_eq!(selector.draw(0.5), None);
            selector.apply(&[(2, Some(1.0)), (5, Some(1.0)), (7, Some(1.0)), (7, None)]);
            assert_eq!(selector.mass(), 2.0);
            assert_eq!(selector.draw(0.0), Some((2, 0.5)));
            assert_eq!(selector.draw(1.0), Some((5, 0.5)));
        }
    }
}
