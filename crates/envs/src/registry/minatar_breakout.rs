//! MinAtar Breakout (Young and Tian, 2019): Breakout on a board of 10 by 10 cells, one channel for each kind of object.
//!
//! It is written from `docs/minatar-breakout.md`, which describes observed behaviour, and from no other program; the points of
//! a step below are numbered as there. `docs/decisions/0001-minatar-licence.md` says why.

use std::borrow::Cow;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::EnvEntry;
use crate::{
    ActionSet, Element, EnvError, EnvOptions, Environment, Image, Observation, Spec, StepOutcome, saved,
};

const NAME: &str = "minatar_breakout";

/// Cells on a side of the board.
const SIDE: usize = 10;
/// The last row or column.
const LAST: i8 = SIDE as i8 - 1;
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
const CHANNELS: usize = 4;
/// The byte of a cell that holds an object; see [`Element::U8`].
const PRESENT: u8 = 255;

/// What the actions of a set do to the paddle. Those that move nothing are in the full set for comparison with others.
const MINIMAL: &[(&str, i8)] = &[("noop", 0), ("left", -1), ("right", 1)];
const FULL: &[(&str, i8)] = &[("noop", 0), ("left", -1), ("up", 0), ("right", 1), ("down", 0), ("fire", 0)];

/// Slow enough for a person to follow; the game itself has no speed.
const FRAMES_PER_SECOND: f64 = 10.0;

/// MinAtar Breakout in the registry.
pub(super) fn entry() -> EnvEntry {
    EnvEntry {
        name: NAME,
        aliases: &["breakout_minatar"],
        display_name: Cow::Borrowed("MinAtar Breakout"),
        suite: "minatar",
        default_preset: "minatar",
        observation: observation(),
        frames_per_second: FRAMES_PER_SECOND,
        needs_rom: false,
        saves_state: true,
        fixed_settings: &[("frame_skip", "1"), ("noop_max", "0")],
        make: |_, options, seed| Ok(Box::new(Breakout::new(options, seed))),
    }
}

fn observation() -> Observation {
    Observation { element: Element::U8, shape: vec![CHANNELS, SIDE, SIDE] }
}

/// Row and column, from the top left.
type Cell = (i8, i8);

/// The saved state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    paddle: i8,
    ball: Cell,
    /// Rows and columns that the ball moves in a step, each 1 or −1.
    direction: Cell,
    /// Where the ball was before the latest step.
    trail: Cell,
    bricks: u32,
    /// The latest step broke a brick, or passed through one since: the next brick is not broken.
    latch: bool,
    /// The action executed last, which sticky actions repeat. A reset does not clear it.
    last_action: usize,
    steps: u32,
    ended: bool,
    rng: ChaCha8Rng,
}

struct Breakout {
    spec: Spec,
    moves: &'static [(&'static str, i8)],
    sticky_actions: f64,
    time_limit: u32,
    state: State,
    observation: Vec<u8>,
}

impl Breakout {
    fn new(options: &EnvOptions, seed: u64) -> Self {
        let moves = match options.action_set {
            ActionSet::Minimal => MINIMAL,
            ActionSet::Full => FULL,
        };
        let spec = Spec {
            game: NAME.to_owned(),
            actions: moves.iter().map(|(name, _)| (*name).to_owned()).collect(),
            observation: observation(),
            frames_per_step: 1,
        };
        let state = State {
            paddle: PADDLE_START,
            ball: (0, 0),
            direction: (1, 1),
            trail: (0, 0),
            bricks: ALL_BRICKS,
            latch: false,
            last_action: 0,
            steps: 0,
            ended: false,
            rng: ChaCha8Rng::seed_from_u64(seed),
        };
        let (sticky_actions, time_limit) = (options.sticky_actions, options.time_limit_frames);
        let observation = vec![0; CHANNELS * SIDE * SIDE];
        let mut breakout = Self { spec, moves, sticky_actions, time_limit, state, observation };
        breakout.reset();
        breakout
    }

    fn observe(&mut self) {
        self.observation.fill(0);
        let State { paddle, ball, trail, bricks, .. } = self.state;
        let mut show = |channel: usize, (row, column): Cell| {
            self.observation[(channel * SIDE + row as usize) * SIDE + column as usize] = PRESENT;
        };
        show(PADDLE, (LAST, paddle));
        show(BALL, ball);
        show(TRAIL, trail);
        let cells = BRICK_ROWS.flat_map(|row| (0..=LAST).map(move |column| (row, column)));
        cells.filter(|&cell| bricks & brick(cell) != 0).for_each(|cell| show(BRICKS, cell));
    }
}

/// The bit of the brick at a cell; 0 where there never is one.
fn brick((row, column): Cell) -> u32 {
    if BRICK_ROWS.contains(&row) { 1 << ((row - BRICK_ROWS.start()) * SIDE as i8 + column) } else { 0 }
}

impl State {
    /// Plays one step of the ball and the paddle. Whether a brick was broken.
    fn advance(&mut self, paddle_move: i8) -> bool {
        // 1 and 2: paddle, trail.
        self.paddle = (self.paddle + paddle_move).clamp(0, LAST);
        self.trail = self.ball;
        // 3 and 4: where the ball would go, and side walls.
        let (row, column) = self.ball;
        let (mut next_row, mut next_column) = (row + self.direction.0, column + self.direction.1);
        if !(0..=LAST).contains(&next_column) {
            next_column = next_column.clamp(0, LAST);
            self.direction.1 = -self.direction.1;
        }
        // 5: the first thing that the ball meets there.
        let mut broken = false;
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
                self.ended = true;
            }
        } else {
            self.latch = false;
        }
        // 6: the move.
        self.ball = (next_row, next_column);
        broken
    }

    /// Whether a game could be in this state, as far as indexing and arithmetic depend on it.
    fn is_possible(&self, actions: usize) -> bool {
        let on_board = |(row, column): Cell| (0..=LAST).contains(&row) && (0..=LAST).contains(&column);
        let turns = |step: i8| step.abs() == 1;
        on_board((LAST, self.paddle))
            && on_board(self.ball)
            && on_board(self.trail)
            // A ball in the last row has been missed.
            && (self.ended || self.ball.0 < LAST)
            && turns(self.direction.0)
            && turns(self.direction.1)
            && self.bricks <= ALL_BRICKS
            && self.last_action < actions
    }
}

impl Environment for Breakout {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self) {
        let state = &mut self.state;
        let from_left = state.rng.random_bool(0.5);
        state.paddle = PADDLE_START;
        state.ball = (*BRICK_ROWS.end(), if from_left { 0 } else { LAST });
        state.direction = (1, if from_left { 1 } else { -1 });
        state.trail = state.ball;
        state.bricks = ALL_BRICKS;
        (state.latch, state.ended, state.steps) = (false, false, 0);
        self.observe();
    }

    fn step(&mut self, action: usize) -> StepOutcome {
        assert!(action < self.moves.len(), "no action {action} in {NAME}");
        debug_assert!(!self.state.ended, "step after the end of an episode");
        let state = &mut self.state;
        if self.sticky_actions == 0.0 || !state.rng.random_bool(self.sticky_actions) {
            state.last_action = action;
        }
        let broken = state.advance(self.moves[state.last_action].1);
        state.steps = state.steps.saturating_add(1);
        let terminated = state.ended;
        let truncated = !terminated && self.time_limit > 0 && state.steps >= self.time_limit;
        state.ended = terminated || truncated;
        self.observe();
        StepOutcome { reward: f32::from(broken), terminated, truncated, life_lost: false, frames: 1 }
    }

    fn observation(&self) -> &[u8] {
        &self.observation
    }

    fn render(&mut self) -> Image {
        draw(&self.observation)
    }

    fn save(&self) -> Option<Vec<u8>> {
        Some(saved::seal(NAME, &self.state))
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError> {
        let state: State = saved::open(NAME, state)?;
        if !state.is_possible(self.moves.len()) {
            return Err(EnvError::DamagedState("the rules can't lead to it"));
        }
        self.state = state;
        self.observe();
        Ok(())
    }
}

/// The board in colour, channels drawn over one another: bricks, trail, ball, paddle.
fn draw(observation: &[u8]) -> Image {
    const PIXELS_PER_CELL: usize = 20;
    const COLOURS: [(usize, [u8; 3]); CHANNELS] =
        [(BRICKS, [200, 80, 60]), (TRAIL, [90, 90, 110]), (BALL, [240, 240, 240]), (PADDLE, [80, 160, 240])];
    let side = SIDE * PIXELS_PER_CELL;
    let mut rgb = Vec::with_capacity(3 * side * side);
    for pixel in 0..side * side {
        let cell = pixel / side / PIXELS_PER_CELL * SIDE + pixel % side / PIXELS_PER_CELL;
        let on_top = COLOURS.iter().rev().find(|(channel, _)| observation[channel * SIDE * SIDE + cell] != 0);
        rgb.extend_from_slice(&on_top.map_or([15, 15, 20], |(_, colour)| *colour));
    }
    Image { width: side, height: side, rgb }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn options(sticky_actions: f64) -> EnvOptions {
        EnvOptions {
            frame_skip: 1,
            sticky_actions,
            noop_max: 0,
            action_set: ActionSet::Minimal,
            time_limit_frames: 500,
            roms: None,
        }
    }

    /// Moves the paddle towards the ball's column.
    fn follow(state: &State) -> usize {
        match state.ball.1 - state.paddle {
            0 => 0,
            gap if gap < 0 => 1,
            _ => 2,
        }
    }

    #[test]
    fn a_follower_is_truncated_at_the_time_limit() {
        let mut breakout = Breakout::new(&options(0.0), 1);
        let mut score = 0.0;
        let last = (1..=500).map(|step| {
            let outcome = breakout.step(follow(&breakout.state));
            score += outcome.reward;
            (step, outcome)
        });
        let (step, outcome) = last.into_iter().find(|(_, outcome)| outcome.done()).unwrap();
        assert!(outcome.truncated && !outcome.terminated && step == 500);
        assert!(score >= 30.0, "the follower clears the board: {score}");
    }

    #[test]
    fn a_sticky_action_is_repeated_as_often_as_the_setting_says() {
        let mut breakout = Breakout::new(&options(0.1), 3);
        let (mut repeated, steps) = (0, 20_000);
        for step in 0..steps {
            let (before, action) = (breakout.state.last_action, step % 3);
            let ended = breakout.step(action).done();
            repeated += usize::from(breakout.state.last_action != action);
            assert!(breakout.state.last_action == action || breakout.state.last_action == before);
            if ended {
                let last = breakout.state.last_action;
                breakout.reset();
                assert_eq!(breakout.state.last_action, last, "a reset does not clear it");
            }
        }
        // A repeat shows unless both actions are the same, which they are after two repeats in a row; 5 standard deviations.
        let rate = repeated as f64 / steps as f64;
        assert!((rate - 0.1).abs() < 0.02, "{rate}");
    }

    #[test]
    fn a_restored_game_continues_as_the_original() {
        let mut original = Breakout::new(&options(0.25), 5);
        for _ in 0..7 {
            original.step(follow(&original.state));
        }
        let saved = original.save().unwrap();
        let mut restored = Breakout::new(&options(0.25), 99);
        restored.restore(&saved).unwrap();
        for _ in 0..300 {
            assert_eq!(original.observation(), restored.observation());
            let action = follow(&original.state);
            let outcome = original.step(action);
            assert_eq!(outcome, restored.step(action));
            if outcome.done() {
                original.reset();
                restored.reset();
            }
        }
        assert_eq!(original.save(), restored.save());
    }

    #[test]
    fn an_impossible_state_changes_nothing() {
        let mut breakout = Breakout::new(&options(0.0), 5);
        let before = breakout.save();
        let state = || breakout.state.clone();
        let impossible = [
            State { paddle: -1, ..state() },
            State { ball: (10, 0), ..state() },
            State { ball: (9, 0), ..state() },
            State { trail: (0, -1), ..state() },
            State { direction: (0, 1), ..state() },
            State { bricks: u32::MAX, ..state() },
            State { last_action: 3, ..state() },
        ];
        for state in impossible.map(|state| saved::seal(NAME, &state)) {
            assert!(breakout.restore(&state).is_err());
        }
        assert!(breakout.restore(b"garbage").is_err());
        assert_eq!(breakout.save(), before);
    }

    #[test]
    fn the_picture_shows_every_object_that_is_not_covered() {
        let image = Breakout::new(&options(0.0), 1).render();
        let colours: BTreeSet<_> = image.rgb.chunks(3).collect();
        assert_eq!(colours.len(), 4, "background, bricks, ball, paddle: the trail is under the ball");
    }
}
