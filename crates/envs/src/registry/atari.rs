//! Atari: the list of games, and their registry entries.
//!
//! The names are those of the ROMs in ALE's package. They are listed here so that an unknown game and a missing ROM are
//! different errors, and so that crates which only need names build without ALE; a test compares the list with the package.

#[cfg(feature = "ale")]
mod emulated;
#[cfg(feature = "ale")]
mod view;

use std::borrow::Cow;

use super::{EnvEntry, words};
use crate::{Element, EnvError, EnvOptions, Environment, Observation};

/// The side of the square that the screen is scaled to.
const SIDE: usize = 84;

/// Frames per second of an NTSC console.
const FRAMES_PER_SECOND: f64 = 60.0;

/// ROMs of the package that one player can play, sorted.
const GAMES: [&str; 104] = [
    "adventure",
    "air_raid",
    "alien",
    "amidar",
    "assault",
    "asterix",
    "asteroids",
    "atlantis",
    "atlantis2",
    "backgammon",
    "bank_heist",
    "basic_math",
    "battle_zone",
    "beam_rider",
    "berzerk",
    "blackjack",
    "bowling",
    "boxing",
    "breakout",
    "carnival",
    "casino",
    "centipede",
    "chopper_command",
    "crazy_climber",
    "crossbow",
    "darkchambers",
    "defender",
    "demon_attack",
    "donkey_kong",
    "double_dunk",
    "earthworld",
    "elevator_action",
    "enduro",
    "entombed",
    "et",
    "fishing_derby",
    "flag_capture",
    "freeway",
    "frogger",
    "frostbite",
    "galaxian",
    "gopher",
    "gravitar",
    "hangman",
    "haunted_house",
    "hero",
    "human_cannonball",
    "ice_hockey",
    "jamesbond",
    "journey_escape",
    "kaboom",
    "kangaroo",
    "keystone_kapers",
    "king_kong",
    "klax",
    "koolaid",
    "krull",
    "kung_fu_master",
    "laser_gates",
    "lost_luggage",
    "mario_bros",
    "miniature_golf",
    "montezuma_revenge",
    "mr_do",
    "ms_pacman",
    "name_this_game",
    "othello",
    "pacman",
    "phoenix",
    "pitfall",
    "pitfall2",
    "pong",
    "pooyan",
    "private_eye",
    "qbert",
    "riverraid",
    "road_runner",
    "robotank",
    "seaquest",
    "sir_lancelot",
    "skiing",
    "solaris",
    "space_invaders",
    "space_war",
    "star_gunner",
    "superman",
    "surround",
    "tennis",
    "tetris",
    "tic_tac_toe_3d",
    "time_pilot",
    "trondead",
    "turmoil",
    "tutankham",
    "up_n_down",
    "venture",
    "video_checkers",
    "video_chess",
    "video_cube",
    "video_pinball",
    "wizard_of_wor",
    "word_zapper",
    "yars_revenge",
    "zaxxon",
];

/// ROMs of the package for which ALE has no single-player rules.
pub(super) const TWO_PLAYERS: [&str; 4] = ["combat", "joust", "maze_craze", "warlords"];

/// One entry per game.
pub(super) fn entries() -> impl Iterator<Item = EnvEntry> {
    GAMES.into_iter().map(|name| EnvEntry {
        name,
        aliases: &[],
        display_name: Cow::Owned(words(name)),
        suite: "atari",
        default_preset: "paper-atari",
        observation: observation(),
        frames_per_second: FRAMES_PER_SECOND,
        needs_rom: true,
        saves_state: true,
        fixed_settings: &[("difficulty_ramping", "true")],
        make,
    })
}

fn observation() -> Observation {
    Observation { element: Element::U8, shape: vec![SIDE, SIDE] }
}

#[cfg(feature = "ale")]
fn make(entry: &EnvEntry, options: &EnvOptions, seed: u64) -> Result<Box<dyn Environment>, EnvError> {
    Ok(Box::new(emulated::Atari::new(entry.name, options, seed)?))
}

#[cfg(not(feature = "ale"))]
fn make(entry: &EnvEntry, _options: &EnvOptions, _seed: u64) -> Result<Box<dyn Environment>, EnvError> {
    Err(EnvError::BuiltWithoutAle(entry.name))
}
