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
    pub next: usize,
    pub reward: f64,
    /// Whether `next` is the goal, which ends the episode.
    pub terminated: bool,
}

/// A world of numbered states with four actions each.
///
/// The goal is a state like any other, because a learner without a terminal mask bootstraps from its values. No action is
/// taken there: [`Grid::step`] stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    moves: Vec<[Move; ACTIONS.len()]>,
    start: usize,
    goal: usize,
}

impl Grid {
    /// Cells in a row with the goal after the last one: entering the goal has reward 1, every other step 0. North and south
    /// stay in place, and so does west in the first cell, which is the start. The goal's number is `cells`.
    ///
    /// # Panics
    /// If there is no cell.
    pub fn line(cells: usize) -> Self {
        assert!(cells > 0, "a line has at least one cell");
        let to = |state: usize| [state, state + 1, state, state.saturating_sub(1)];
        Self::new((0..cells).map(to), 0, cells, (0.0, 1.0))
    }

    /// The 5×5 sample maze of gym-maze (`maze-sample-5x5-v0`), which the paper's authors use: reward 1 at the goal and
    /// −0.1/25 for every other step. A step into a wall stays in place. State 5·row + column, counted from the top left,
    /// which is the start (0); the goal is at the bottom right (24), 14 steps away.
    pub fn maze() -> Self {
        const STEP_REWARD: f64 = -0.1 / (MAZE_SIDE * MAZE_SIDE) as f64;
        let cells = (0..MAZE_SIDE).flat_map(|row| (0..MAZE_SIDE).map(move |column| (row, column)));
        let goal = MAZE_SIDE * MAZE_SIDE - 1;
        Self::new(cells.map(maze_neighbours).take(goal), 0, goal, (STEP_REWARD, 1.0))
    }

    /// A world from the states that each state's actions lead to, in order, the goal being the last one.
    fn new(
        to: impl Iterator<Item = [usize; ACTIONS.len()]>,
        start: usize,
        goal: usize,
        (step_reward, goal_reward): (f64, f64),
    ) -> Self {
        let moved = |next: usize| {
            let terminated = next == goal;
            Move { next, reward: if terminated { goal_reward } else { step_reward }, terminated }
        };
        let at_goal = Move { next: goal, reward: 0.0, terminated: true };
        let moves = to.map(|states| states.map(moved)).chain([[at_goal; ACTIONS.len()]]).collect();
        Self { moves, start, goal }
    }

    /// Number of states, the goal included.
    pub fn states(&self) -> usize {
        self.moves.len()
    }

    /// The start state.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The goal state.
    pub fn goal(&self) -> usize {
        self.goal
    }

    /// The result of an action in a state.
    ///
    /// # Panics
    /// If there is no such state or action.
    pub fn step(&self, state: usize, action: usize) -> Move {
        self.moves[state][action]
    }

    /// The length of the shortest path from each state to the goal; `None` if the goal is unreachable.
    pub fn distances(&self) -> Vec<Option<u32>> {
        let mut distances = vec![None; self.states()];
        distances[self.goal] = Some(0);
        loop {
            let mut changed = false;
            for state in (0..self.states()).filter(|&state| state != self.goal) {
                let best = self.moves[state].iter().filter_map(|way| distances[way.next]).min();
                let best = best.map(|steps: u32| steps + 1);
                changed |= best != distances[state];
                distances[state] = best;
            }
            if !changed {
                return distances;
            }
        }
    }
}

/// Cells of the maze in each direction.
const MAZE_SIDE: usize = 5;

/// The maze as gym-maze draws it: a cell is two characters wide, `|` and `--` are walls.
const MAZE: [&str; 2 * MAZE_SIDE + 1] = [
    "+--+--+--+--+--+",
    "|S       |     |",
    "+--+  +  +--+  +",
    "|  |  |  |     |",
    "+  +  +  +  +  +",
    "|     |  |  |  |",
    "+--+--+  +  +  +",
    "|     |  |  |  |",
    "+  +  +  +  +  +",
    "|  |        |G |",
    "+--+--+--+--+--+",
];

/// Where each action leads from a cell of [`MAZE`].
fn maze_neighbours((row, column): (usize, usize)) -> [usize; ACTIONS.len()] {
    let is_wall = |line: usize, at: usize| matches!(MAZE[line].as_bytes()[at], b'|' | b'-');
    // A cell is at line 2·row + 1 and at characters 3·column + 1 and + 2; its walls are around it.
    let (line, at) = (2 * row + 1, 3 * column + 1);
    let walls = [is_wall(line - 1, at), is_wall(line, at + 2), is_wall(line + 1, at), is_wall(line, at - 1)];
    let state = MAZE_SIDE * row + column;
    let beyond = [
        state.wrapping_sub(MAZE_SIDE),
        state.wrapping_add(1),
        state.wrapping_add(MAZE_SIDE),
        state.wrapping_sub(1),
    ];
    std::array::from_fn(|action| if walls[action] { state } else { beyond[action] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leads_east() {
        let line = Grid::line(3);
        let moved = |next, reward, terminated| Move { next, reward, terminated };
        assert_eq!(line.step(0, EAST), moved(1, 0.0, false));
        assert_eq!(line.step(2, EAST), moved(3, 1.0, true));
        for action in [0, 2, 3] {
            assert_eq!(line.step(0, action), moved(0, 0.0, false), "{}", ACTIONS[action]);
        }
        assert_eq!(line.step(2, 3).next, 1);
        assert_eq!((line.states(), line.goal()), (4, 3));
        assert_eq!(line.distances(), [Some(3), Some(2), Some(1), Some(0)]);
    }

    #[test]
    fn the_maze_is_solved_in_fourteen_steps() {
        let maze = Grid::maze();
        assert_eq!((maze.states(), maze.start(), maze.goal()), (25, 0, 24));
        assert!(maze.distances().iter().all(Option::is_some));
        assert_eq!(maze.distances()[maze.start()], Some(14));
        let mut state = maze.start();
        for letter in "eessssennnesss".chars() {
            let Move { next, reward, terminated } = maze.step(state, "nesw".find(letter).unwrap());
            assert_ne!(next, state, "there is no wall on the shortest path");
            assert_eq!((reward, terminated), if next == 24 { (1.0, true) } else { (-0.004, false) });
            state = next;
        }
        assert_eq!(state, maze.goal());
    }

    #[test]
    fn walls_of_the_maze_are_as_drawn() {
        // Open directions of each cell, row by row, read off the drawing by hand.
        let open = [
            ["e", "esw", "sw", "e", "sw"],
            ["s", "ns", "ns", "es", "nsw"],
            ["ne", "nw", "ns", "ns", "ns"],
            ["es", "sw", "ns", "ns", "ns"],
            ["n", "ne", "new", "nw", "n"],
        ];
        let maze = Grid::maze();
        for state in 0..maze.goal() {
            let (row, column) = (state / 5, state % 5);
            let neighbours = [(row.wrapping_sub(1), column), (row, column + 1), (row + 1, column)]
                .into_iter()
                .chain([(row, column.wrapping_sub(1))]);
            for (action, (letter, (row_beyond, column_beyond))) in "nesw".chars().zip(neighbours).enumerate()
            {
                let is_open = open[row][column].contains(letter);
                let next = if is_open { 5 * row_beyond + column_beyond } else { state };
                assert_eq!(maze.step(state, action).next, next, "{letter} of row {row}, column {column}");
            }
        }
        let north_of_goal = maze.step(maze.goal() - 5, 2);
        assert_eq!(north_of_goal, Move { next: 24, reward: 1.0, terminated: true });
    }
}
