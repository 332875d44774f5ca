//! Bad input: one line that says what to do, a non-zero exit, nothing on disk.

use std::fs;

use crate::place::{Place, copy_rom};

/// Refused with all of these words in one line, and nothing left behind.
#[track_caller]
fn refused(words: &[&str], expected: &[&str]) {
    let place = Place::new();
    let ran = place.quiver(words);
    for part in expected {
        assert!(ran.refused().contains(part), "'{part}' in: {}", ran.err);
    }
    assert_eq!(place.left(), [""; 0], "left on disk");
}

#[test]
fn an_unknown_game_is_answered_with_the_nearest() {
    refused(&["train", "pogn"], &["unknown game 'pogn'", "'pong'"]);
    refused(&["train", "breakuot", "--preset", "quick"], &["'breakout'"]);
    refused(&["config", "show", "cartpol"], &["'cartpole'"]);
    refused(&["train"], &["no game named", "quiver train pong"]);
}

#[test]
fn missing_roms_say_where_they_were_looked_for() {
    let (place, empty) = (Place::new(), tempfile::tempdir().unwrap());
    let roms = empty.path().to_str().unwrap();
    let ran = place.quiver_with(&["train", "pong"], &[("QUIVER_ROMS", roms)]);
    assert!(ran.refused().contains(roms) && ran.err.contains("make setup"), "{}", ran.err);
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn a_damaged_rom_is_found_before_anything_is_written() {
    let (place, roms) = (Place::new(), tempfile::tempdir().unwrap());
    let path = copy_rom("pong", roms.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    let variables = [("QUIVER_ROMS", roms.path().to_str().unwrap())];
    let ran = place.quiver_with(&["train", "pong"], &variables);
    assert!(ran.refused().contains("pong.bin is damaged") && ran.err.contains("make setup"), "{}", ran.err);
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn an_unknown_key_or_variable_is_answered_with_the_nearest() {
    let place = Place::new();
    fs::write(place.here().join("my.toml"), "temprature = 1\n").unwrap();
    let ran = place.quiver(&["train", "pong", "--config", "my.toml"]);
    assert!(ran.refused().contains("did you mean 'temperature'"), "{}", ran.err);
    let ran = place.quiver_with(&["train", "pong"], &[("QUIVER_TEMPRATURE", "1")]);
    assert!(ran.refused().contains("did you mean 'QUIVER_TEMPERATURE'"), "{}", ran.err);
    assert_eq!(place.left(), ["my.toml"]);
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_named() {
    let place = Place::new();
    fs::write(place.here().join("bad.toml"), "game = \"pong\"\nseed = = 1\n").unwrap();
    assert!(place.quiver(&["train", "--config", "none.toml"]).refused().contains("none.toml"));
    assert!(place.quiver(&["train", "--config", "bad.toml"]).refused().contains("bad.toml"));
}

#[test]
fn contradictory_settings_say_which_to_change() {
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
        &["--shards", "4", "--actors", "1", "--min-size", "300000"],
        &["actors times lanes is 1, which fills only 1 of 4 shards", "raise lanes or actors"],
    );
    train(&["--network", "mlp"], &["--network nature"]);
    train(&["--frames", "soon"], &["frames", "40M"]);
}

#[test]
fn an_unknown_preset_is_answered_with_the_nearest() {
    refused(&["train", "pong", "--preset", "quik"], &["unknown preset 'quik'", "'quick'"]);
}

#[test]
fn a_run_directory_that_can_not_be_made_is_refused() {
    let place = Place::new();
    fs::write(place.here().join("file"), "").unwrap();
    for folder in ["file/run", "file", "/proc/quiver-run"] {
        let ran = place.quiver(&["train", "pong", "--run-dir", folder]);
        assert!(ran.refused().contains("can't write to") && ran.err.contains("--run-dir"), "{}", ran.err);
    }
    assert_eq!(place.left(), ["file"]);
}

#[test]
fn a_directory_that_holds_a_run_is_not_written_over() {
    let place = Place::new();
    place.run("mine", "pong");
    let ran = place.quiver(&["train", "pong", "--run-dir", "mine"]);
    assert!(
        ran.refused().contains("already holds a run") && ran.err.contains("--resume mine"),
        "{}",
        ran.err
    );
}

#[test]
fn nothing_to_resume_is_said() {
    refused(&["train", "--resume", "no-such-run"], &["no run no-such-run", "quiver train"]);
    refused(&["train", "--resume", "."], &["holds no run"]);
    let place = Place::new();
    place.run("runs/pong-ver-seed0", "pong");
    let ran = place.quiver(&["train", "--resume", "pong-ver-seed1"]);
    assert!(ran.refused().contains("did you mean 'pong-ver-seed0'"), "{}", ran.err);
}

#[test]
fn a_resumed_run_keeps_what_it_learns_by() {
    let place = Place::new();
    place.run("runs/mine", "pong");
    let resume = |words: &[&str]| place.quiver(&[&["train", "--resume", "mine"], words].concat());
    assert!(resume(&["--temperature", "0.1"]).refused().contains("temperature from 0.05 to 0.1"));
    assert!(resume(&["--seed", "1"]).refused().contains("seed from 0 to 1"));
    assert!(resume(&["--shards", "2"]).refused().contains("shards from 1 to 2"));
    assert!(resume(&["--lockstep"]).refused().contains("lockstep from false to true"));
    assert!(
        place.quiver(&["train", "qbert", "--resume", "mine"]).refused().contains("plays pong, not qbert")
    );
    // What may change passes all checks; only the other programs are missing here.
    assert!(resume(&["--frames", "50M", "--device", "cpu"]).refused().contains("make build"));
    assert!(resume(&["--actors", "3", "--lanes", "2"]).refused().contains("make build"));
    place.run_with("runs/alone", "pong", &[("lockstep", "true")]);
    let ran = place.quiver(&["train", "--resume", "alone", "--lanes", "2"]);
    assert!(ran.refused().contains("lanes from 1 to 2"), "{}", ran.err);
}

#[test]
fn an_agent_needs_a_run_a_checkpoint_and_a_kind_of_video() {
    let place = Place::new();
    place.run("runs/mine", "cartpole");
    assert!(place.quiver(&["evaluate", "other", "--episodes", "3"]).refused().contains("no run other"));
    assert!(place.quiver(&["evaluate", "mine", "--episodes", "3"]).refused().contains("no checkpoint"));
    assert!(place.quiver(&["play", "mine", "--video", "a.gif"]).refused().contains("no checkpoint"));
    let checkpoints = run::directory::checkpoints(&place.here().join("runs/mine"));
    run::checkpoint::write(&checkpoints, "final", |_| Ok(())).unwrap();
    assert!(
        place.quiver(&["play", "mine", "--video", "a.avi"]).refused().contains(".mp4, .gif, or a directory")
    );
    assert!(
        place
            .quiver(&["evaluate", "mine", "--episodes", "3", "--checkpoint", "7"])
            .refused()
            .contains("there are final")
    );
    fs::write(checkpoints.join("final/manifest.json"), "{").unwrap();
    assert!(place.quiver(&["evaluate", "mine", "--episodes", "3"]).refused().contains("is damaged"));
    assert_eq!(place.left(), ["runs"]);
}

#[test]
fn a_word_that_is_no_flag_is_a_usage_error() {
    let place = Place::new();
    for words in [
        &["train", "pong", "--temprature", "1"][..],
        &["evaluate", "x", "--episodes", "0"],
        &["frobnicate"],
        &[],
    ] {
        assert_eq!(place.quiver(words).code, Some(2), "{words:?}");
    }
    assert!(place.quiver(&["train", "pong", "--temprature", "1"]).err.contains("--temperature"));
}
