//! Asterix: a player collects gold and avoids enemies, which cross the board in rows (`docs/minatar-asterix.md`).

use serde::{Deserialize, Serialize};

use super::board::{Board, LAST, is_inside};
use super::draws::Draws;
use super::{Action, Info, Played, Rules};

/// Rows that the player and the entities can be in: all but the first and the last.
const ROWS: usize = 8;
const FIRST_ROW: i8 = 1;
const LAST_ROW: i8 = ROWS as i8;

const START: (i8, i8) = (5, 5);
const SPAWN_PERIOD: u8 = 10;
const MOVE_PERIOD: u8 = 5;
const RAMP_PERIOD: i8 = 100;

/// Channels of an observation.
const PLAYER: usize = 0;
const ENEMIES: usize = 1;
const TRAILS: usize = 2;
const GOLD: usize = 3;

/// Gold or an enemy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Entity {
    column: i8,
    to_right: bool,
    is_gold: bool,
}

impl Entity {
    /// The columns that it moves at a time.
    fn direction(self) -> i8 {
        if self.to_right { 1 } else { -1 }
    }
}

/// The state of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Asterix {
    row: i8,
    column: i8,
    /// The entity of each row, from [`FIRST_ROW`].
    slots: [Option<Entity>; ROWS],
    spawn_period: u8,
    spawn_timer: u8,
    move_period: u8,
    move_timer: u8,
    ramp_timer: i8,
    ramp_index: u8,
}

impl Rules for Asterix {
    const INFO: Info = Info {
        name: "minatar_asterix",
        aliases: &["asterix_minatar"],
        display_name: "MinAtar Asterix",
        minimal: &[Action::Noop, Action::Left, Action::Up, Action::Right, Action::Down],
        colours: &[[80, 160, 240], [200, 80, 60], [90, 90, 110], [230, 190, 60]],
    };

    fn new() -> Self {
        Self {
            row: START.0,
            column: START.1,
            slots: [None; ROWS],
            spawn_period: SPAWN_PERIOD,
            spawn_timer: SPAWN_PERIOD,
            move_period: MOVE_PERIOD,
            move_timer: MOVE_PERIOD,
            ramp_timer: RAMP_PERIOD,
            ramp_index: 0,
        }
    }

    fn reset(&mut self, _draws: &mut dyn Draws) {
        *self = Self::new();
    }

    fn step(&mut self, action: Action, ramping: bool, draws: &mut dyn Draws) -> Played {
        let mut played = Played { reward: 0.0, terminated: false };
        // 1: spawn.
        if self.spawn_timer == 0 {
            self.spawn(draws);
            self.spawn_timer = self.spawn_period;
        }
        // 2: player.
        self.column = (self.column + action.columns()).clamp(0, LAST);
        self.row = (self.row + action.rows()).clamp(FIRST_ROW, LAST_ROW);
        // 3: contact.
        self.meet(&mut played);
        // 4: entities move, and may meet the player.
        if self.move_timer == 0 {
            self.move_timer = self.move_period;
            for slot in &mut self.slots {
                *slot = slot
                    .map(|entity| Entity { column: entity.column + entity.direction(), ..entity })
                    .filter(|entity| is_inside(entity.column));
            }
            self.meet(&mut played);
        }
        // 5: timers.
        self.spawn_timer -= 1;
        self.move_timer -= 1;
        // 6: ramp.
        if ramping {
            self.ramp();
        }
        played
    }

    fn show(&self, board: &mut Board<'_>) {
        board.show(PLAYER, self.row, self.column);
        for (row, slot) in (FIRST_ROW..).zip(&self.slots) {
            if let Some(entity) = slot {
                board.show(if entity.is_gold { GOLD } else { ENEMIES }, row, entity.column);
                board.show(TRAILS, row, entity.column - entity.direction());
            }
        }
    }

    fn is_possible(&self, _ended: bool) -> bool {
        let timer = |timer, period, longest| timer <= longest && (1..=longest).contains(&period);
        (FIRST_ROW..=LAST_ROW).contains(&self.row)
            && is_inside(self.column)
            && self.slots.iter().flatten().all(|entity| is_inside(entity.column))
            && timer(self.spawn_timer, self.spawn_period, SPAWN_PERIOD)
            && timer(self.move_timer, self.move_period, MOVE_PERIOD)
            && (-1..=RAMP_PERIOD).contains(&self.ramp_timer)
            // Each ramp makes the spawn period shorter by 1, every other one the move period.
            && self.ramp_index == SPAWN_PERIOD - self.spawn_period
            && self.move_period == MOVE_PERIOD - self.ramp_index / 2
    }
}

impl Asterix {
    /// Puts an entity in a free row, if there is one.
    fn spawn(&mut self, draws: &mut dyn Draws) {
        let to_right = draws.chance(0.5);
        let is_gold = draws.chance(1.0 / 3.0);
        let mut free: Vec<_> = self.slots.iter_mut().filter(|slot| slot.is_none()).collect();
        if !free.is_empty() {
            let chosen = draws.integer(0..free.len() as u8);
            *free[usize::from(chosen)] =
                Some(Entity { column: if to_right { 0 } else { LAST }, to_right, is_gold });
        }
    }

    /// Contact of the player with the entity of its row.
    fn meet(&mut self, played: &mut Played) {
        let slot = &mut self.slots[(self.row - FIRST_ROW) as usize];
        match slot {
            Some(entity) if entity.column == self.column && entity.is_gold => {
                played.reward += 1.0;
                *slot = None;
            }
            Some(entity) if entity.column == self.column => played.terminated = true,
            _ => {}
        }
    }

    /// Makes the periods shorter every so often, until both are 1.
    fn ramp(&mut self) {
        if self.spawn_period == 1 && self.move_period == 1 {
            return;
        }
        if self.ramp_timer >= 0 {
            self.ramp_timer -= 1;
            return;
        }
        if self.move_period > 1 && self.ramp_index % 2 == 1 {
            self.move_period -= 1;
        }
        if self.spawn_period > 1 {
            self.spawn_period -= 1;
        }
        self.ramp_index += 1;
        self.ramp_timer = RAMP_PERIOD;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_state_is_recognized() {
        let state = Asterix::new;
        assert!(state().is_possible(false));
        let outside = Some(Entity { column: 10, to_right: true, is_gold: true });
        let impossible = [
            Asterix { row: 0, ..state() },
            Asterix { column: -1, ..state() },
            Asterix { slots: [outside; ROWS], ..state() },
            Asterix { spawn_timer: 11, ..state() },
            Asterix { spawn_period: 0, ramp_index: 10, ..state() },
            Asterix { move_period: 0, ..state() },
            Asterix { ramp_timer: -2, ..state() },
            Asterix { ramp_index: 1, ..state() },
        ];
        assert!(impossible.iter().all(|state| !state.is_possible(true)));
    }
}
