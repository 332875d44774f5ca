//! Tabular worlds: the paper's linear grid-world and its 5×5 maze.
//!
//! A world is a deterministic transition table without state, so an experiment can enumerate all experiences, and values are
//! f64 throughout. Therefore a grid does not implement [`Environment`](crate::Environment).

/// Actions in every grid, in this order.
pub const ACTIONS: [&str; 4] = ["north", "east", "south", "west"];

/// East: the direction of the goal in a linear grid-world.
pub const EAST: usize = 1;

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The next cell; `None` at the goal, which ends the episode.
    pub next: Option<usize>,
    pub reward: f64,
}

/// A world of cells with four actions each.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    moves: Vec<[Move; ACTIONS.len()]>,
    places: Vec<(usize, usize)>,
    start: usize,
    goal: (usize, usize),
}

impl Grid {
    /// Cells in a row with the goal after the last one: entering the goal has reward 1, every other step 0. North and south
    /// stay in place, and so does west in the first cell, which is the start.
    ///
    /// # Panics
    /// If there is no cell.
    pub fn line(cells: usize) -> Self {
        assert!(cells > 0, "a line has at least one cell");
        let stay = |cell: usize| Move { next: Some(cell), reward: 0.0 };
        let moves = |cell: usize| {
            let east = if cell + 1 == cells { Move { next: None, reward: 1.0 } } else { stay(cell + 1) };
            [stay(cell), east, stay(cell), stay(cell.saturating_sub(1))]
        };
        let places = (0..cells).map(|cell| (0, cell)).collect();
        Self { moves: (0..cells).map(moves).collect(), places, start: 0, goal: (0, cells) }
    }

    /// The paper's maze: 5×5 with walls, reward −0.004 per step and 1 at the goal. The paper does not show its plan; ours is
    /// `MAZE` below, whose shortest path has 8 steps.
    pub fn maze() -> Self {
        Self::plan(MAZE, -0.004, 1.0)
    }

    /// A world from a plan: `S` is the start, `G` the goal, `#` a wall, anything else a cell. Moving into a wall or the border
    /// stays in place and costs a step.
    fn plan(plan: &[&str], step: f64, at_goal: f64) -> Self {
        let at =
            |row: usize, column: usize| plan.get(row).and_then(|line| line.as_bytes().get(column)).copied();
        let all = || (0..plan.len()).flat_map(|row| (0..plan[row].len()).map(move |column| (row, column)));
        let places: Vec<_> =
            all().filter(|&(row, column)| !matches!(at(row, column), Some(b'#' | b'G'))).collect();
        let find =
            |mark: u8| all().find(|&(row, column)| at(row, column) == Some(mark)).expect("a plan has both");
        let moves = places.iter().enumerate().map(|(cell, &(row, column))| {
            let ways = [
                (row.wrapping_sub(1), column),
                (row, column + 1),
                (row + 1, column),
                (row, column.wrapping_sub(1)),
            ];
            ways.map(|(row, column)| match at(row, column) {
                Some(b'G') => Move { next: None, reward: at_goal },
                Some(b'#') | None => Move { next: Some(cell), reward: step },
                Some(_) => {
                    Move { next: places.iter().position(|&place| place == (row, column)), reward: step }
                }
            })
        });
        let moves = moves.collect();
        let start = places.iter().position(|&place| place == find(b'S')).expect("the start is a cell");
        Self { moves, start, goal: find(b'G'), places }
    }

    /// Number of cells, without the goal.
    pub fn cells(&self) -> usize {
        self.moves.len()
    }

    /// The start cell.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The result of an action in a cell.
    ///
    /// # Panics
    /// If there is no such cell or action.
    pub fn step(&self, cell: usize, action: usize) -> Move {
        self.moves[cell][action]
    }

    /// Row and column of a cell, for drawing.
    pub fn place(&self, cell: usize) -> (usize, usize) {
        self.places[cell]
    }

    /// Row and column of the goal.
    pub fn goal(&self) -> (usize, usize) {
        self.goal
    }

    /// The length of the shortest path from each cell to the goal; `None` if the goal is unreachable.
    pub fn distances(&self) -> Vec<Option<u32>> {
        let mut distances = vec![None; self.cells()];
        loop {
            let mut changed = false;
            for cell in 0..self.cells() {
                let ways = self.moves[cell].iter().filter_map(|way| match way.next {
                    None => Some(1),
                    Some(next) => distances[next].map(|steps: u32| steps + 1),
                });
                let best = ways.min();
                changed |= best != distances[cell];
                distances[cell] = best;
            }
            if !changed {
                return distances;
            }
        }
    }
}

/// The plan of the maze.
const MAZE: &[&str] = &[
    "S.#..", //
    "#...#", "..#..", ".##.#", "....G",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leads_east() {
        let line = Grid::line(3);
        assert_eq!(line.step(0, EAST), Move { next: Some(1), reward: 0.0 });
        assert_eq!(line.step(2, EAST), Move { next: None, reward: 1.0 });
        for action in [0, 2, 3] {
            assert_eq!(line.step(0, action), Move { next: Some(0), reward: 0.0 }, "{}", ACTIONS[action]);
        }
        assert_eq!(line.step(2, 3).next, Some(1));
        assert_eq!(line.distances(), [Some(3), Some(2), Some(1)]);
    }

    #[test]
    fn the_maze_has_one_goal_that_every_cell_reaches() {
        let maze = Grid::maze();
        assert!(maze.distances().iter().all(Option::is_some));
        assert_eq!(maze.distances()[maze.start()], Some(8));
        let goals = (0..maze.cells()).flat_map(|cell| (0..4).map(move |action| (cell, action)));
        let goals: Vec<_> = goals.filter(|&(cell, action)| maze.step(cell, action).next.is_none()).collect();
        assert_eq!(goals.len(), 1, "{goals:?}");
        assert_eq!(maze.step(maze.start(), 0), Move { next: Some(maze.start()), reward: -0.004 });
    }
}
