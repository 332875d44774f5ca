//! libFuzzer's way in. `QUIVER_FUZZ_TARGET` says which target; if `QUIVER_FUZZ_SEEDS` names a directory, the target's
//! seeds are written there first.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use fuzz::{TARGETS, Target};

fn target() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("QUIVER_FUZZ_TARGET").unwrap_or_default();
        let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
        let known = TARGETS.iter().find(|target| target.name == name);
        known.unwrap_or_else(|| panic!("set QUIVER_FUZZ_TARGET to one of {}", names()))
    })
}

fn write_seeds(directory: &Path) {
    for (number, seed) in (target().seeds)().iter().enumerate() {
        fs::write(directory.join(format!("seed-{number}")), seed).expect("a seed is written");
    }
}

libfuzzer_sys::fuzz_target!(
    init: {
        if let Some(directory) = std::env::var_os("QUIVER_FUZZ_SEEDS") {
            write_seeds(Path::new(&directory));
        }
    },
    |data: &[u8]| (target().run)(data)
);
