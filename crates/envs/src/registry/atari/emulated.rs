//! Atari as DQN plays it: an action is held for a few frames, and the agent sees the brighter of the last two in gray,
//! scaled to 84×84.
//!
//! The brighter of two, because games draw some sprites only every other frame. Gray first and then the maximum, as
//! Gymnasium's `AtariPreprocessing` does.

use ale::{Action, Ale};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{SIDE, observation};
use crate::scale::AreaScaler;
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
        let view = View::new(&ale);
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
        self.view.observe(&self.ale, false, &mut self.state.observation);
    }

    fn step(&mut self, action: usize) -> StepOutcome {
        debug_assert!(!self.state.ended, "step after the end of an episode");
        let action = self.actions[action];
        let (mut reward, mut frames, mut terminated) = (0, 0, false);
        while frames < self.options.frame_skip && !terminated {
            // The frame before the last is the other one of the two that the agent sees.
            if frames > 0 && frames + 1 == self.options.frame_skip {
                self.view.keep(&self.ale);
            }
            reward += self.frame(action);
            frames += 1;
            terminated = self.ale.game_over();
        }
        // A game that ends early within the skip shows its last frame alone.
        let pooled = frames > 1 && frames == self.options.frame_skip;
        self.view.observe(&self.ale, pooled, &mut self.state.observation);

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

/// From the emulator's screens to an observation.
struct View {
    width: usize,
    /// The palette indices of the frame before the last.
    kept: Vec<u8>,
    gray: Vec<u8>,
    scaler: AreaScaler,
}

impl View {
    fn new(ale: &Ale) -> View {
        let (width, height) = (ale.width(), ale.height());
        let scaler = AreaScaler::new((height, width), (SIDE, SIDE));
        View { width, kept: vec![0; width * height], gray: vec![0; width * height], scaler }
    }

    fn keep(&mut self, ale: &Ale) {
        self.kept.copy_from_slice(ale.screen());
    }

    /// The screen in gray, maximised with the kept one if `pooled`, and scaled.
    fn observe(&mut self, ale: &Ale, pooled: bool, out: &mut [u8]) {
        let new = ale.screen();
        let old = if pooled { self.kept.as_slice() } else { new };
        brighter(new, old, self.width, ale.gray_palette(), &mut self.gray);
        self.scaler.scale(&self.gray, out);
    }
}

/// The brighter of two screens, pixel by pixel. Many rows of an Atari screen are like the row above, and most of a frame is
/// like the frame before; comparing rows is much faster than looking up their pixels.
fn brighter(new: &[u8], old: &[u8], width: usize, palette: &[u8; 256], gray: &mut [u8]) {
    let shade = |index: &u8| palette[usize::from(*index)];
    let mut above: Option<(&[u8], &[u8])> = None;
    let rows = new.chunks_exact(width).zip(old.chunks_exact(width));
    for (y, (new, old)) in rows.enumerate() {
        if above == Some((new, old)) {
            gray.copy_within((y - 1) * width..y * width, y * width);
            continue;
        }
        above = Some((new, old));
        let row = &mut gray[y * width..][..width];
        if new == old {
            row.iter_mut().zip(new).for_each(|(pixel, new)| *pixel = shade(new));
        } else {
            row.iter_mut()
                .zip(new.iter().zip(old))
                .for_each(|(pixel, (new, old))| *pixel = shade(new).max(shade(old)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn brighter_takes_the_maximum_of_each_pixel(
            rows in prop::collection::vec((prop::sample::select(vec![0u8, 2, 200]), prop::bool::ANY), 1..20),
            palette in prop::collection::vec(any::<u8>(), 256),
        ) {
            // Rows of three kinds, so that repeated rows and rows that differ between the screens are both common.
            let width = 5;
            let palette: [u8; 256] = palette.try_into().unwrap();
            let new: Vec<u8> = rows.iter().flat_map(|(kind, _)| (0..5).map(move |x| kind + x)).collect();
            let old: Vec<u8> = rows.iter().flat_map(|(kind, same)| (0..5).map(move |x| kind + x * u8::from(*same))).collect();
            let mut gray = vec![0; new.len()];
            brighter(&new, &old, width, &palette, &mut gray);
            for i in 0..new.len() {
                prop_assert_eq!(gray[i], palette[usize::from(new[i])].max(palette[usize::from(old[i])]));
            }
        }
    }
}
