//! MinAtar (Young and Tian, 2019): five games on a board of 10 by 10 cells, one channel for each kind of object.
//!
//! The games are written from the rules documents (`docs/minatar-<game>.md`), which describe observed behaviour, and from no
//! other program; the points of a step are numbered as there. `docs/decisions/0001-minatar-licence.md` says why.
//!
//! A game is one file with its [`Rules`] and one line in [`GAMES`]. Everything that the games share is here: sticky actions
//! and the end of an episode in this file, the [`Environment`](crate::Environment) in `environment.rs`, random numbers in
//! `draws.rs`, observations and pictures in `board.rs`, and replays of recorded games in `replay.rs`.

mod asterix;
mod board;
mod breakout;
mod draws;
mod environment;
mod freeway;
pub mod replay;
mod seaquest;
mod space_invaders;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::EnvEntry;
use board::Board;
use draws::Draws;
use replay::Playback;

/// One line per game.
const GAMES: &[Listed] = &[
    listed::<asterix::Asterix>(),
    listed::<breakout::Breakout>(),
    listed::<freeway::Freeway>(),
    listed::<seaquest::Seaquest>(),
    listed::<space_invaders::SpaceInvaders>(),
];

/// A game without its type.
struct Listed {
    name: &'static str,
    entry: fn() -> EnvEntry,
    playback: fn() -> Box<dyn Playback>,
}

const fn listed<R: Rules>() -> Listed {
    Listed { name: R::INFO.name, entry: environment::entry::<R>, playback: replay::playback::<R> }
}

/// MinAtar in the registry.
pub(super) fn entries() -> impl Iterator<Item = EnvEntry> {
    GAMES.iter().map(|game| (game.entry)())
}

/// An action, numbered as the package does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Noop,
    Left,
    Up,
    Right,
    Down,
    Fire,
}

/// All actions, whether or not they have an effect in a game.
const FULL: &[Action] = &[Action::Noop, Action::Left, Action::Up, Action::Right, Action::Down, Action::Fire];

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Noop => "noop",
            Action::Left => "left",
            Action::Up => "up",
            Action::Right => "right",
            Action::Down => "down",
            Action::Fire => "fire",
        }
    }

    /// The columns by which left and right move.
    fn columns(self) -> i8 {
        match self {
            Action::Left => -1,
            Action::Right => 1,
            _ => 0,
        }
    }

    /// The rows by which up and down move.
    fn rows(self) -> i8 {
        match self {
            Action::Up => -1,
            Action::Down => 1,
            _ => 0,
        }
    }
}

/// The constant properties of a game.
struct Info {
    /// The name in the registry.
    name: &'static str,
    aliases: &'static [&'static str],
    display_name: &'static str,
    /// The actions that have an effect, and no-op.
    minimal: &'static [Action],
    /// The colour of each channel in pictures. A channel covers those behind it in this list.
    colours: &'static [[u8; 3]],
}

/// The rules of a game. A value is the state of an episode, in a form that can be saved.
trait Rules: Debug + Clone + PartialEq + Serialize + DeserializeOwned + Send + Sized + 'static {
    const INFO: Info;

    /// A state from which [`Rules::reset`] can start.
    fn new() -> Self;

    /// Starts an episode.
    fn reset(&mut self, draws: &mut dyn Draws);

    /// Plays one step of an episode that has not ended.
    fn step(&mut self, action: Action, ramping: bool, draws: &mut dyn Draws) -> Played;

    /// Shows the state on an empty board.
    fn show(&self, board: &mut Board<'_>);

    /// Whether a game could be in this state, as far as indexing and arithmetic depend on it.
    fn is_possible(&self, ended: bool) -> bool;
}

/// What a step of a game gave.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Played {
    reward: f64,
    terminated: bool,
}

/// How a game is played.
#[derive(Debug, Clone)]
struct Play {
    actions: &'static [Action],
    sticky_actions: f64,
    ramping: bool,
    /// Steps after which an episode is cut off; 0 means never.
    time_limit: u32,
}

/// A game in progress, without its random numbers. The order of the fields is that of the saved state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "R: Rules")]
struct Game<R> {
    rules: R,
    /// The action executed last, which sticky actions repeat. A reset does not clear it.
    last_action: usize,
    steps: u32,
    /// The episode was terminated or truncated.
    ended: bool,
}

impl<R: Rules> Game<R> {
    /// A game that must be reset before its first step.
    fn new() -> Self {
        Self { rules: R::new(), last_action: 0, steps: 0, ended: true }
    }

    fn reset(&mut self, draws: &mut dyn Draws) {
        self.rules.reset(draws);
        (self.steps, self.ended) = (0, false);
    }

    /// Plays `action`, or again the one before.
    fn step(&mut self, action: usize, play: &Play, draws: &mut dyn Draws) -> Played {
        let name = R::INFO.name;
        assert!(action < play.actions.len(), "no action {action} in {name}");
        debug_assert!(!self.ended, "step after the end of an episode");
        if !draws.chance(play.sticky_actions) {
            self.last_action = action;
        }
        let played = self.rules.step(play.actions[self.last_action], play.ramping, draws);
        self.steps = self.steps.saturating_add(1);
        self.ended = played.terminated || (play.time_limit > 0 && self.steps >= play.time_limit);
        played
    }

    fn is_possible(&self, actions: usize) -> bool {
        self.rules.is_possible(self.ended) && self.last_action < actions
    }
}
