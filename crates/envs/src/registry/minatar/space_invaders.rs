//! Space Invaders: a cannon shoots at a block of aliens that comes down (`docs/minatar-space-invaders.md`).

use serde::{Deserialize, Serialize};

use super::board::{Board, LAST, SIDE, is_inside};
use super::draws::Draws;
use super::{Action, Info, Played, Rules};

/// Cells of the board, a bit for each, row by row.
type Cells = u128;

const ROW: Cells = (1 << SIDE) - 1;
const BOARD: Cells = (1 << (SIDE * SIDE)) - 1;
const BOTTOM_ROW: Cells = ROW << (SIDE * (SIDE - 1));
const FIRST_COLUMN: Cells = BOARD / ROW;
const LAST_COLUMN: Cells = FIRST_COLUMN << (SIDE - 1);
/// Rows 0 to 3, columns 2 to 7.
const WAVE: Cells = 0b00_1111_1100 * (1 + (1 << SIDE) + (1 << (2 * SIDE)) + (1 << (3 * SIDE)));

const START: i8 = 5;
const INTERVAL: u8 = 12;
/// The shortest interval that difficulty ramping leads to.
const INTERVAL_MIN: u8 = 6;
const SHOT_PERIOD: u8 = 5;
const ALIEN_SHOT_PERIOD: u8 = 10;

/// Channels of an observation.
const CANNON: usize = 0;
const ALIENS: usize = 1;
const TO_LEFT: usize = 2;
const TO_RIGHT: usize = 3;
const BULLETS: usize = 4;
const ALIEN_BULLETS: usize = 5;

fn cell(row: i8, column: i8) -> Cells {
    1 << (row as usize * SIDE + column as usize)
}

/// The state of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SpaceInvaders {
    /// The column of the cannon.
    column: i8,
    aliens: Cells,
    bullets: Cells,
    alien_bullets: Cells,
    to_right: bool,
    /// The longest time between two moves of the aliens.
    interval: u8,
    alien_timer: u8,
    alien_shot_timer: u8,
    shot_timer: u8,
}

impl Rules for SpaceInvaders {
    const INFO: Info = Info {
        name: "minatar_space_invaders",
        aliases: &["space_invaders_minatar"],
        display_name: "MinAtar Space Invaders",
        minimal: &[Action::Noop, Action::Left, Action::Right, Action::Fire],
        colours: &[
            [80, 160, 240],
            [120, 190, 90],
            [100, 160, 75],
            [140, 220, 105],
            [240, 240, 240],
            [230, 120, 60],
        ],
    };

    fn new() -> Self {
        Self {
            column: START,
            aliens: WAVE,
            bullets: 0,
            alien_bullets: 0,
            to_right: false,
            interval: INTERVAL,
            alien_timer: INTERVAL,
            alien_shot_timer: ALIEN_SHOT_PERIOD,
            shot_timer: 0,
        }
    }

    fn reset(&mut self, _draws: &mut dyn Draws) {
        *self = Self::new();
    }

    fn step(&mut self, action: Action, ramping: bool, _draws: &mut dyn Draws) -> Played {
        let mut terminated = false;
        // 1: cannon.
        if action == Action::Fire && self.shot_timer == 0 {
            self.bullets |= self.cannon();
            self.shot_timer = SHOT_PERIOD;
        }
        self.column = (self.column + action.columns()).clamp(0, LAST);
        // 2 and 3: bullets.
        self.bullets >>= SIDE;
        self.alien_bullets = (self.alien_bullets << SIDE) & BOARD;
        terminated |= self.alien_bullets & self.cannon() != 0;
        // 4 and 5: aliens.
        terminated |= self.aliens & self.cannon() != 0;
        if self.alien_timer == 0 {
            self.alien_timer = self.interval.min(self.aliens.count_ones() as u8);
            terminated |= self.move_aliens();
        }
        // 6: alien shot.
        if self.alien_shot_timer == 0 {
            self.alien_shot_timer = ALIEN_SHOT_PERIOD;
            self.alien_bullets |= self.shooter();
        }
        // 7: kills.
        let kills = self.aliens & self.bullets;
        self.aliens &= !kills;
        self.bullets &= !kills;
        // 8: timers.
        self.shot_timer = self.shot_timer.saturating_sub(1);
        self.alien_timer -= 1;
        self.alien_shot_timer -= 1;
        // 9: new wave.
        if self.aliens == 0 {
            if ramping && self.interval > INTERVAL_MIN {
                self.interval -= 1;
            }
            self.aliens = WAVE;
        }
        Played { reward: f64::from(kills.count_ones()), terminated }
    }

    fn show(&self, board: &mut Board<'_>) {
        board.show(CANNON, LAST, self.column);
        let direction = if self.to_right { TO_RIGHT } else { TO_LEFT };
        let channels = [
            (ALIENS, self.aliens),
            (direction, self.aliens),
            (BULLETS, self.bullets),
            (ALIEN_BULLETS, self.alien_bullets),
        ];
        for (channel, cells) in channels {
            let all = (0..=LAST).flat_map(|row| (0..=LAST).map(move |column| (row, column)));
            let present = all.filter(|&(row, column)| cells & cell(row, column) != 0);
            present.for_each(|(row, column)| board.show(channel, row, column));
        }
    }

    fn is_possible(&self, _ended: bool) -> bool {
        is_inside(self.column)
            && [self.aliens, self.bullets, self.alien_bullets].iter().all(|cells| cells & !BOARD == 0)
            && self.aliens != 0
            && (INTERVAL_MIN..=INTERVAL).contains(&self.interval)
            && self.alien_timer <= INTERVAL
            && self.alien_shot_timer <= ALIEN_SHOT_PERIOD
            && self.shot_timer <= SHOT_PERIOD
    }
}

impl SpaceInvaders {
    fn cannon(&self) -> Cells {
        cell(LAST, self.column)
    }

    /// Moves the aliens sideways, or down at a wall. Whether that ends the episode.
    fn move_aliens(&mut self) -> bool {
        let wall = if self.to_right { LAST_COLUMN } else { FIRST_COLUMN };
        let mut landed = false;
        if self.aliens & wall != 0 {
            self.to_right = !self.to_right;
            landed = self.aliens & BOTTOM_ROW != 0;
            let wrapped = self.aliens >> (SIDE * (SIDE - 1));
            self.aliens = (self.aliens << SIDE) & BOARD | wrapped;
        } else if self.to_right {
            self.aliens <<= 1;
        } else {
            self.aliens >>= 1;
        }
        landed || self.aliens & self.cannon() != 0
    }

    /// The cell of the alien that shoots: the lowest of the column nearest to the cannon, the left one of two.
    fn shooter(&self) -> Cells {
        let in_column = |column| self.aliens & (FIRST_COLUMN << column);
        let occupied = (0..=LAST).filter(|&column| in_column(column) != 0);
        let nearest = occupied.min_by_key(|column| (column - self.column).abs());
        nearest.map_or(0, |column| 1 << in_column(column).ilog2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masks_are_rows_and_columns_of_the_board() {
        let all = |rows: std::ops::Range<i8>, columns: std::ops::Range<i8>| {
            rows.flat_map(|row| columns.clone().map(move |column| cell(row, column))).sum::<Cells>()
        };
        assert_eq!(BOARD, all(0..10, 0..10));
        assert_eq!(BOTTOM_ROW, all(9..10, 0..10));
        assert_eq!((FIRST_COLUMN, LAST_COLUMN), (all(0..10, 0..1), all(0..10, 9..10)));
        assert_eq!(WAVE, all(0..4, 2..8));
    }

    #[test]
    fn the_lowest_alien_of_the_nearest_column_shoots() {
        let aliens = cell(0, 3) | cell(4, 3) | cell(2, 7) | cell(6, 9);
        let from = |column| SpaceInvaders { column, aliens, ..SpaceInvaders::new() }.shooter();
        assert_eq!(from(4), cell(4, 3));
        assert_eq!(from(5), cell(4, 3), "the left one of two");
        assert_eq!(from(8), cell(2, 7), "the left one of two");
        assert_eq!(from(9), cell(6, 9));
    }

    #[test]
    fn an_impossible_state_is_recognized() {
        let state = SpaceInvaders::new;
        assert!(state().is_possible(false));
        let impossible = [
            SpaceInvaders { column: 10, ..state() },
            SpaceInvaders { aliens: 0, ..state() },
            SpaceInvaders { aliens: BOARD + 1, ..state() },
            SpaceInvaders { bullets: BOARD + 1, ..state() },
            SpaceInvaders { alien_bullets: BOARD + 1, ..state() },
            SpaceInvaders { interval: 0, ..state() },
            SpaceInvaders { alien_timer: 13, ..state() },
            SpaceInvaders { alien_shot_timer: 11, ..state() },
            SpaceInvaders { shot_timer: 6, ..state() },
        ];
        assert!(impossible.iter().all(|state| !state.is_possible(true)));
    }
}
