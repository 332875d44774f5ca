//! `quiver config`: what is shown can be fed back, and what wins over what.

use std::fs;

use crate::place::Place;

#[test]
fn what_is_shown_resolves_to_the_same() {
    let place = Place::new();
    let words = [
        "config",
        "show",
        "pong",
        "--preset",
        "quick",
        "--temperature",
        "0.3",
        "--dueling",
        "--frames",
        "2M",
    ];
    for explain in [&[][..], &["--explain"]] {
        let shown = place.quiver(&[&words, explain].concat()).said().to_owned();
        fs::write(place.here().join("my.toml"), &shown).unwrap();
        let again = place.quiver(&[&["config", "show", "--config", "my.toml"], explain].concat());
        assert_eq!(again.said(), shown);
        assert!(shown.contains("\ntemperature = 0.3\n") && shown.contains("\ndueling = true\n"), "{shown}");
        assert!(shown.contains("\nframes = 2000000\n"), "{shown}");
    }
}

#[test]
fn a_flag_wins_over_a_variable_over_a_file_over_a_preset() {
    let place = Place::new();
    fs::write(
        place.here().join("my.toml"),
        "game = \"pong\"\npreset = \"quick\"\nseed = 1\nn_step = 5\nlanes = 2\n",
    )
    .unwrap();
    let variables = [("QUIVER_SEED", "2"), ("QUIVER_N_STEP", "7")];
    let ran = place.quiver_with(&["config", "show", "--config", "my.toml", "--seed", "3"], &variables);
    for line in ["seed = 3", "n_step = 7", "lanes = 2", "network = \"small\"", "preset = \"quick\""] {
        assert!(ran.said().lines().any(|shown| shown == line), "{line} in {}", ran.out);
    }
}

#[test]
fn a_game_is_not_needed_to_look_at_a_preset() {
    let place = Place::new();
    assert!(
        place.quiver(&["config", "show"]).said().starts_with("game = \"pong\"\npreset = \"paper-atari\"\n")
    );
    assert!(
        place.quiver(&["config", "show", "--preset", "cartpole"]).said().starts_with("game = \"cartpole\"\n")
    );
}

#[test]
fn presets_are_listed_with_their_differences() {
    let place = Place::new();
    let ran = place.quiver(&["config", "presets"]);
    for preset in settings::presets::PRESETS {
        assert!(ran.said().contains(&format!("{}: {}", preset.name, preset.about)), "{}", ran.out);
    }
    assert!(ran.out.contains("    rho = old-unit-temperature\n"), "{}", ran.out);
}
