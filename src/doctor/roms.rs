//! Checks that every ROM exists and is intact.
//!
//! `make setup` leaves a list of checksums beside the ROMs it unpacks; comparing them takes a moment. ROMs from another
//! source are loaded into the emulator instead, which takes seconds: it recognizes supported ROMs by their checksums.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use settings::Settings;
use sha2::{Digest, Sha256};

use super::Finding::{self, Broken, Good};

/// Path from the ROMs of the unpacked ALE source to the list that `make setup` writes.
const LIST: &str = "../../../../roms.sha256";

pub fn roms() -> Finding {
    let folder = envs::roms::directory();
    let with_rom = envs::entries().iter().filter(|entry| entry.needs_rom);
    let atari: Vec<&str> = with_rom.map(|entry| entry.name).collect();
    let faults: Vec<String> = match fs::read_to_string(folder.join(LIST)) {
        Ok(text) => {
            let list = read_list(&text);
            atari.iter().filter_map(|game| compare(game, &folder, &list)).collect()
        }
        Err(_) => atari.iter().filter_map(|game| load(game)).collect(),
    };
    match faults.as_slice() {
        [] => Good(format!("all {} in {}", atari.len(), folder.display())),
        [fault] => Broken(fault.clone()),
        [fault, ..] => {
            Broken(format!("{} of {} are unusable; the first: {fault}", faults.len(), atari.len()))
        }
    }
}

/// Parses lines in `sha256sum` format: the sum, two spaces, `./pong.bin`.
fn read_list(text: &str) -> BTreeMap<&str, &str> {
    let pairs = text.lines().filter_map(|line| line.split_once("  "));
    pairs.map(|(sum, file)| (file.trim_start_matches("./").trim_end_matches(".bin"), sum)).collect()
}

fn compare(game: &str, folder: &Path, list: &BTreeMap<&str, &str>) -> Option<String> {
    let path = match envs::roms::find(game, Some(folder)) {
        Ok(path) => path,
        Err(error) => return Some(error.to_string()),
    };
    let sum: String = match fs::read(&path) {
        Ok(bytes) => Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(error) => return Some(format!("can't read {}: {error}; run 'make setup'", path.display())),
    };
    let is_whole = list.get(game) == Some(&sum.as_str());
    (!is_whole).then(|| format!("{} is damaged: run 'make setup'", path.display()))
}

fn load(game: &str) -> Option<String> {
    envs::make(game, &Settings::paper().environment(), 0).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intact_changed_and_missing_roms_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pong.bin"), "abc").unwrap();
        fs::write(folder.path().join("qbert.bin"), "abd").unwrap();
        // The sum of "abc" from FIPS 180-2, appendix B.1.
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let text = format!("{sum}  ./pong.bin\n{sum}  ./qbert.bin\n{sum}  ./tennis.bin\n");
        let check = |game: &str| compare(game, folder.path(), &read_list(&text));
        assert_eq!(check("pong"), None);
        assert!(check("qbert").unwrap().ends_with("is damaged: run 'make setup'"));
        assert!(check("tennis").unwrap().contains("missing"));
    }
}
