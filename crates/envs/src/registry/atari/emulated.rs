//! Atari as DQN plays it: an action is held for a few frames, and the agent sees the maximum of the last two in gray, scaled
//! to 84×84 (`view.rs`).

use ale::{Action, Ale};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::view::View;
use super::{SIDE, observation};
use crate::{ActionSet, EnvError, EnvOptions, Environment, Image, Spec, StepOutcome, roms, saved};

/// The saved state, without the emulator's.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    rng: ChaCha8Rng,
    /// ALE's number of the action played at the last frame, which sticky actions repeat.
    last_action: u8,
    /// Frames of this episode, without those at its start.
    frames: u32,
    lives: i32,
    ended: bool,
    observation: Vec<u8>,
}

pub(super) struct Atari {
    spec: Spec,
    options: EnvOptions,
    actions: Vec<Action>,
    ale: Ale,
    state: State,
    view: View,
}

impl Atari {
    /// The ROM of `game`, a canonical name, at the start of its first episode.
    pub(super) fn new(game: &str, options: &EnvOptions, seed: u64) -> Result<Atari, EnvError> {
        let path = roms::find(game, options.roms.as_deref())?;
        // ALE's own seed has no effect while its sticky actions are off.
        let ale = Ale::load(&path, 0)?;
        if ale.game() != game {
            return Err(EnvError::RomMixedUp { path, found: ale.game().to_owned() });
        }
        let actions = match options.action_set {
            ActionSet::Minimal => ale.minimal_actions(),
            ActionSet::Full => ale.legal_actions(),
        };
        let spec = Spec {
            game: game.to_owned(),
            actions: actions.iter().map(|action| action.name().to_owned()).collect(),
            observation: observation(),
            frames_per_step: options.frame_skip,
        };
        let state = State {
            rng: ChaCha8Rng::seed_from_u64(seed),
            last_action: Action::NOOP.number(),
            frames: 0,
            lives: 0,
            ended: false,
            observation: vec![0; SIDE * SIDE],
        };
        let view = View::new(&ale, options.frame_maximum);
        let mut atari = Atari { spec, options: options.clone(), actions, ale, state, view };
        atari.reset();
        Ok(atari)
    }

    /// Plays one frame of `action`, or of the action before it if that one sticks.
    fn frame(&mut self, action: Action) -> i32 {
        let sticky = self.options.sticky_actions;
        let state = &mut self.state;
        if sticky == 0.0 || !state.rng.random_bool(sticky) {
            state.last_action = action.number();
        }
        let played = Action::from_number(state.last_action).unwrap_or(Action::NOOP);
        self.ale.act(played)
    }
}

impl Environment for Atari {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self) {
        self.ale.reset();
        if self.options.noop_max > 0 {
            for _ in 0..self.state.rng.random_range(1..=self.options.noop_max) {
                self.ale.act(Action::NOOP);
                if self.ale.game_over() {
                    self.ale.reset();
                }
            }
        }
        self.state.last_action = Action::NOOP.number();
        self.state.frames = 0;
        self.state.lives = self.ale.lives();
        self.state.ended = false;
        self.view.observe(self.ale.screen(), false, &mut self.state.observation);
    }

    fn step(&mut self, action: usize) -> StepOutcome {
        debug_assert!(!self.state.ended, "step after the end of an episode");
        let action = self.actions[action];
        let (mut reward, mut frames, mut terminated) = (0, 0, false);
        while frames < self.options.frame_skip && !terminated {
            // The frame before the last is the other one of the two that the agent sees.
            if frames > 0 && frames + 1 == self.options.frame_skip {
                self.view.keep(self.ale.screen());
            }
            reward += self.frame(action);
            frames += 1;
            terminated = self.ale.game_over();
        }
        // A game that ends early within the skip shows its last frame alone.
        let pooled = frames > 1 && frames == self.options.frame_skip;
        self.view.observe(self.ale.screen(), pooled, &mut self.state.observation);

        let state = &mut self.state;
        state.frames += frames;
        let limit = self.options.time_limit_frames;
        let truncated = !terminated && limit > 0 && state.frames >= limit;
        let lives = self.ale.lives();
        let life_lost = !terminated && 0 < lives && lives < state.lives;
        state.lives = lives;
        state.ended = terminated || truncated;
        StepOutcome { reward: reward as f32, terminated, truncated, life_lost, frames }
    }

    fn observation(&self) -> &[u8] {
        &self.state.observation
    }

    fn render(&mut self) -> Image {
        let (width, height) = (self.ale.width(), self.ale.height());
        let mut rgb = vec![0; 3 * width * height];
        self.ale.screen_rgb(&mut rgb);
        Image { width, height, rgb }
    }

    fn save(&self) -> Option<Vec<u8>> {
        let emulator = self.ale.save_state().expect("a loaded emulator can be saved");
        Some(saved::seal(&self.spec.game, &(&self.state, emulator)))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let (state, emulator): (State, Vec<u8>) = saved::open(&self.spec.game, bytes)?;
        if state.observation.len() != SIDE * SIDE || Action::from_number(state.last_action).is_none() {
            return Err(EnvError::DamagedState("it is of another shape"));
        }
        self.ale.restore_state(&emulator)?;
        self.state = state;
        Ok(())
    }
}
