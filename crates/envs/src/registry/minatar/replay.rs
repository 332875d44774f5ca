//! Replays of recorded MinAtar games: random numbers come from the record instead of a seed, so that every step can be
//! compared with the program that recorded them (`docs/minatar-fixtures.md`).

use super::board::{self, Board};
use super::draws::Recorded;
use super::{FULL, GAMES, Game, Listed, Play, Played, Rules};
use crate::Observation;

pub use super::draws::{DrawError, RandomDraw, Request};

/// A recorded game in progress, without a time limit.
pub struct RecordedGame {
    game: Box<dyn Playback>,
    play: Play,
    draws: Recorded,
}

impl RecordedGame {
    /// Number of actions: no-op, left, up, right, down and fire. All games accept all of them.
    pub const ACTIONS: usize = FULL.len();

    /// The names of the games, without `minatar_`.
    pub fn games() -> impl Iterator<Item = &'static str> {
        GAMES.iter().map(short_name)
    }

    /// A replay of a game of [`RecordedGame::games`] that must be reset before its first step. `None` for another name.
    pub fn new(
        game: &str,
        sticky_actions: f64,
        difficulty_ramping: bool,
        draws: Vec<RandomDraw>,
    ) -> Option<Self> {
        let listed = GAMES.iter().find(|listed| short_name(listed) == game)?;
        let play = Play { actions: FULL, sticky_actions, ramping: difficulty_ramping, time_limit: 0 };
        Some(Self { game: (listed.playback)(), play, draws: Recorded::new(draws) })
    }

    /// Starts an episode.
    pub fn reset(&mut self) -> Result<(), DrawError> {
        self.game.reset(&mut self.draws);
        self.draws.check()
    }

    /// Plays one requested action. Returns the reward and whether the episode was terminated.
    ///
    /// # Panics
    ///
    /// If there is no such action.
    pub fn step(&mut self, action: usize) -> Result<(f64, bool), DrawError> {
        let Played { reward, terminated } = self.game.step(action, &self.play, &mut self.draws);
        self.draws.check()?;
        Ok((reward, terminated))
    }

    /// The shape of [`RecordedGame::observe`].
    pub fn observation(&self) -> Observation {
        board::observation(self.game.channels())
    }

    /// The current observation, as [`Environment::observation`](crate::Environment::observation) returns it.
    pub fn observe(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.observation().bytes()];
        self.game.show(&mut Board::empty(&mut bytes));
        bytes
    }

    /// Ends the replay: every recorded number must have been used.
    pub fn finish(self) -> Result<(), DrawError> {
        self.draws.check_end()
    }
}

fn short_name(game: &Listed) -> &'static str {
    game.name.strip_prefix("minatar_").unwrap_or(game.name)
}

/// A game of any type.
pub(super) trait Playback {
    fn channels(&self) -> usize;
    fn reset(&mut self, draws: &mut Recorded);
    fn step(&mut self, action: usize, play: &Play, draws: &mut Recorded) -> Played;
    fn show(&self, board: &mut Board<'_>);
}

pub(super) fn playback<R: Rules>() -> Box<dyn Playback> {
    Box::new(Game::<R>::new())
}

impl<R: Rules> Playback for Game<R> {
    fn channels(&self) -> usize {
        R::INFO.colours.len()
    }

    fn reset(&mut self, draws: &mut Recorded) {
        Game::reset(self, draws);
    }

    fn step(&mut self, action: usize, play: &Play, draws: &mut Recorded) -> Played {
        Game::step(self, action, play, draws)
    }

    fn show(&self, board: &mut Board<'_>) {
        self.rules.show(board);
    }
}
