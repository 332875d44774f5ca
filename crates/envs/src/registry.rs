//! The list of environments: what each is called, and what the rest of the system must know before one is made.
//!
//! Nothing outside this crate compares names. Settings, presets, the launcher and the plots read an environment's [`EnvEntry`].
//! To add an environment, write its file in `registry/` with an `entry` function, and add the module and a line in [`build`].

mod atari;
mod cartpole;
mod minatar;

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::{EnvError, EnvOptions, Environment, Observation};

pub use cartpole::CARTPOLE;
pub use minatar::replay as minatar_replay;

/// One environment in the registry.
#[derive(Debug)]
pub struct EnvEntry {
    /// The canonical name: what people type, and what a run's directory records.
    pub name: &'static str,
    /// Other names it goes by. Case, punctuation and Gym's decorations never matter; see [`find`].
    pub aliases: &'static [&'static str],
    /// The name in titles and on pages.
    pub display_name: Cow<'static, str>,
    /// Environments of one suite share their presets.
    pub suite: &'static str,
    /// The preset of a run that asks for none.
    pub default_preset: &'static str,
    /// The shape of an observation, known without making the environment.
    pub observation: Observation,
    /// Frames per second of a video at the speed that people play.
    pub frames_per_second: f64,
    /// Whether it is made from a ROM.
    pub needs_rom: bool,
    /// Whether [`Environment::save`] works. Lockstep requires it, since its checkpoints hold every environment.
    pub saves_state: bool,
    /// Environment settings that it does not vary, as (setting, the only value it accepts).
    pub fixed_settings: &'static [(&'static str, &'static str)],
    make: Make,
}

/// Makes an environment of an entry from options and a seed.
type Make = fn(&EnvEntry, &EnvOptions, u64) -> Result<Box<dyn Environment>, EnvError>;

static ENTRIES: LazyLock<Vec<EnvEntry>> = LazyLock::new(build);

/// The list itself, sorted by name.
fn build() -> Vec<EnvEntry> {
    let mut entries = vec![cartpole::entry()];
    entries.extend(minatar::entries());
    entries.extend(atari::entries());
    entries.sort_by_key(|entry| entry.name);
    entries
}

/// Suffixes of Gym's ids: `PongNoFrameskip-v4`, `PongDeterministic-v0`.
const GYM_SUFFIXES: [&str; 2] = ["noframeskip", "deterministic"];

/// Suffix of Gym's ids with the emulator's memory as observation: `Pong-ramNoFrameskip-v4`.
const GYM_RAM: &str = "-ram";

/// How many nearest names an unknown one is answered with, at most.
const NEAREST: usize = 3;

/// A name this much less similar than the nearest one is not worth mentioning.
const SIMILARITY_MARGIN: f64 = 0.06;

/// Every environment, sorted by name.
pub fn entries() -> &'static [EnvEntry] {
    &ENTRIES
}

/// The names of all environments, sorted.
pub fn games() -> Vec<String> {
    entries().iter().map(|entry| entry.name.to_owned()).collect()
}

/// The entry of the environment called `name`. Case, spaces, dashes and underscores do not matter, and Gym's names are
/// understood: `MsPacman`, `ms-pacman`, `ALE/MsPacman-v5` and `MsPacmanNoFrameskip-v4` are all `ms_pacman`. An unknown
/// name is an error that lists the nearest ones. No ROM is needed.
pub fn find(name: &str) -> Result<&'static EnvEntry, EnvError> {
    let game = gym_id(name).0;
    if game.ends_with(GYM_RAM) {
        return Err(EnvError::RamObservations(name.to_owned()));
    }
    let wanted = key(&game);
    let called = |game: &str| key(game) == wanted;
    if let Some(entry) = entries().iter().find(|entry| names(entry).any(called)) {
        return Ok(entry);
    }
    if let Some(game) = atari::TWO_PLAYERS.into_iter().find(|game| called(game)) {
        return Err(EnvError::TwoPlayers(game.to_owned()));
    }
    Err(EnvError::UnknownGame { name: name.to_owned(), nearest: nearest(&wanted) })
}

/// Makes an environment, at the start of its first episode. `game` may be spelled as [`find`] allows.
pub fn make(game: &str, options: &EnvOptions, seed: u64) -> Result<Box<dyn Environment>, EnvError> {
    let entry = find(game)?;
    options.check()?;
    (entry.make)(entry, options, seed)
}

/// The canonical name of the environment called `name`, as [`find`] understands it.
pub fn canonical(name: &str) -> Result<String, EnvError> {
    Ok(find(name)?.name.to_owned())
}

/// The name of an environment in titles. A run of an environment that this version lacks keeps a readable title.
pub fn display_name(game: &str) -> String {
    find(game).map_or_else(|_| words(game), |entry| entry.display_name.to_string())
}

/// `space_invaders` as `Space Invaders`.
fn words(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
    };
    name.split('_').filter(|word| !word.is_empty()).map(capital).collect::<Vec<_>>().join(" ")
}

fn names(entry: &EnvEntry) -> impl Iterator<Item = &'static str> {
    entry.aliases.iter().copied().chain([entry.name])
}

/// Letters and digits alone.
fn key(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// The setting on which the versions of a Gym id differ, and its value in the version that `name` has. `None` without a
/// version: `CartPole-v0` has 200 steps and v1 has 500; Atari's v0 and v5 have sticky actions and v4 does not.
pub fn gym_setting(name: &str) -> Option<(&'static str, &'static str)> {
    let (_, version) = gym_id(name);
    match (find(name).ok()?.suite, version?) {
        ("cartpole", 0) => Some(("time_limit_frames", "200")),
        ("cartpole", 1) => Some(("time_limit_frames", "500")),
        ("atari", 0 | 5) => Some(("sticky_actions", "0.25")),
        ("atari", 4) => Some(("sticky_actions", "0")),
        _ => None,
    }
}

/// The game's name in a Gym id, without `ALE/`, `-v5` and the like, and the id's version.
fn gym_id(name: &str) -> (String, Option<u32>) {
    let name = name.trim().to_ascii_lowercase();
    let mut name = name.strip_prefix("ale/").unwrap_or(&name);
    let mut version = None;
    if let Some((game, number)) = name.rsplit_once("-v")
        && let Ok(number) = number.parse()
    {
        (name, version) = (game, Some(number));
    }
    for suffix in GYM_SUFFIXES {
        name = name.strip_suffix(suffix).unwrap_or(name);
    }
    (name.to_owned(), version)
}

fn nearest(wanted: &str) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> =
        entries().iter().map(|entry| (strsim::jaro_winkler(wanted, &key(entry.name)), entry.name)).collect();
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
    fn entries_are_sorted_and_no_two_share_a_name() {
        assert!(games().is_sorted());
        let mut keys: Vec<String> = entries().iter().flat_map(names).map(key).collect();
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count, "a name or an alias is used twice");
    }

    #[test]
    fn an_environment_is_what_its_entry_declares() {
        let options = EnvOptions {
            frame_skip: 1,
            frame_maximum: crate::FrameMaximum::Rgb,
            sticky_actions: 0.0,
            noop_max: 0,
            action_set: crate::ActionSet::Minimal,
            time_limit_frames: 0,
            difficulty_ramping: true,
            roms: None,
        };
        for entry in entries().iter().filter(|entry| !entry.needs_rom) {
            let mut environment = make(entry.name, &options, 1).unwrap();
            assert_eq!(environment.spec().game, entry.name);
            assert_eq!(environment.spec().observation, entry.observation);
            assert_eq!(environment.observation().len(), entry.observation.bytes());
            assert_eq!(environment.save().is_some(), entry.saves_state);
            if let Some(saved) = environment.save() {
                assert_continues_alike(environment.as_mut(), entry.name, &options, &saved);
            }
            let image = environment.render();
            assert_eq!(image.rgb.len(), 3 * image.width * image.height);
        }
    }

    /// A restored environment of another seed plays the same 300 steps.
    fn assert_continues_alike(
        original: &mut dyn Environment,
        name: &str,
        options: &EnvOptions,
        saved: &[u8],
    ) {
        let mut restored = make(name, options, 99).unwrap();
        restored.restore(saved).unwrap();
        let actions = original.spec().actions.len();
        for step in 0..300 {
            assert_eq!(original.observation(), restored.observation(), "{name}, step {step}");
            let outcome = original.step(step * 7 % actions);
            assert_eq!(outcome, restored.step(step * 7 % actions), "{name}, step {step}");
            if outcome.done() {
                original.reset();
                restored.reset();
            }
        }
        assert_eq!(original.save(), restored.save(), "{name}");
        assert!(restored.restore(&saved[..saved.len() - 1]).is_err(), "{name}: a cut state");
    }

    #[test]
    fn names_become_titles() {
        assert_eq!(display_name("space_invaders"), "Space Invaders");
        assert_eq!(display_name("cartpole"), "CartPole");
        assert_eq!(display_name("no_such__game"), "No Such Game");
    }

    #[test]
    fn usual_spellings_are_understood() {
        let check = |name: &str, expected: &str| assert_eq!(canonical(name).unwrap(), expected, "{name}");
        for name in ["MsPacman", "ms-pacman", "Ms Pacman", "ms_pacman", "MSPACMAN", "ALE/MsPacman-v5"] {
            check(name, "ms_pacman");
        }
        for name in ["Pong", " pong ", "ALE/Pong-v5", "PongNoFrameskip-v4", "PongDeterministic-v0"] {
            check(name, "pong");
        }
        check("Pitfall2", "pitfall2");
        check("Qbert", "qbert");
        check("CartPole-v0", "cartpole");
    }

    #[test]
    fn ids_with_memory_as_observation_are_refused() {
        for name in ["Pong-ram-v4", "Pong-ramNoFrameskip-v4", "ALE/Pong-ram-v5"] {
            let error = find(name).unwrap_err();
            assert!(matches!(error, EnvError::RamObservations(_)), "{name}: {error}");
        }
    }

    #[test]
    fn a_version_names_the_setting_on_which_it_differs() {
        for (name, expected) in [
            ("CartPole-v0", Some(("time_limit_frames", "200"))),
            ("CartPole-v1", Some(("time_limit_frames", "500"))),
            ("ALE/Pong-v5", Some(("sticky_actions", "0.25"))),
            ("PongNoFrameskip-v4", Some(("sticky_actions", "0"))),
            ("pong", None),
            ("cartpole", None),
        ] {
            assert_eq!(gym_setting(name), expected, "{name}");
        }
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
