//! Help, lists, and pipes that close.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use settings::SETTINGS;

use crate::place::Place;

#[test]
fn help_teaches_by_examples() {
    let place = Place::new();
    for words in [&["--help"][..], &["train", "--help"], &["train", "-h"], &["plot", "-h"], &["play", "-h"]] {
        let ran = place.quiver(words);
        assert!(ran.said().contains("Examples:\n  quiver "), "{words:?}: {}", ran.out);
    }
}

#[test]
fn the_long_help_has_every_setting_and_the_short_one_the_usual() {
    let place = Place::new();
    let (long, short) = (place.quiver(&["train", "--help"]), place.quiver(&["train", "-h"]));
    for setting in SETTINGS {
        let flag = format!("--{}", setting.key.replace('_', "-"));
        assert!(long.said().contains(&flag), "{flag}");
    }
    for flag in ["--strategy", "--temperature", "--frames", "--seed", "--device", "--batch-size", "--preset"]
    {
        assert!(short.said().contains(flag), "{flag}");
    }
    assert!(!short.out.contains("--adam-epsilon"), "{}", short.out);
}

#[test]
fn every_game_is_listed_one_per_line_for_programs() {
    let place = Place::new();
    let ran = place.quiver(&["games"]);
    assert_eq!(ran.said().lines().collect::<Vec<_>>(), envs::games());
    assert!(ran.err.contains("104 of 104 ROMs found in"), "{}", ran.err);
    let ran = place.quiver_with(&["games"], &[("QUIVER_ROMS", "nowhere")]);
    assert!(ran.err.contains("0 of 104 ROMs found in nowhere, 104 missing: run `make setup`"), "{}", ran.err);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    for words in [&["games"][..], &["config", "show", "--explain"], &["train", "--help"]] {
        let mut command = place.command(words, &[]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let err = BufReader::new(output.stderr.as_slice())
            .lines()
            .map_while(Result::ok)
            .collect::<Vec<_>>()
            .join("\n");
        assert!(!err.contains("panicked"), "{words:?}: {err}");
        assert!(output.status.success(), "{words:?}: {:?} {err}", output.status);
    }
}

#[test]
fn the_version_is_the_packages() {
    let place = Place::new();
    assert_eq!(place.quiver(&["--version"]).said(), concat!("quiver ", env!("CARGO_PKG_VERSION"), "\n"));
}
