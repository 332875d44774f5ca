//! Everything that can be seen of a store's items.

use std::collections::BTreeMap;

use crate::{ItemKey, KEY_DISTANCE_MAX, LaneKey, Store, Taken};

/// Everything that can be seen of an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub lane: LaneKey,
    /// Number of its first step.
    pub first: u64,
    /// Steps that it spans.
    pub length: usize,
    /// Frames before those of its state.
    pub lead: usize,
    /// Indices of the frames of its state.
    pub state: Vec<usize>,
    /// Packed frames, and whether each is a key frame.
    pub frames: Vec<(Vec<u8>, bool)>,
    pub steps: Vec<Taken>,
    pub priority: f64,
    /// Draws of it.
    pub times_sampled: u32,
}

/// The items of all tables by table and number.
///
/// # Panics
///
/// If anything in the store does not fit together.
pub fn contents(store: &Store) -> BTreeMap<(usize, u64), Item> {
    let mut all = BTreeMap::new();
    assert!(store.bytes_used() <= store.options().bytes_max);
    for (index, table) in store.tables().iter().enumerate() {
        let keys = store.inspect(index, usize::MAX).top;
        assert_eq!(keys.len(), table.len());
        assert!(keys.len() <= table.options().capacity);
        assert!(table.mass().is_finite() && table.largest_priority().get().is_finite());
        for key in keys {
            let before = all.insert((index, key.generation), item(store, index, key));
            assert_eq!(before, None, "a number is given once");
        }
    }
    all
}

/// An item, with all that a learner relies on.
fn item(store: &Store, table: usize, key: ItemKey) -> Item {
    let view = store.item(table, key).expect("it was just listed");
    let frames: Vec<_> = view.frames().map(|(frame, alone)| (frame.to_vec(), alone)).collect();
    let steps: Vec<Taken> = view.steps().collect();
    let state: Vec<usize> = view.state().collect();
    let (lead, length) = (view.lead(), view.length());
    assert!(lead <= KEY_DISTANCE_MAX.into(), "{lead} frames lead to an item");
    assert!(frames[0].1, "an item begins with a key frame");
    assert!(frames.iter().all(|(frame, _)| !frame.is_empty()));
    let pieces = view.frame_pieces().flatten();
    assert!(pieces.eq(frames.iter().flat_map(|(frame, _)| frame)), "pieces are the same frames");
    let newest = state.last().expect("a state has frames");
    assert!((1..=store.options().stack).contains(&(newest + 1)));
    assert_eq!(frames.len(), lead + newest + 1 + length);
    assert!(view.state().chain(view.next_state()).all(|at| lead + at < frames.len()));
    assert_eq!(steps.len(), length);
    assert!(steps.iter().all(|step| step.reward.is_finite() && step.log_probability.is_finite()));
    let (lane, first, priority) = (view.lane(), view.first_step(), view.priority().get());
    let (mass, probability) = (store.tables()[table].mass(), store.tables()[table].probability(key.slot));
    // Where all priorities are 0 nothing can be drawn, and a share of that is NaN.
    let has_share = (0.0..=1.0 + 1e-9).contains(&probability);
    assert!(has_share || (mass == 0.0 && probability.is_nan()), "{probability} of a mass of {mass}");
    Item { lane, first, length, lead, state, frames, steps, priority, times_sampled: view.times_sampled() }
}
