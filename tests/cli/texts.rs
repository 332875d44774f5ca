//! Help, lists, and closed pipes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use settings::SETTINGS;

use crate::sandbox::Sandbox;

#[test]
fn help_contains_examples() {
    let sandbox = Sandbox::new();
    for words in [&["--help"][..], &["train", "--help"], &["train", "-h"], &["plot", "-h"], &["play", "-h"]] {
        let ran = sandbox.quiver(words);
        assert!(ran.stdout().contains("Examples:\n  quiver "), "{words:?}: {}", ran.out);
    }
}

#[test]
fn the_long_help_lists_every_setting_and_the_short_one_the_common_ones() {
    let sandbox = Sandbox::new();
    let (long, short) = (sandbox.quiver(&["train", "--help"]), sandbox.quiver(&["train", "-h"]));
    for setting in SETTINGS {
        let flag = format!("--{}", setting.key.replace('_', "-"));
        assert!(long.stdout().contains(&flag), "{flag}");
    }
    for flag in ["--strategy", "--temperature", "--frames", "--seed", "--device", "--batch-size", "--preset"]
    {
        assert!(short.stdout().contains(flag), "{flag}");
    }
    assert!(!short.out.contains("--adam-epsilon"), "{}", short.out);
}

#[test]
fn games_are_listed_one_per_line_in_a_pipe() {
    let sandbox = Sandbox::new();
    let ran = sandbox.quiver(&["games"]);
    assert_eq!(ran.stdout().lines().collect::<Vec<_>>(), envs::games());
    assert!(ran.err.contains("104 of 104 ROMs found in"), "{}", ran.err);
    let ran = sandbox.quiver_with(&["games"], &[("QUIVER_ROMS", "nowhere")]);
    assert!(ran.err.contains("0 of 104 ROMs found in nowhere, 104 missing: run 'make setup'"), "{}", ran.err);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let sandbox = Sandbox::new();
    for words in [&["games"][..], &["config", "show", "--explain"], &["train", "--help"]] {
        let mut command = sandbox.command(words, &[]);
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
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.quiver(&["--version"]).stdout(), concat!("quiver ", env!("CARGO_PKG_VERSION"), "\n"));
}
