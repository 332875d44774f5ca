//! Where the ROMs are.

use std::env;
use std::path::{Path, PathBuf};

use crate::EnvError;

/// Where the ROMs are below a checkout, for a binary that was built there and moved.
const IN_CHECKOUT: &str = ".deps/ale/src/ale/python/roms";

/// The folder with the ROMs: `QUIVER_ROMS` if it is set, else the one in the ALE source that the program was built from,
/// else the one in the checkout whose `target/release` the program is in. It need not exist.
pub fn directory() -> PathBuf {
    if let Some(folder) = env::var_os("QUIVER_ROMS").filter(|folder| !folder.is_empty()) {
        return PathBuf::from(folder);
    }
    let packaged = ale::packaged_roms();
    if packaged.is_dir() {
        return packaged.to_owned();
    }
    in_checkout().filter(|folder| folder.is_dir()).unwrap_or_else(|| packaged.to_owned())
}

fn in_checkout() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    Some(program.parent()?.parent()?.parent()?.join(IN_CHECKOUT))
}

/// The ROM of `game` (a name that [`crate::canonical`] returned) in `folder`, or in [`directory`].
pub fn find(game: &str, folder: Option<&Path>) -> Result<PathBuf, EnvError> {
    let path = folder.map_or_else(directory, Path::to_owned).join(format!("{game}.bin"));
    if path.is_file() { Ok(path) } else { Err(EnvError::RomMissing { game: game.to_owned(), path }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_rom_says_where_it_was_looked_for_and_what_to_do() {
        let error = find("pong", Some(Path::new("no/such/folder"))).unwrap_err();
        let expected =
            "the ROM of 'pong' is missing at no/such/folder/pong.bin: run 'make setup', or set QUIVER_ROMS";
        assert_eq!(error.to_string(), expected);
    }
}
