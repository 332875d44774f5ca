//! A shard as rate control sees it: counters, and an allowance.

use replay::Allowance;

use super::Way;
use crate::shard_counts::ShardCounts;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Up,
    Cut,
    Paused,
    Dead { keeps_items: bool },
}

#[derive(Clone, Debug)]
pub struct Shard {
    pub state: State,
    pub incarnation: u32,
    pub inserts: u64,
    pub agent_steps: u64,
    pub items: u64,
    /// Inserts of this incarnation. None are allowed before the first word of a learner.
    allowance: u64,
    newest_learner: u32,
}

impl Shard {
    pub fn new(incarnation: u32) -> Self {
        Self {
            state: State::Up,
            incarnation,
            inserts: 0,
            agent_steps: 0,
            items: 0,
            allowance: 0,
            newest_learner: 0,
        }
    }

    pub fn stop(&mut self, way: Way) {
        self.state = match (way, self.state) {
            (Way::Kill, _) => State::Dead { keeps_items: false },
            (Way::Restore, State::Dead { keeps_items }) => State::Dead { keeps_items },
            (Way::Restore, _) => State::Dead { keeps_items: true },
            (_, dead @ State::Dead { .. }) => dead,
            (Way::Pause, _) => State::Paused,
            (Way::Cut, State::Paused) => State::Paused,
            (Way::Cut, _) => State::Cut,
        };
    }

    pub fn start(&mut self) {
        if let State::Dead { keeps_items } = self.state {
            let items = if keeps_items { self.items } else { 0 };
            *self = Self { items, ..Self::new(self.incarnation + 1) };
        }
        self.state = State::Up;
    }

    /// A chunk is taken whole if there is room for one item.
    pub fn has_room(&self) -> bool {
        self.inserts < self.allowance
    }

    pub fn takes_chunks(&self) -> bool {
        matches!(self.state, State::Up | State::Cut) && self.has_room()
    }

    pub fn insert(&mut self, items: u64, agent_steps: u64, capacity: u64) {
        self.inserts += items;
        self.agent_steps += agent_steps;
        self.items = (self.items + items).min(capacity);
    }

    /// `None` if it can't be reached. A learner older than the newest known is refused, to which it will not listen.
    pub fn answer(&mut self, learner: u32, allowance: Option<Allowance>) -> Option<ShardCounts> {
        if self.state != State::Up || learner < self.newest_learner {
            return None;
        }
        self.newest_learner = learner;
        if let Some(allowance) = allowance.filter(|allowance| allowance.incarnation == self.incarnation) {
            self.allowance = allowance.inserts;
        }
        Some(ShardCounts {
            incarnation: self.incarnation,
            inserts: self.inserts,
            agent_steps: self.agent_steps,
            items: self.items,
            mass: self.items as f64,
        })
    }
}
