//! Seaquest: a submarine shoots enemies and brings divers to the surface before its oxygen is used up
//! (`docs/minatar-seaquest.md`).

use std::mem::take;

use serde::{Deserialize, Serialize};

use super::board::{Board, LAST, is_inside};
use super::draws::Draws;
use super::{Action, Info, Played, Rules};

/// Rows below the surface, in which everything but the player stays.
const WATER: std::ops::Range<u8> = 1..9;
const LAST_ROW: i8 = WATER.end as i8 - 1;
const START_COLUMN: i8 = 5;

const OXYGEN: i16 = 200;
const OXYGEN_PER_CELL: i16 = 20;
/// The reward of surfacing with all divers and full oxygen.
const BONUS: i16 = 10;
/// Divers that have room, and that a bonus needs.
const DIVERS_MAX: i32 = 6;

const SPAWN_PERIOD: u8 = 20;
const DIVER_PERIOD: u8 = 30;
const MOVE_PERIOD: u8 = 5;
/// The shortest move period that difficulty ramping leads to.
const MOVE_PERIOD_MIN: u8 = 2;
const DIVER_MOVE_PERIOD: u8 = 5;
const SHOT_PERIOD: u8 = 5;
const ENEMY_SHOT_PERIOD: u8 = 10;

/// More than a list can hold: an enemy crosses the board in 60 steps, and at most one appears per step.
const OBJECTS_MAX: usize = 200;

/// Channels of an observation.
const FRONT: usize = 0;
const BACK: usize = 1;
const BULLETS: usize = 2;
const TRAILS: usize = 3;
const ENEMY_BULLETS: usize = 4;
const FISH: usize = 5;
const SUBMARINES: usize = 6;
const OXYGEN_GAUGE: usize = 7;
const DIVER_GAUGE: usize = 8;
const DIVERS: usize = 9;

/// A position and a direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Mover {
    row: i8,
    column: i8,
    to_right: bool,
}

impl Mover {
    /// Something that appears at a side of the board.
    fn enters(row: i8, to_right: bool) -> Self {
        Self { row, column: if to_right { 0 } else { LAST }, to_right }
    }

    fn direction(self) -> i8 {
        if self.to_right { 1 } else { -1 }
    }

    fn is_at(self, other: Self) -> bool {
        (self.row, self.column) == (other.row, other.column)
    }

    /// Moves one column. Whether it is still on the board.
    fn advance(&mut self) -> bool {
        self.column += self.direction();
        is_inside(self.column)
    }

    fn show(self, board: &mut Board<'_>, channel: usize) {
        board.show(channel, self.row, self.column);
    }

    /// Shows the cell behind it.
    fn show_behind(self, board: &mut Board<'_>, channel: usize) {
        board.show(channel, self.row, self.column - self.direction());
    }
}

/// A fish or a diver.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Swimmer {
    mover: Mover,
    move_timer: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Submarine {
    swimmer: Swimmer,
    shot_timer: u8,
}

/// The state of an episode. Lists have the newest object last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Seaquest {
    player: Mover,
    oxygen: i16,
    /// After a bonus it is −1, and further surfacing can make it smaller.
    divers_aboard: i32,
    surfaced: bool,
    bullets: Vec<Mover>,
    enemy_bullets: Vec<Mover>,
    fish: Vec<Swimmer>,
    submarines: Vec<Submarine>,
    divers: Vec<Swimmer>,
    spawn_period: u8,
    spawn_timer: u8,
    diver_timer: u8,
    move_period: u8,
    shot_timer: u8,
    ramp_index: u8,
}

impl Rules for Seaquest {
    const INFO: Info = Info {
        name: "minatar_seaquest",
        aliases: &["seaquest_minatar"],
        display_name: "MinAtar Seaquest",
        minimal: super::FULL,
        colours: &[
            [80, 160, 240],
            [50, 100, 170],
            [240, 240, 240],
            [70, 70, 90],
            [230, 120, 60],
            [120, 190, 90],
            [200, 80, 60],
            [150, 200, 220],
            [180, 160, 70],
            [230, 190, 60],
        ],
    };

    fn new() -> Self {
        Self {
            player: Mover { row: 0, column: START_COLUMN, to_right: false },
            oxygen: OXYGEN,
            divers_aboard: 0,
            surfaced: true,
            bullets: Vec::new(),
            enemy_bullets: Vec::new(),
            fish: Vec::new(),
            submarines: Vec::new(),
            divers: Vec::new(),
            spawn_period: SPAWN_PERIOD,
            spawn_timer: SPAWN_PERIOD,
            diver_timer: DIVER_PERIOD,
            move_period: MOVE_PERIOD,
            shot_timer: 0,
            ramp_index: 0,
        }
    }

    fn reset(&mut self, _draws: &mut dyn Draws) {
        *self = Self::new();
    }

    fn step(&mut self, action: Action, ramping: bool, draws: &mut dyn Draws) -> Played {
        let mut played = Played { reward: 0.0, terminated: false };
        // 1 and 2: spawns.
        if self.spawn_timer == 0 {
            self.spawn_enemy(draws);
            self.spawn_timer = self.spawn_period;
        }
        if self.diver_timer == 0 {
            let to_right = draws.chance(0.5);
            let mover = Mover::enters(draws.integer(WATER) as i8, to_right);
            self.divers.push(Swimmer { mover, move_timer: DIVER_MOVE_PERIOD });
            self.diver_timer = DIVER_PERIOD;
        }
        // 3 to 8: everything moves.
        self.act(action);
        self.move_bullets(&mut played);
        self.move_divers();
        self.move_submarines(&mut played);
        self.move_enemy_bullets(&mut played);
        let mut fish = take(&mut self.fish);
        retain_newest_first(&mut fish, |one| self.swims_on(one, &mut played));
        self.fish = fish;
        // 9: timers.
        for timer in [&mut self.spawn_timer, &mut self.diver_timer, &mut self.shot_timer] {
            *timer = timer.saturating_sub(1);
        }
        // 10 and 11: oxygen, surfacing.
        played.terminated |= self.oxygen <= 0;
        if self.player.row > 0 {
            self.oxygen -= 1;
            self.surfaced = false;
        } else if !self.surfaced {
            self.surface(ramping, &mut played);
        }
        played
    }

    fn show(&self, board: &mut Board<'_>) {
        self.player.show(board, FRONT);
        self.player.show_behind(board, BACK);
        self.bullets.iter().for_each(|bullet| bullet.show(board, BULLETS));
        self.enemy_bullets.iter().for_each(|bullet| bullet.show(board, ENEMY_BULLETS));
        let fish = self.fish.iter().map(|fish| (fish, FISH));
        let submarines = self.submarines.iter().map(|submarine| (&submarine.swimmer, SUBMARINES));
        let divers = self.divers.iter().map(|diver| (diver, DIVERS));
        for (swimmer, channel) in fish.chain(submarines).chain(divers) {
            swimmer.mover.show(board, channel);
            swimmer.mover.show_behind(board, TRAILS);
        }
        let oxygen = (self.oxygen / OXYGEN_PER_CELL) as i8;
        (0..oxygen).for_each(|column| board.show(OXYGEN_GAUGE, LAST, column));
        let divers = self.divers_aboard.clamp(0, DIVERS_MAX) as i8;
        (LAST - divers..LAST).for_each(|column| board.show(DIVER_GAUGE, LAST, column));
    }

    fn is_possible(&self, ended: bool) -> bool {
        let moves = |mover: &Mover| (0..=LAST_ROW).contains(&mover.row) && is_inside(mover.column);
        let swims = |swimmer: &Swimmer| moves(&swimmer.mover) && swimmer.move_timer <= MOVE_PERIOD;
        let submarine = |one: &Submarine| swims(&one.swimmer) && one.shot_timer <= ENEMY_SHOT_PERIOD;
        let lists = [self.bullets.len(), self.enemy_bullets.len(), self.fish.len(), self.submarines.len()];
        moves(&self.player)
            // The step that uses up the oxygen is the last one.
            && (-i16::from(ended)..=OXYGEN).contains(&self.oxygen)
            && self.divers_aboard <= DIVERS_MAX
            && lists.iter().all(|length| *length <= OBJECTS_MAX)
            && self.divers.len() <= OBJECTS_MAX
            && self.bullets.iter().chain(&self.enemy_bullets).all(moves)
            && self.fish.iter().chain(&self.divers).all(swims)
            && self.submarines.iter().all(submarine)
            && (1..=SPAWN_PERIOD).contains(&self.spawn_period)
            && self.spawn_timer <= SPAWN_PERIOD
            && self.diver_timer <= DIVER_PERIOD
            && self.shot_timer <= SHOT_PERIOD
            // Each ramp makes the spawn period shorter by 1, every other one the move period.
            && self.ramp_index == SPAWN_PERIOD - self.spawn_period
            && self.move_period == (MOVE_PERIOD - (self.ramp_index / 2).min(MOVE_PERIOD - MOVE_PERIOD_MIN))
    }
}

/// Handles the objects of a list from the newest to the oldest, and removes those of which `stays` is false.
fn retain_newest_first<T>(list: &mut Vec<T>, mut stays: impl FnMut(&mut T) -> bool) {
    for index in (0..list.len()).rev() {
        if !stays(&mut list[index]) {
            list.remove(index);
        }
    }
}

/// Removes the first object of a list at a cell. Whether there was one.
fn remove_first<T>(list: &mut Vec<T>, is_there: impl FnMut(&T) -> bool) -> bool {
    let found = list.iter().position(is_there);
    found.map(|index| list.remove(index)).is_some()
}

impl Seaquest {
    /// Point 1: a fish or a submarine appears, unless an enemy of its row comes the other way.
    fn spawn_enemy(&mut self, draws: &mut dyn Draws) {
        let to_right = draws.chance(0.5);
        let is_submarine = draws.chance(1.0 / 3.0);
        let mover = Mover::enters(draws.integer(WATER) as i8, to_right);
        let opposes = |other: &Swimmer| other.mover.row == mover.row && other.mover.to_right != to_right;
        let mut enemies = self.fish.iter().chain(self.submarines.iter().map(|submarine| &submarine.swimmer));
        if enemies.any(opposes) {
            return;
        }
        let swimmer = Swimmer { mover, move_timer: self.move_period };
        if is_submarine {
            self.submarines.push(Submarine { swimmer, shot_timer: ENEMY_SHOT_PERIOD });
        } else {
            self.fish.push(swimmer);
        }
    }

    /// Point 3: the player fires or moves.
    fn act(&mut self, action: Action) {
        let player = &mut self.player;
        if action == Action::Fire && self.shot_timer == 0 {
            self.bullets.push(*player);
            self.shot_timer = SHOT_PERIOD;
        }
        if action.columns() != 0 {
            player.to_right = action.columns() > 0;
        }
        player.column = (player.column + action.columns()).clamp(0, LAST);
        player.row = (player.row + action.rows()).clamp(0, LAST_ROW);
    }

    /// Point 4: the player's bullets move and hit.
    fn move_bullets(&mut self, played: &mut Played) {
        let Self { bullets, fish, submarines, .. } = self;
        retain_newest_first(bullets, |bullet| {
            if !bullet.advance() {
                return false;
            }
            let hit = remove_first(fish, |fish| fish.mover.is_at(*bullet))
                || remove_first(submarines, |submarine| submarine.swimmer.mover.is_at(*bullet));
            played.reward += f64::from(u8::from(hit));
            !hit
        });
    }

    /// Point 5: divers move, and board.
    fn move_divers(&mut self) {
        let Self { divers, divers_aboard, player, .. } = self;
        retain_newest_first(divers, |diver| {
            let mut boards = |diver: &Swimmer| {
                let boards = diver.mover.is_at(*player) && *divers_aboard < DIVERS_MAX;
                *divers_aboard += i32::from(boards);
                boards
            };
            if boards(diver) {
                return false;
            }
            if diver.move_timer > 0 {
                diver.move_timer -= 1;
                return true;
            }
            diver.move_timer = DIVER_MOVE_PERIOD;
            diver.mover.advance() && !boards(diver)
        });
    }

    /// Points 6 and 8, for one enemy. Whether it stays on the board.
    fn swims_on(&mut self, enemy: &mut Swimmer, played: &mut Played) -> bool {
        played.terminated |= enemy.mover.is_at(self.player);
        if enemy.move_timer > 0 {
            enemy.move_timer -= 1;
            return true;
        }
        enemy.move_timer = self.move_period;
        if !enemy.mover.advance() {
            return false;
        }
        if enemy.mover.is_at(self.player) {
            played.terminated = true;
            return true;
        }
        let hit = remove_first(&mut self.bullets, |bullet| bullet.is_at(enemy.mover));
        played.reward += f64::from(u8::from(hit));
        !hit
    }

    /// Point 6: enemy submarines move and shoot. One that was just removed can still shoot.
    fn move_submarines(&mut self, played: &mut Played) {
        let mut submarines = take(&mut self.submarines);
        retain_newest_first(&mut submarines, |submarine| {
            let stays = self.swims_on(&mut submarine.swimmer, played);
            if submarine.shot_timer == 0 {
                submarine.shot_timer = ENEMY_SHOT_PERIOD;
                self.enemy_bullets.push(submarine.swimmer.mover);
            } else {
                submarine.shot_timer -= 1;
            }
            stays
        });
        self.submarines = submarines;
    }

    /// Point 7: enemy bullets hit before and after they move.
    fn move_enemy_bullets(&mut self, played: &mut Played) {
        let Self { enemy_bullets, player, .. } = self;
        retain_newest_first(enemy_bullets, |bullet| {
            played.terminated |= bullet.is_at(*player);
            let stays = bullet.advance();
            played.terminated |= bullet.is_at(*player);
            stays
        });
    }

    /// Point 11: the player comes to the surface.
    fn surface(&mut self, ramping: bool, played: &mut Played) {
        if self.divers_aboard == 0 {
            played.terminated = true;
            return;
        }
        self.surfaced = true;
        if self.divers_aboard == DIVERS_MAX {
            self.divers_aboard = 0;
            played.reward += f64::from(self.oxygen * BONUS / OXYGEN);
        }
        self.oxygen = OXYGEN;
        // After a bonus too: then it is -1.
        self.divers_aboard = self.divers_aboard.saturating_sub(1);
        if ramping && (self.spawn_period > 1 || self.move_period > MOVE_PERIOD_MIN) {
            if self.move_period > MOVE_PERIOD_MIN && self.ramp_index % 2 == 1 {
                self.move_period -= 1;
            }
            if self.spawn_period > 1 {
                self.spawn_period -= 1;
            }
            self.ramp_index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_state_is_recognized() {
        let state = Seaquest::new;
        assert!(state().is_possible(false));
        let outside = Mover { row: 1, column: 10, to_right: true };
        let swimmer = Swimmer { mover: state().player, move_timer: 0 };
        let late = Swimmer { move_timer: 6, ..swimmer };
        let impossible = [
            Seaquest { player: outside, ..state() },
            Seaquest { player: Mover { row: 9, column: 0, to_right: true }, ..state() },
            Seaquest { oxygen: 201, ..state() },
            Seaquest { oxygen: -2, ..state() },
            Seaquest { divers_aboard: 7, ..state() },
            Seaquest { bullets: vec![outside], ..state() },
            Seaquest { enemy_bullets: vec![outside], ..state() },
            Seaquest { fish: vec![swimmer; OBJECTS_MAX + 1], ..state() },
            Seaquest { fish: vec![late], ..state() },
            Seaquest { divers: vec![late], ..state() },
            Seaquest { submarines: vec![Submarine { swimmer: late, shot_timer: 0 }], ..state() },
            Seaquest { submarines: vec![Submarine { swimmer, shot_timer: 11 }], ..state() },
            Seaquest { spawn_period: 0, ramp_index: 20, ..state() },
            Seaquest { spawn_timer: 21, ..state() },
            Seaquest { diver_timer: 31, ..state() },
            Seaquest { move_period: 4, ..state() },
            Seaquest { shot_timer: 6, ..state() },
            Seaquest { ramp_index: 1, ..state() },
        ];
        assert!(!Seaquest { oxygen: -1, ..state() }.is_possible(false));
        assert!(impossible.iter().all(|state| !state.is_possible(true)));
    }
}
