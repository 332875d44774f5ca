//! Breakout: a ball breaks bricks, and a paddle keeps it on the board (`docs/minatar-breakout.md`).

use serde::{Deserialize, Serialize};

use super::board::{Board, LAST, SIDE, is_inside};
use super::draws::Draws;
use super::{Action, Info, Played, Rules};

/// The rows that have bricks at the start.
const BRICK_ROWS: std::ops::RangeInclusive<i8> = 1..=3;
/// A bit for each brick, row by row.
const ALL_BRICKS: u32 = (1 << 30) - 1;
const PADDLE_START: i8 = 4;

/// Channels of an observation.
const PADDLE: usize = 0;
const BALL: usize = 1;
const TRAIL: usize = 2;
const BRICKS: usize = 3;

/// Row and column, from the top left.
type Cell = (i8, i8);

/// The state of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Breakout {
    paddle: i8,
    ball: Cell,
    /// Rows and columns that the ball moves in a step, each 1 or −1.
    direction: Cell,
    /// Where the ball was before the latest step.
    trail: Cell,
    bricks: u32,
    /// The latest step broke a brick, or passed through one since: the next brick is not broken.
    latch: bool,
}

/// The bit of the brick at a cell; 0 where there never is one.
fn brick((row, column): Cell) -> u32 {
    if BRICK_ROWS.contains(&row) { 1 << ((row - BRICK_ROWS.start()) * SIDE as i8 + column) } else { 0 }
}

impl Rules for Breakout {
    const INFO: Info = Info {
        name: "minatar_breakout",
        aliases: &["breakout_minatar"],
        display_name: "MinAtar Breakout",
        minimal: &[Action::Noop, Action::Left, Action::Right],
        colours: &[[80, 160, 240], [240, 240, 240], [90, 90, 110], [200, 80, 60]],
    };

    fn new() -> Self {
        Self {
            paddle: PADDLE_START,
            ball: (0, 0),
            direction: (1, 1),
            trail: (0, 0),
            bricks: ALL_BRICKS,
            latch: false,
        }
    }

    fn reset(&mut self, draws: &mut dyn Draws) {
        let from_left = draws.is_zero_of_two();
        let ball = (*BRICK_ROWS.end(), if from_left { 0 } else { LAST });
        let direction = (1, if from_left { 1 } else { -1 });
        *self = Self { ball, direction, trail: ball, ..Self::new() };
    }

    /// Breakout has no difficulty ramp.
    fn step(&mut self, action: Action, _ramping: bool, _draws: &mut dyn Draws) -> Played {
        // 1 and 2: paddle, trail.
        self.paddle = (self.paddle + action.columns()).clamp(0, LAST);
        self.trail = self.ball;
        // 3 and 4: where the ball would go, and side walls.
        let (row, column) = self.ball;
        let (mut next_row, mut next_column) = (row + self.direction.0, column + self.direction.1);
        if !(0..=LAST).contains(&next_column) {
            next_column = next_column.clamp(0, LAST);
            self.direction.1 = -self.direction.1;
        }
        // 5: the first thing that the ball meets there.
        let (mut broken, mut missed) = (false, false);
        let hit = if next_row < 0 { 0 } else { brick((next_row, next_column)) & self.bricks };
        if next_row < 0 {
            next_row = 0;
            self.direction.0 = 1;
            self.latch = false;
        } else if hit != 0 {
            // A brick that is met right after another one was broken is passed through.
            if !self.latch {
                broken = true;
                self.latch = true;
                self.bricks &= !hit;
                next_row = row;
                self.direction.0 = -self.direction.0;
            }
        } else if next_row == LAST {
            if self.bricks == 0 {
                self.bricks = ALL_BRICKS;
            }
            if self.paddle == column || self.paddle == next_column {
                // Met at its new column only, the ball also turns sideways.
                if self.paddle != column {
                    self.direction.1 = -self.direction.1;
                }
                self.direction.0 = -1;
                next_row = LAST - 1;
            } else {
                missed = true;
            }
        } else {
            self.latch = false;
        }
        // 6: the move.
        self.ball = (next_row, next_column);
        Played { reward: f64::from(u8::from(broken)), terminated: missed }
    }

    fn show(&self, board: &mut Board<'_>) {
        board.show(PADDLE, LAST, self.paddle);
        board.show(BALL, self.ball.0, self.ball.1);
        board.show(TRAIL, self.trail.0, self.trail.1);
        let cells = BRICK_ROWS.flat_map(|row| (0..=LAST).map(move |column| (row, column)));
        let left = cells.filter(|&cell| self.bricks & brick(cell) != 0);
        left.for_each(|(row, column)| board.show(BRICKS, row, column));
    }

    fn is_possible(&self, ended: bool) -> bool {
        let on_board = |(row, column): Cell| is_inside(row) && is_inside(column);
        let turns = |step: i8| step.abs() == 1;
        on_board((LAST, self.paddle))
            && on_board(self.ball)
            && on_board(self.trail)
            // A ball in the last row has been missed.
            && (ended || self.ball.0 < LAST)
            && turns(self.direction.0)
            && turns(self.direction.1)
            && self.bricks <= ALL_BRICKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_state_is_recognized() {
        let state = || Breakout { ball: (3, 0), ..Breakout::new() };
        assert!(state().is_possible(false));
        let missed = || Breakout { ball: (9, 0), ..state() };
        assert!(missed().is_possible(true) && !missed().is_possible(false));
        let impossible = [
            Breakout { paddle: -1, ..state() },
            Breakout { ball: (10, 0), ..state() },
            Breakout { trail: (0, -1), ..state() },
            Breakout { direction: (0, 1), ..state() },
            Breakout { bricks: u32::MAX, ..state() },
        ];
        assert!(impossible.iter().all(|state| !state.is_possible(true)));
    }
}
