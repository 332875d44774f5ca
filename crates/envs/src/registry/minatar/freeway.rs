//! Freeway: a chicken crosses eight lanes of cars (`docs/minatar-freeway.md`).

use serde::{Deserialize, Serialize};

use super::board::{Board, LAST, SIDE, is_inside};
use super::draws::Draws;
use super::{Action, Info, Played, Rules};

/// Cars, one in each row but the first and the last.
const CARS: usize = 8;
const FIRST_ROW: i8 = 1;
/// The column of the chicken.
const COLUMN: i8 = 4;
const MOVE_PERIOD: u8 = 3;
/// Steps that a car waits before it moves.
const CAR_PERIODS: std::ops::Range<u8> = 1..6;
/// The last step of an episode is the one after these.
const STEPS: i16 = 2500;

/// Channels of an observation.
const CHICKEN: usize = 0;
const CAR: usize = 1;
/// The channel of a trail is this plus the period of the car.
const TRAILS: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Car {
    column: i8,
    timer: u8,
    period: u8,
    to_left: bool,
}

impl Car {
    /// The column beside it, in its direction or behind it. The board wraps around.
    fn beside(self, ahead: bool) -> i8 {
        let step = if ahead == self.to_left { -1 } else { 1 };
        (self.column + step).rem_euclid(SIDE as i8)
    }
}

/// The state of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Freeway {
    /// The row of the chicken.
    row: i8,
    /// Steps until the chicken can move.
    move_timer: u8,
    steps_left: i16,
    /// The car of each row, from [`FIRST_ROW`].
    cars: [Car; CARS],
}

impl Rules for Freeway {
    const INFO: Info = Info {
        name: "minatar_freeway",
        aliases: &["freeway_minatar"],
        display_name: "MinAtar Freeway",
        minimal: &[Action::Noop, Action::Up, Action::Down],
        colours: &[
            [240, 240, 240],
            [200, 80, 60],
            [150, 110, 110],
            [130, 100, 100],
            [110, 90, 90],
            [90, 75, 75],
            [70, 60, 60],
        ],
    };

    fn new() -> Self {
        let car = Car { column: 0, timer: 1, period: 1, to_left: false };
        Self { row: LAST, move_timer: MOVE_PERIOD, steps_left: STEPS, cars: [car; CARS] }
    }

    fn reset(&mut self, draws: &mut dyn Draws) {
        *self = Self::new();
        self.draw_cars(draws);
    }

    /// Difficulty ramping has no effect.
    fn step(&mut self, action: Action, _ramping: bool, draws: &mut dyn Draws) -> Played {
        // 1: chicken.
        if action.rows() != 0 && self.move_timer == 0 {
            self.move_timer = MOVE_PERIOD;
            self.row = (self.row + action.rows()).clamp(0, LAST);
        }
        // 2: crossing.
        let crossed = self.row == 0;
        if crossed {
            self.draw_cars(draws);
            self.row = LAST;
        }
        // 3: cars. A hit sends the chicken back to the start.
        for (row, car) in (FIRST_ROW..).zip(&mut self.cars) {
            let mut hit = (row, car.column) == (self.row, COLUMN);
            if car.timer == 0 {
                car.timer = car.period;
                car.column = car.beside(true);
                hit |= (row, car.column) == (self.row, COLUMN);
            } else {
                car.timer -= 1;
            }
            if hit {
                self.row = LAST;
            }
        }
        // 4: timers.
        self.move_timer = self.move_timer.saturating_sub(1);
        self.steps_left -= 1;
        Played { reward: f64::from(u8::from(crossed)), terminated: self.steps_left < 0 }
    }

    fn show(&self, board: &mut Board<'_>) {
        board.show(CHICKEN, self.row, COLUMN);
        for (row, car) in (FIRST_ROW..).zip(&self.cars) {
            board.show(CAR, row, car.column);
            board.show(TRAILS + usize::from(car.period), row, car.beside(false));
        }
    }

    fn is_possible(&self, ended: bool) -> bool {
        let car =
            |car: &Car| is_inside(car.column) && CAR_PERIODS.contains(&car.period) && car.timer <= car.period;
        is_inside(self.row)
            && self.move_timer <= MOVE_PERIOD
            && (0..=STEPS).contains(&(self.steps_left + i16::from(ended)))
            && self.cars.iter().all(car)
    }
}

impl Freeway {
    /// New periods and directions. The cars keep their columns.
    fn draw_cars(&mut self, draws: &mut dyn Draws) {
        for car in &mut self.cars {
            car.period = draws.integer(CAR_PERIODS);
            car.timer = car.period;
        }
        for car in &mut self.cars {
            car.to_left = draws.chance(0.5);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_state_is_recognized() {
        let state = Freeway::new;
        assert!(state().is_possible(false));
        let over = || Freeway { steps_left: -1, ..state() };
        assert!(over().is_possible(true) && !over().is_possible(false));
        let car = state().cars[0];
        let cars = |car| Freeway { cars: [car; CARS], ..state() };
        let impossible = [
            Freeway { row: 10, ..state() },
            Freeway { move_timer: 4, ..state() },
            Freeway { steps_left: STEPS + 1, ..state() },
            Freeway { steps_left: -2, ..state() },
            cars(Car { column: -1, ..car }),
            cars(Car { period: 6, ..car }),
            cars(Car { period: 0, timer: 0, ..car }),
            cars(Car { timer: 2, ..car }),
        ];
        assert!(impossible.iter().all(|state| !state.is_possible(true)));
    }
}
