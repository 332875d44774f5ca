//! Bad input: a one-line error with a remedy, a non-zero exit code, nothing left on disk.

use std::fs;

use crate::sandbox::{Sandbox, copy_rom};

/// Expects an error with all of these words in one line, and nothing left on disk.
#[track_caller]
fn refused(words: &[&str], expected: &[&str]) {
    let sandbox = Sandbox::new();
    sandbox.quiver(words).refused_for(expected);
    assert_eq!(sandbox.left(), [""; 0], "left on disk");
}

#[test]
fn an_unknown_game_suggests_the_nearest() {
    refused(&["train", "pogn"], &["unknown game 'pogn'", "'pong'"]);
    refused(&["train", "breakuot", "--preset", "quick"], &["'breakout'"]);
    refused(&["config", "show", "cartpol"], &["'cartpole'"]);
    refused(&["train"], &["no game given", "quiver train pong"]);
}

#[test]
fn a_missing_rom_is_reported_with_its_path() {
    let (sandbox, empty) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let roms = empty.path().to_str().unwrap();
    sandbox.quiver_with(&["train", "pong"], &[("QUIVER_ROMS", roms)]).refused_for(&[roms, "make setup"]);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn a_damaged_rom_is_found_before_anything_is_written() {
    let (sandbox, roms) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let path = copy_rom("pong", roms.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    let variables = [("QUIVER_ROMS", roms.path().to_str().unwrap())];
    sandbox.quiver_with(&["train", "pong"], &variables).refused_for(&["pong.bin is damaged", "make setup"]);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn an_unknown_key_or_variable_suggests_the_nearest() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.here().join("my.toml"), "temprature = 1\n").unwrap();
    sandbox.quiver(&["train", "pong", "--config", "my.toml"]).refused_for(&["did you mean 'temperature'"]);
    let ran = sandbox.quiver_with(&["train", "pong"], &[("QUIVER_TEMPRATURE", "1")]);
    ran.refused_for(&["did you mean 'QUIVER_TEMPERATURE'"]);
    assert_eq!(sandbox.left(), ["my.toml"]);
}

#[test]
fn a_missing_or_malformed_file_is_named() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.here().join("bad.toml"), "game = \"pong\"\nseed = = 1\n").unwrap();
    sandbox.quiver(&["train", "--config", "none.toml"]).refused_for(&["none.toml"]);
    sandbox.quiver(&["train", "--config", "bad.toml"]).refused_for(&["bad.toml"]);
}

#[test]
fn contradictory_settings_are_refused_with_a_remedy() {
    let train = |words: &[&str], expected: &[&str]| refused(&[&["train", "pong"], words].concat(), expected);
    train(&["--algorithm", "dqn", "--strategy", "ver"], &["ver", "--strategy per"]);
    train(&["--temperature", "0"], &["temperature must be a number above 0, got 0"]);
    train(&["--temperature", "NaN"], &["temperature must be a number above 0, got NaN"]);
    train(&["--temperature", "-1"], &["temperature must be a number above 0, got -1"]);
    train(&["--batch-size", "0"], &["batch_size must be at least 1"]);
    train(
        &["--capacity", "20", "--min-size", "20"],
        &["batch_size 32 is larger than the replay's capacity 20"],
    );
    train(
        &["--samples-per-insert", "none", "--lockstep"],
        &["samples_per_insert none", "--samples-per-insert 8"],
    );
    train(
        &["--shards", "4", "--actors", "1", "--lanes", "1", "--min-size", "300000"],
        &["actors times lanes is 1, which fills only 1 of 4 shards", "raise lanes or actors"],
    );
    train(&["--network", "mlp"], &["--network nature"]);
    train(&["--frames", "soon"], &["frames", "40M"]);
}

#[test]
fn an_unknown_preset_suggests_the_nearest() {
    refused(&["train", "pong", "--preset", "quik"], &["unknown preset 'quik'", "'quick'"]);
}

#[test]
fn a_run_directory_that_can_not_be_created_is_refused() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.here().join("file"), "").unwrap();
    for folder in ["file/run", "file", "/proc/quiver-run"] {
        sandbox.quiver(&["train", "pong", "--run-dir", folder]).refused_for(&["can't write to", "--run-dir"]);
    }
    assert_eq!(sandbox.left(), ["file"]);
}

#[test]
fn a_directory_that_holds_a_run_is_not_overwritten() {
    let sandbox = Sandbox::new();
    sandbox.run("mine", "pong");
    sandbox
        .quiver(&["train", "pong", "--run-dir", "mine"])
        .refused_for(&["already holds a run", "--resume mine"]);
}

#[test]
fn resuming_a_run_that_does_not_exist_is_refused() {
    refused(&["train", "--resume", "no-such-run"], &["no run no-such-run", "quiver train"]);
    refused(&["train", "--resume", "."], &["holds no run"]);
    let sandbox = Sandbox::new();
    sandbox.run("runs/pong-ver-seed0", "pong");
    sandbox.quiver(&["train", "--resume", "pong-ver-seed1"]).refused_for(&["did you mean 'pong-ver-seed0'"]);
}

#[test]
fn a_resumed_run_keeps_the_settings_that_change_learning() {
    let sandbox = Sandbox::new();
    sandbox.run("runs/mine", "pong");
    let resume = |words: &[&str]| sandbox.quiver(&[&["train", "--resume", "mine"], words].concat());
    resume(&["--temperature", "0.1"]).refused_for(&["temperature from 0.05 to 0.1"]);
    resume(&["--seed", "1"]).refused_for(&["seed from 0 to 1"]);
    resume(&["--shards", "2"]).refused_for(&["shards from 1 to 2"]);
    resume(&["--lockstep"]).refused_for(&["lockstep from false to true"]);
    sandbox.quiver(&["train", "qbert", "--resume", "mine"]).refused_for(&["plays pong, not qbert"]);
    // Settings that may change pass all checks; the error is about the missing programs.
    resume(&["--frames", "50M", "--device", "cpu"]).refused_for(&["make build"]);
    resume(&["--actors", "3", "--lanes", "2"]).refused_for(&["make build"]);
    sandbox.run_with("runs/alone", "pong", &[("lockstep", "true")]);
    sandbox.quiver(&["train", "--resume", "alone", "--lanes", "2"]).refused_for(&["lanes from 8 to 2"]);
}

#[test]
fn an_agent_needs_a_run_a_checkpoint_and_a_known_video_format() {
    let sandbox = Sandbox::new();
    sandbox.run("runs/mine", "cartpole");
    sandbox.quiver(&["evaluate", "other", "--episodes", "3"]).refused_for(&["no run other"]);
    sandbox.quiver(&["evaluate", "mine", "--episodes", "3"]).refused_for(&["no checkpoint"]);
    sandbox.quiver(&["play", "mine", "--video", "a.gif"]).refused_for(&["no checkpoint"]);
    let checkpoints = run::directory::checkpoints(&sandbox.here().join("runs/mine"));
    run::checkpoint::write(&checkpoints, "final", |_| Ok(())).unwrap();
    sandbox.quiver(&["play", "mine", "--video", "a.avi"]).refused_for(&[".mp4, .gif, or a directory"]);
    let ran = sandbox.quiver(&["evaluate", "mine", "--episodes", "3", "--checkpoint", "7"]);
    ran.refused_for(&["choose from final"]);
    fs::write(checkpoints.join("final/manifest.json"), "{").unwrap();
    sandbox.quiver(&["evaluate", "mine", "--episodes", "3"]).refused_for(&["is damaged"]);
    assert_eq!(sandbox.left(), ["runs"]);
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    let sandbox = Sandbox::new();
    for words in [
        &["train", "pong", "--temprature", "1"][..],
        &["evaluate", "x", "--episodes", "0"],
        &["frobnicate"],
        &[],
    ] {
        assert_eq!(sandbox.quiver(words).code, Some(2), "{words:?}");
    }
    assert!(sandbox.quiver(&["train", "pong", "--temprature", "1"]).err.contains("--temperature"));
}
