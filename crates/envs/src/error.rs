//! The errors of environments, each with its remedy.

use std::path::PathBuf;

/// Why an environment cannot be made or restored.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// No game has this name.
    #[error("unknown game '{name}': did you mean {}? ('quiver games' lists all)", either(nearest))]
    UnknownGame {
        /// The name as it was given.
        name: String,
        /// The names that are most like it, the nearest first; never empty.
        nearest: Vec<String>,
    },
    /// The package has the ROM, but the emulator offers one player's controls and this game needs two.
    #[error(
        "'{0}' is a game for two players, which ALE does not play alone: choose another ('quiver games' lists all)"
    )]
    TwoPlayers(String),
    /// Gym's id of an environment whose observations are the emulator's memory.
    #[error(
        "'{0}' has the emulator's memory as observation, which Quiver does not support: leave out -ram to train on pixels"
    )]
    RamObservations(String),
    /// The game is known, but its ROM is missing.
    #[error("the ROM of '{game}' is missing at {}: run 'make setup', or set QUIVER_ROMS", path.display())]
    RomMissing {
        /// The game.
        game: String,
        /// The path at which its ROM was expected.
        path: PathBuf,
    },
    /// The file is the ROM of another game.
    #[error("{} is the ROM of '{found}': run 'make setup' to restore it", path.display())]
    RomMixedUp {
        /// The file.
        path: PathBuf,
        /// The game that it holds.
        found: String,
    },
    /// The emulator refused the ROM or a state.
    #[cfg(feature = "ale")]
    #[error(transparent)]
    Ale(#[from] ale::AleError),
    /// The game is known, but this program has no emulator.
    #[cfg(not(feature = "ale"))]
    #[error("'{0}' is an Atari game and this program was built without ALE: build it with the feature 'ale'")]
    BuiltWithoutAle(&'static str),
    /// A setting out of range.
    #[error("{name} is {value}, but must be {must_be}")]
    Option {
        /// The setting's name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        must_be: &'static str,
    },
    /// Not the name of an action set.
    #[error("unknown action set '{0}': choose 'minimal' or 'full'")]
    UnknownActionSet(String),
    /// Not the name of a frame maximum.
    #[error("unknown frame maximum '{0}': choose rgb or gray")]
    UnknownFrameMaximum(String),
    /// The bytes are not a saved environment.
    #[error("damaged environment state ({0}): delete this checkpoint to resume from an older one")]
    DamagedState(&'static str),
    /// The environment has no way to restore a state.
    #[error("'{0}' can't restore a saved state: train without --lockstep")]
    StateNotRestored(String),
    /// The state was saved while playing another game.
    #[error("the saved environment plays '{saved}', not '{playing}': resume with the game of the checkpoint")]
    OtherGame {
        /// The game of the state.
        saved: String,
        /// The game of the environment.
        playing: String,
    },
}

/// "'a'", "'a' or 'b'", "'a', 'b' or 'c'".
fn either(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_read_like_a_sentence() {
        let check = |names: &[&str], expected: &str| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(either(&names), expected);
        };
        check(&["pong"], "'pong'");
        check(&["pong", "gopher"], "'pong' or 'gopher'");
        check(&["pong", "gopher", "pooyan"], "'pong', 'gopher' or 'pooyan'");
    }
}
