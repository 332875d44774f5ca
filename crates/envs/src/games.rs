//! The names of the games, and what people type instead of them.
//!
//! The list is of the ROMs in ALE's package. It is written down here so that an unknown game and a missing ROM are
//! different mistakes; a test compares it with the package.

use crate::EnvError;
use crate::cartpole;

/// The ROMs of the package that one player can play, sorted.
const ATARI: [&str; 104] = [
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

/// The ROMs of the package that ALE has no single-player rules for.
const TWO_PLAYERS: [&str; 4] = ["combat", "joust", "maze_craze", "warlords"];

/// Parts that Gym's names add to a game's: `PongNoFrameskip-v4`, `PongDeterministic-v0`, `Pong-ramNoFrameskip-v4`.
const GYM_SUFFIXES: [&str; 3] = ["noframeskip", "deterministic", "-ram"];

/// How many nearest names an unknown one is answered with, at most.
const NEAREST: usize = 3;

/// A name this much less similar than the nearest one is not worth mentioning.
const SIMILARITY_MARGIN: f64 = 0.06;

/// Every game that [`crate::make`] makes, sorted.
pub fn games() -> Vec<String> {
    let mut names: Vec<String> = names().map(str::to_owned).collect();
    names.sort();
    names
}

/// Whether `name` is a game; if not, the error names the nearest. No ROM is needed.
pub fn check_game(name: &str) -> Result<(), EnvError> {
    canonical(name).map(drop)
}

/// The game's name as [`games`] lists it. Case, spaces, dashes and underscores do not matter, and Gym's names are
/// understood: `MsPacman`, `ms-pacman`, `ALE/MsPacman-v5` and `MsPacmanNoFrameskip-v4` are all `ms_pacman`.
pub fn canonical(name: &str) -> Result<String, EnvError> {
    let wanted = key(&without_gym(name));
    let is_it = |game: &&str| key(game) == wanted;
    if let Some(game) = names().find(is_it) {
        return Ok(game.to_owned());
    }
    if let Some(game) = TWO_PLAYERS.into_iter().find(is_it) {
        return Err(EnvError::TwoPlayers(game.to_owned()));
    }
    Err(EnvError::UnknownGame { name: name.to_owned(), nearest: nearest(&wanted) })
}

fn names() -> impl Iterator<Item = &'static str> {
    ATARI.into_iter().chain([cartpole::NAME])
}

/// Letters and digits alone.
fn key(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// The name without `ALE/`, `-v5` and the like.
fn without_gym(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let mut name = name.strip_prefix("ale/").unwrap_or(&name);
    if let Some((game, version)) = name.rsplit_once("-v")
        && version.parse::<u32>().is_ok()
    {
        name = game;
    }
    for suffix in GYM_SUFFIXES {
        name = name.strip_suffix(suffix).unwrap_or(name);
    }
    name.to_owned()
}

fn nearest(wanted: &str) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> =
        names().map(|game| (strsim::jaro_winkler(wanted, &key(game)), game)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let best = scored[0].0;
    let close = scored.iter().take(NEAREST).take_while(|(score, _)| *score >= best - SIMILARITY_MARGIN);
    close.map(|(_, game)| (*game).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_its_own_canonical_name() {
        for game in games() {
            assert_eq!(canonical(&game).unwrap(), game);
        }
    }

    #[test]
    fn the_list_is_sorted_and_has_cartpole() {
        let games = games();
        assert!(games.is_sorted());
        assert_eq!(games.len(), ATARI.len() + 1);
        assert!(games.contains(&"cartpole".to_owned()));
    }

    #[test]
    fn usual_spellings_are_understood() {
        let check = |name: &str, expected: &str| assert_eq!(canonical(name).unwrap(), expected, "{name}");
        for name in ["MsPacman", "ms-pacman", "Ms Pacman", "ms_pacman", "MSPACMAN", "ALE/MsPacman-v5"] {
            check(name, "ms_pacman");
        }
        for name in
            ["Pong", " pong ", "ALE/Pong-v5", "PongNoFrameskip-v4", "PongDeterministic-v0", "Pong-ram-v4"]
        {
            check(name, "pong");
        }
        check("Pong-ramNoFrameskip-v4", "pong");
        check("Pitfall2", "pitfall2");
        check("Qbert", "qbert");
        check("CartPole-v0", "cartpole");
    }

    #[test]
    fn a_misspelled_game_is_answered_with_the_nearest() {
        let check = |name: &str, expected: &str| match canonical(name) {
            Err(EnvError::UnknownGame { nearest, .. }) => assert_eq!(nearest[0], expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        };
        check("pogn", "pong");
        check("brekout", "breakout");
        check("space-invader", "space_invaders");
        check("cart-pol", "cartpole");
        check("mspacmann", "ms_pacman");
        assert!(matches!(canonical(""), Err(EnvError::UnknownGame { nearest, .. }) if !nearest.is_empty()));
    }

    #[test]
    fn a_game_for_two_says_so() {
        assert!(matches!(canonical("Joust"), Err(EnvError::TwoPlayers(name)) if name == "joust"));
    }
}
