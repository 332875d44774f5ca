//! Everything that can be seen of a store's items, and a way to know that it is what the writers sent.

use std::collections::BTreeMap;

use super::writer::Played;
use crate::{ItemKey, LaneKey, Store, Taken};

#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub lane: LaneKey,
    pub first: u64,
    pub length: usize,
    pub lead: usize,
    /// Indices of the stack's frames.
    state: Vec<usize>,
    pub frames: Vec<(Vec<u8>, bool)>,
    steps: Vec<Taken>,
    pub priority: f64,
    pub times_sampled: u32,
}

impl Item {
    /// The same without what changes.
    pub fn what(&self) -> Item {
        Item { priority: 0.0, times_sampled: 0, ..self.clone() }
    }

    /// Number of the step that its frames begin with.
    pub fn from(&self) -> u64 {
        self.first + self.length as u64 + 1 - self.frames.len() as u64
    }

    /// Panics unless it is made of what its lane's writer played.
    pub fn check(&self, played: &[Played]) {
        let played = &played[self.from() as usize..];
        let frames = played.iter().map(|played| (played.frame.clone(), played.step.key_frame));
        assert!(self.frames.iter().cloned().eq(frames.take(self.frames.len())));
        assert!(self.frames[0].1);
        let before = self.frames.len() - self.length - 1;
        let taken = played[before..].iter().map(|played| played.step.taken);
        assert!(self.steps.iter().copied().map(Some).eq(taken.take(self.length)));
        let stack = &played[self.lead + 1..=before];
        assert!(
            !stack.iter().any(|played| played.step.starts_episode),
            "a stack reaches into the episode before"
        );
    }
}

/// The items of all tables, by table and number.
pub fn contents(store: &Store) -> BTreeMap<(usize, u64), Item> {
    let mut all = BTreeMap::new();
    for table in 0..store.tables().len() {
        let keys = store.newest(table, usize::MAX);
        assert_eq!(keys.len(), store.tables()[table].len());
        for key in keys {
            let twice = all.insert((table, key.generation), item(store, table, key));
            assert_eq!(twice, None);
        }
    }
    all
}

fn item(store: &Store, table: usize, key: ItemKey) -> Item {
    let view = store.item(table, key).unwrap();
    let frames: Vec<_> = view.frames().map(|(frame, alone)| (frame.to_vec(), alone)).collect();
    let steps: Vec<Taken> = view.steps().collect();
    assert_eq!(steps.len(), view.length());
    assert!(view.next_state().all(|at| view.lead() + at < frames.len()));
    Item {
        lane: view.lane(),
        first: view.first_step(),
        length: view.length(),
        lead: view.lead(),
        state: view.state().collect(),
        frames,
        steps,
        priority: view.priority().get(),
        times_sampled: view.times_sampled(),
    }
}
