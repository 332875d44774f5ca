//! A MinAtar game as an [`Environment`].

use std::borrow::Cow;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::board::{self, Board};
use super::{Action, FULL, Game, Play, Rules};
use crate::registry::EnvEntry;
use crate::{ActionSet, EnvError, EnvOptions, Environment, Image, Spec, StepOutcome, saved};

/// Slow enough for a person to follow; the games have no speed.
const FRAMES_PER_SECOND: f64 = 10.0;

/// A game in the registry.
pub(super) fn entry<R: Rules>() -> EnvEntry {
    EnvEntry {
        name: R::INFO.name,
        aliases: R::INFO.aliases,
        display_name: Cow::Borrowed(R::INFO.display_name),
        suite: "minatar",
        default_preset: "minatar",
        observation: board::observation(R::INFO.colours.len()),
        frames_per_second: FRAMES_PER_SECOND,
        needs_rom: false,
        saves_state: true,
        fixed_settings: &[
            ("frame_skip", "1"),
            ("frame_maximum", "rgb"),
            ("noop_max", "0"),
            ("life_loss_refills", "false"),
            ("press_fire", "never"),
        ],
        make: |_, options, seed| Ok(Box::new(MinAtar::<R>::new(options, seed))),
    }
}

/// The saved state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "R: Rules")]
struct State<R> {
    game: Game<R>,
    rng: ChaCha8Rng,
}

struct MinAtar<R> {
    spec: Spec,
    play: Play,
    state: State<R>,
    observation: Vec<u8>,
}

impl<R: Rules> MinAtar<R> {
    fn new(options: &EnvOptions, seed: u64) -> Self {
        let actions: &[Action] = match options.action_set {
            ActionSet::Minimal => R::INFO.minimal,
            ActionSet::Full => FULL,
        };
        let observation = board::observation(R::INFO.colours.len());
        let bytes = vec![0; observation.bytes()];
        let spec = Spec {
            game: R::INFO.name.to_owned(),
            actions: actions.iter().map(|action| action.name().to_owned()).collect(),
            observation,
            frames_per_step: 1,
        };
        let play = Play {
            actions,
            sticky_actions: options.sticky_actions,
            ramping: options.difficulty_ramping,
            time_limit: options.time_limit_frames,
        };
        let state = State { game: Game::new(), rng: ChaCha8Rng::seed_from_u64(seed) };
        let mut minatar = Self { spec, play, state, observation: bytes };
        minatar.reset();
        minatar
    }

    fn observe(&mut self) {
        self.state.game.rules.show(&mut Board::empty(&mut self.observation));
    }
}

impl<R: Rules> Environment for MinAtar<R> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self) {
        let State { game, rng } = &mut self.state;
        game.reset(rng);
        self.observe();
    }

    fn step(&mut self, action: usize) -> StepOutcome {
        let State { game, rng } = &mut self.state;
        let played = game.step(action, &self.play, rng);
        let truncated = game.ended && !played.terminated;
        self.observe();
        StepOutcome {
            reward: played.reward as f32,
            terminated: played.terminated,
            truncated,
            life_lost: false,
            frames: 1,
        }
    }

    fn observation(&self) -> &[u8] {
        &self.observation
    }

    fn render(&mut self) -> Image {
        board::draw(&self.observation, R::INFO.colours)
    }

    fn save(&self) -> Option<Vec<u8>> {
        Some(saved::seal(R::INFO.name, &self.state))
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError> {
        let state: State<R> = saved::open(R::INFO.name, state)?;
        if !state.game.is_possible(self.play.actions.len()) {
            return Err(EnvError::DamagedState("the rules can't lead to it"));
        }
        self.state = state;
        self.observe();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::GAMES;
    use super::super::breakout::Breakout;
    use super::*;
    use std::collections::BTreeSet;

    fn options(sticky_actions: f64) -> EnvOptions {
        EnvOptions {
            frame_skip: 1,
            frame_maximum: crate::FrameMaximum::Rgb,
            sticky_actions,
            noop_max: 0,
            action_set: ActionSet::Minimal,
            time_limit_frames: 500,
            difficulty_ramping: true,
            roms: None,
        }
    }

    fn breakout(sticky_actions: f64, seed: u64) -> MinAtar<Breakout> {
        MinAtar::new(&options(sticky_actions), seed)
    }

    /// The column of the only object of a channel.
    fn column(breakout: &MinAtar<Breakout>, channel: usize) -> usize {
        let cells = &breakout.observation[100 * channel..][..100];
        cells.iter().position(|&byte| byte != 0).expect("it is always visible") % 10
    }

    /// Moves the paddle towards the ball's column.
    fn follow(breakout: &MinAtar<Breakout>) -> usize {
        match column(breakout, 1).cmp(&column(breakout, 0)) {
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Greater => 2,
        }
    }

    #[test]
    fn a_follower_is_truncated_at_the_time_limit() {
        let mut breakout = breakout(0.0, 1);
        let mut score = 0.0;
        let outcomes = (1..=500).map(|step| {
            let outcome = breakout.step(follow(&breakout));
            score += outcome.reward;
            (step, outcome)
        });
        let (step, outcome) = outcomes.into_iter().find(|(_, outcome)| outcome.done()).unwrap();
        assert!(outcome.truncated && !outcome.terminated && step == 500);
        assert!(score >= 30.0, "the follower clears the board: {score}");
    }

    #[test]
    fn a_sticky_action_is_repeated_as_often_as_the_setting_says() {
        let mut breakout = breakout(0.1, 3);
        let (mut repeated, steps) = (0, 20_000);
        for step in 0..steps {
            let (before, action) = (breakout.state.game.last_action, step % 3);
            let ended = breakout.step(action).done();
            let last = breakout.state.game.last_action;
            repeated += usize::from(last != action);
            assert!(last == action || last == before);
            if ended {
                breakout.reset();
                assert_eq!(breakout.state.game.last_action, last, "a reset does not clear it");
            }
        }
        // A repeat shows unless both actions are the same, which they are after two repeats in a row; 5 standard deviations.
        let rate = repeated as f64 / steps as f64;
        assert!((rate - 0.1).abs() < 0.02, "{rate}");
    }

    /// Plays both games to the end of step `steps`, and compares them.
    fn assert_play_alike(one: &mut dyn Environment, other: &mut dyn Environment, steps: usize) {
        let actions = one.spec().actions.len();
        for step in 0..steps {
            let action = step * 7 / 3 % actions;
            let outcome = one.step(action);
            assert_eq!(outcome, other.step(action), "{}, step {step}", one.spec().game);
            if outcome.done() {
                one.reset();
                other.reset();
            }
            assert_eq!(one.observation(), other.observation(), "{}, step {step}", one.spec().game);
        }
        assert_eq!(one.save(), other.save());
    }

    #[test]
    fn a_game_restored_at_any_time_continues_as_the_original() {
        for entry in GAMES.iter().map(|game| (game.entry)()) {
            let make = |seed| (entry.make)(&entry, &options(0.25), seed).unwrap();
            let mut original = make(5);
            for _ in 0..20 {
                let mut restored = make(99);
                restored.restore(&original.save().unwrap()).unwrap();
                assert_play_alike(original.as_mut(), restored.as_mut(), 137);
            }
        }
    }

    #[test]
    fn ramping_is_an_option() {
        let plays = |difficulty_ramping| {
            let options = EnvOptions { difficulty_ramping, ..options(0.0) };
            let mut asterix = crate::make("MinAtar/Asterix-v1", &options, 1).unwrap();
            // The first ramp is at the end of step 102.
            let played = (0..300).map(|_| {
                if asterix.step(0).terminated {
                    asterix.reset();
                }
                asterix.observation().to_vec()
            });
            played.collect::<Vec<_>>()
        };
        let (with, without) = (plays(true), plays(false));
        assert!(with[..102] == without[..102] && with != without);
    }

    #[test]
    fn the_picture_shows_every_object_that_is_not_covered() {
        let image = breakout(0.0, 1).render();
        let colours: BTreeSet<_> = image.rgb.chunks(3).collect();
        assert_eq!(colours.len(), 4, "background, bricks, ball, paddle: the trail is under the ball");
    }
}
