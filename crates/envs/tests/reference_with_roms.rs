//! Needs ROMs. Replays what the reference Python binding played (`fixtures/make.py`) in the paper's nine games: every raw
//! screen, reward, number of lives and game over exactly, and the scaled picture within 1 of OpenCV's area interpolation. The
//! fixtures have the maximum of two frames in gray; that of the colours is compared with a plain computation.

use std::fmt::Write;

use envs::scale::AreaScaler;
use envs::{ActionSet, EnvOptions, Environment, FrameMaximum, roms};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Fixture {
    game: String,
    seed: i32,
    minimal_actions: Vec<u8>,
    height: usize,
    width: usize,
    actions: String,
    /// Step and points, where there were any.
    rewards: Vec<(usize, i32)>,
    /// Lives, and for how many steps.
    lives: Vec<(i32, usize)>,
    /// Steps within which the game ended, and after how many frames.
    ends: Vec<(usize, u32)>,
    /// 16 digits for each step: the start of the hash of its frames.
    hashes: String,
    crops: Vec<Crop>,
}

#[derive(Deserialize)]
struct Crop {
    step: usize,
    y: usize,
    x: usize,
    pixels: String,
}

const SKIP: u32 = 4;
const CROP: usize = 8;

impl Fixture {
    fn read(json: &str) -> Fixture {
        serde_json::from_str(json).unwrap()
    }

    fn actions(&self) -> Vec<u8> {
        self.actions.split(' ').map(|number| number.parse().unwrap()).collect()
    }

    fn reward(&self, step: usize) -> i32 {
        self.rewards.iter().find(|(at, _)| *at == step).map_or(0, |(_, reward)| *reward)
    }

    fn end(&self, step: usize) -> Option<u32> {
        self.ends.iter().find(|(at, _)| *at == step).map(|(_, frames)| *frames)
    }

    fn lives(&self) -> Vec<i32> {
        self.lives.iter().flat_map(|&(lives, steps)| std::iter::repeat_n(lives, steps)).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn the_emulator_plays_the_same(fixture: &Fixture) {
    let rom = roms::find(&fixture.game, None).unwrap();
    let mut emulator = ale::Ale::load(&rom, fixture.seed).unwrap();
    assert_eq!((emulator.height(), emulator.width()), (fixture.height, fixture.width));
    let minimal: Vec<u8> = emulator.minimal_actions().iter().map(|action| action.number()).collect();
    assert_eq!(minimal, fixture.minimal_actions);
    emulator.reset();
    let mut gray = vec![0; fixture.height * fixture.width];
    let lives = fixture.lives();
    for (step, action) in fixture.actions().into_iter().enumerate() {
        let action = ale::Action::from_number(action).unwrap();
        let (mut reward, mut frames, mut hash) = (0, 0, Sha256::new());
        while frames < SKIP && !emulator.game_over() {
            reward += emulator.act(action);
            frames += 1;
            emulator.screen_gray(&mut gray);
            hash.update(&gray);
        }
        let at = format!("{} step {step}", fixture.game);
        assert_eq!(hex(&hash.finalize()[..8]), fixture.hashes[16 * step..][..16], "{at}: screens");
        assert_eq!(reward, fixture.reward(step), "{at}: reward");
        assert_eq!(emulator.lives(), lives[step], "{at}: lives");
        assert_eq!(emulator.game_over().then_some(frames), fixture.end(step), "{at}: game over");
        if emulator.game_over() {
            emulator.reset();
        }
    }
}

fn options(frame_maximum: FrameMaximum) -> EnvOptions {
    EnvOptions {
        frame_skip: SKIP,
        frame_maximum,
        sticky_actions: 0.0,
        noop_max: 0,
        action_set: ActionSet::Minimal,
        time_limit_frames: 0,
        difficulty_ramping: true,
        roms: None,
    }
}

fn the_environment_shows_the_same(fixture: &Fixture) {
    let mut environment = envs::make(&fixture.game, &options(FrameMaximum::Gray), 0).unwrap();
    let lives = fixture.lives();
    let mut crops = fixture.crops.iter().peekable();
    for (step, action) in fixture.actions().into_iter().enumerate() {
        let action = fixture.minimal_actions.iter().position(|&number| number == action).unwrap();
        let outcome = environment.step(action);
        let at = format!("{} step {step}", fixture.game);
        assert_eq!(outcome.reward, fixture.reward(step) as f32, "{at}: reward");
        assert_eq!(outcome.frames, fixture.end(step).unwrap_or(SKIP), "{at}: frames");
        assert_eq!(outcome.terminated, fixture.end(step).is_some(), "{at}: terminated");
        let lost = !outcome.terminated && step > 0 && 0 < lives[step] && lives[step] < lives[step - 1];
        assert_eq!(outcome.life_lost, lost, "{at}: life lost");
        if let Some(crop) = crops.next_if(|crop| crop.step == step) {
            assert_near(environment.as_ref(), crop, &at);
        }
        if outcome.done() {
            environment.reset();
        }
    }
    assert!(crops.next().is_none());
}

/// Plays the emulator beside the environment, and returns how many observations differ from the maximum in gray.
fn the_maximum_is_that_of_the_colours(fixture: &Fixture) -> usize {
    let mut colours = envs::make(&fixture.game, &options(FrameMaximum::Rgb), 0).unwrap();
    let mut gray = envs::make(&fixture.game, &options(FrameMaximum::Gray), 0).unwrap();
    let mut emulator = ale::Ale::load(&roms::find(&fixture.game, None).unwrap(), 0).unwrap();
    emulator.reset();
    let pixels = fixture.height * fixture.width;
    let (mut last, mut before) = (vec![0; 3 * pixels], vec![0; 3 * pixels]);
    let mut scaler = AreaScaler::new((fixture.height, fixture.width), (84, 84));
    let (mut expected, mut differ) = (vec![0; 84 * 84], 0);
    for (step, action) in fixture.actions().into_iter().enumerate() {
        let index = fixture.minimal_actions.iter().position(|&number| number == action).unwrap();
        gray.step(index);
        let outcome = colours.step(index);
        for _ in 0..outcome.frames {
            emulator.act(ale::Action::from_number(action).unwrap());
            std::mem::swap(&mut last, &mut before);
            emulator.screen_rgb(&mut last);
        }
        if outcome.done() {
            emulator.reset();
            colours.reset();
            gray.reset();
            continue;
        }
        let maximum: Vec<u8> = last.iter().zip(&before).map(|(a, b)| *a.max(b)).collect();
        let luminance = |rgb: &[u8]| {
            (f64::from(rgb[0]) * 0.2989 + f64::from(rgb[1]) * 0.587 + f64::from(rgb[2]) * 0.114).round() as u8
        };
        scaler.scale(&maximum.chunks(3).map(luminance).collect::<Vec<_>>(), &mut expected);
        assert!(colours.observation() == expected, "{} step {step}", fixture.game);
        differ += usize::from(gray.observation() != expected);
    }
    differ
}

fn assert_near(environment: &dyn Environment, crop: &Crop, at: &str) {
    for row in 0..CROP {
        let pixels = &environment.observation()[84 * (crop.y + row) + crop.x..][..CROP];
        let digits = crop.pixels.as_bytes()[2 * CROP * row..][..2 * CROP].chunks(2);
        let expected = digits.map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap());
        for (pixel, expected) in pixels.iter().zip(expected) {
            assert!(pixel.abs_diff(expected) <= 1, "{at}: {pixel} for {expected}");
        }
    }
}

macro_rules! replay {
    ($($game:ident)*) => {$(
        mod $game {
            use super::*;

            fn fixture() -> Fixture {
                Fixture::read(include_str!(concat!("fixtures/", stringify!($game), ".json")))
            }

            #[test]
            fn the_emulator_plays_the_same() {
                super::the_emulator_plays_the_same(&fixture());
            }

            #[test]
            fn the_environment_shows_the_same() {
                super::the_environment_shows_the_same(&fixture());
            }

            #[test]
            fn the_maximum_is_that_of_the_colours() {
                let differ = super::the_maximum_is_that_of_the_colours(&fixture());
                // In these two games no pixel of random play mixes two colours.
                let never_mix = ["boxing", "space_invaders"];
                assert_eq!(differ == 0, never_mix.contains(&stringify!($game)), "{differ} observations differ");
            }
        }
    )*};
}

replay!(alien battle_zone beam_rider boxing demon_attack ms_pacman qbert seaquest space_invaders);
