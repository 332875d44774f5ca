//! A line of cells, its 4N experiences, and who picks the next to be replayed.

use envs::grid::{ACTIONS, EAST, Grid, Move};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use value::{experience_value, hard, target};

/// γ.
const DISCOUNT: f64 = 0.99;

/// Who picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// Any experience.
    Random,
    /// One with the largest |TD|.
    Td,
    /// One with the largest expected value of backup.
    Evb,
}

impl Oracle {
    /// All, the slowest first.
    pub const ALL: [Self; 3] = [Self::Random, Self::Td, Self::Evb];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Oracle::Random => "random",
            Oracle::Td => "td",
            Oracle::Evb => "evb",
        }
    }

    /// What the paper says of it.
    pub fn claim(self) -> &'static str {
        match self {
            Oracle::Random => "random replay takes about 4N² replays",
            Oracle::Td => "replay of the largest |TD| takes about 4N",
            Oracle::Evb => "replay of the largest EVB takes N, the fewest possible",
        }
    }
}

/// A line and what is known of it.
#[derive(Clone, Debug)]
pub struct World {
    grid: Grid,
    q: Vec<[f64; ACTIONS.len()]>,
}

impl World {
    /// A line of so many cells of which nothing is known.
    pub fn new(cells: usize) -> Self {
        Self { grid: Grid::line(cells), q: vec![[0.0; ACTIONS.len()]; cells] }
    }

    /// How many experiences the oracle replays until the policy is optimal.
    pub fn replays_until_optimal(&mut self, oracle: Oracle, rng: &mut ChaCha8Rng) -> u64 {
        let mut replays = 0;
        let mut best = Vec::new();
        while !self.is_optimal() {
            let (cell, action) = match oracle {
                Oracle::Random => (rng.random_range(0..self.q.len()), rng.random_range(0..ACTIONS.len())),
                Oracle::Td | Oracle::Evb => {
                    self.largest(|world, cell, action| world.worth(oracle, cell, action), &mut best);
                    best[rng.random_range(0..best.len())]
                }
            };
            self.replay(cell, action);
            replays += 1;
        }
        replays
    }

    /// One whole backup.
    pub fn replay(&mut self, cell: usize, action: usize) {
        self.q[cell][action] = self.target(cell, action);
    }

    /// What an oracle goes by.
    pub fn worth(&self, oracle: Oracle, cell: usize, action: usize) -> f64 {
        let td = target::td_error(self.q[cell][action], self.target(cell, action));
        match oracle {
            Oracle::Random => 1.0,
            Oracle::Td => td.abs(),
            Oracle::Evb => experience_value::hard(&self.q[cell], action, td).evb,
        }
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.q.len()
    }

    fn target(&self, cell: usize, action: usize) -> f64 {
        let Move { next, reward, terminated } = self.grid.step(cell, action);
        target::n_step(&[reward], DISCOUNT, (!terminated).then(|| hard::value(&self.q[next])))
    }

    fn is_optimal(&self) -> bool {
        let only_east = |q: &[f64; ACTIONS.len()]| {
            q.iter().enumerate().all(|(action, &value)| action == EAST || value < q[EAST])
        };
        self.q.iter().all(only_east)
    }

    /// All experiences of the largest worth.
    fn largest(&self, worth: impl Fn(&Self, usize, usize) -> f64, best: &mut Vec<(usize, usize)>) {
        let mut most = f64::NEG_INFINITY;
        best.clear();
        for cell in 0..self.q.len() {
            for action in 0..ACTIONS.len() {
                let worth = worth(self, cell, action);
                if worth > most {
                    most = worth;
                    best.clear();
                }
                if worth == most {
                    best.push((cell, action));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evb_picks_the_one_experience_that_changes_a_value() {
        let mut world = World::new(4);
        for cell in (0..4).rev() {
            let mut best = Vec::new();
            world.largest(|world, cell, action| world.worth(Oracle::Evb, cell, action), &mut best);
            assert_eq!(best, [(cell, EAST)]);
            assert!(!world.is_optimal());
            world.replay(cell, EAST);
        }
        assert!(world.is_optimal());
    }

    #[test]
    fn a_level_of_td_is_tied_to_the_last_bit() {
        let mut world = World::new(6);
        (3..6).rev().for_each(|cell| world.replay(cell, EAST));
        // North and south of cell 5 and of cell 4 have targets of levels 1 and 2: replay what is larger first.
        for (cell, action) in [(5, 0), (5, 2)] {
            world.replay(cell, action);
        }
        let mut best = Vec::new();
        world.largest(|world, cell, action| world.worth(Oracle::Td, cell, action), &mut best);
        assert_eq!(best, [(4, 0), (4, 2), (5, 3)]);
    }
}
