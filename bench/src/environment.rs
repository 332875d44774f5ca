//! Frames per second of our Atari against the bare emulator.
//!
//! Both sides restart a game, hold the same random actions for the same frames and reset when the game is over, so they
//! play the very same games; that frames and points agree is checked after every slice. No-op starts, sticky actions
//! and the time limit are off on our side, for the emulator alone has none. The frames that ALE plays within its own
//! reset cost both sides time and count for neither.

use ale::{Action, Ale};
use anyhow::{Result, ensure};
use envs::{ActionSet, EnvOptions, Environment, FrameMaximum};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::measure::{ROUNDS, Rates, cpu_seconds};
use crate::section::{Row, Section};

/// A simple game, one with many sprites of one kind, one with many of several.
const GAMES: [&str; 3] = ["pong", "breakout", "seaquest"];

/// Frames for which an action is held.
const SKIP: u32 = 4;

/// Steps that one side plays before it is the other's turn.
const SLICE_STEPS: u64 = 50;

pub fn section(seconds: f64) -> Result<Section> {
    Ok(Section {
        topic: "environment",
        title: format!("emulator frames/s on one core, random play, actions held {SKIP} frames"),
        columns: &["ours", "ours median", "bare ALE", "bare median", "ratio"],
        rows: GAMES.into_iter().map(|game| row(game, seconds)).collect::<Result<_>>()?,
    })
}

/// Both sides of one game, taking turns.
fn row(game: &str, seconds: f64) -> Result<Row> {
    let options = EnvOptions {
        frame_skip: SKIP,
        frame_maximum: FrameMaximum::Rgb,
        sticky_actions: 0.0,
        noop_max: 0,
        action_set: ActionSet::Minimal,
        time_limit_frames: 0,
        difficulty_ramping: true,
        roms: None,
    };
    let mut ours = envs::make(game, &options, 0)?;
    let mut bare = Ale::load(&envs::roms::find(game, None)?, 0)?;
    bare.reset();
    let actions = bare.minimal_actions();
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut slice = || -> Result<Slice> {
        let sequence: Vec<usize> = (0..SLICE_STEPS).map(|_| rng.random_range(0..actions.len())).collect();
        let start = cpu_seconds();
        let played = play(ours.as_mut(), &sequence);
        let middle = cpu_seconds();
        let played_bare = play_bare(&mut bare, sequence.iter().map(|&action| actions[action]));
        let end = cpu_seconds();
        ensure!(played == played_bare, "{game}: ours {played:?} and the emulator {played_bare:?} differ");
        Ok(Slice { frames: played.frames, ours_seconds: middle - start, bare_seconds: end - middle })
    };
    slice()?;
    let (mut ours_rates, mut bare_rates) = (Rates::default(), Rates::default());
    for round in 0..ROUNDS {
        let mut stretch = Slice::default();
        while stretch.ours_seconds < seconds {
            let slice = slice()?;
            stretch.frames += slice.frames;
            stretch.ours_seconds += slice.ours_seconds;
            stretch.bare_seconds += slice.bare_seconds;
        }
        ours_rates.0[round] = stretch.frames as f64 / stretch.ours_seconds;
        bare_rates.0[round] = stretch.frames as f64 / stretch.bare_seconds;
    }
    let ratio = ours_rates.ratio(&bare_rates);
    let cells = [ours_rates.best(), ours_rates.median(), bare_rates.best(), bare_rates.median(), ratio];
    Ok(Row { name: game.to_owned(), cells: cells.map(Some).into() })
}

/// Frames that both sides played, and the CPU time that each took for them.
#[derive(Default)]
struct Slice {
    /// Frames of either side.
    frames: u64,
    ours_seconds: f64,
    bare_seconds: f64,
}

/// What a slice of play came to.
#[derive(Debug, Default, PartialEq)]
struct Played {
    frames: u64,
    points: i64,
    games: u64,
}

/// Our side: one step per action.
fn play(environment: &mut dyn Environment, actions: &[usize]) -> Played {
    let mut played = Played::default();
    for &action in actions {
        let outcome = environment.step(action);
        played.frames += u64::from(outcome.frames);
        played.points += outcome.reward as i64;
        if outcome.done() {
            played.games += 1;
            environment.reset();
        }
    }
    played
}

/// The emulator's side: the same frames, and no look at the screen.
fn play_bare(ale: &mut Ale, actions: impl Iterator<Item = Action>) -> Played {
    let mut played = Played::default();
    for action in actions {
        for _ in 0..SKIP {
            played.points += i64::from(ale.act(action));
            played.frames += 1;
            if ale.game_over() {
                played.games += 1;
                ale.reset();
                break;
            }
        }
    }
    played
}
