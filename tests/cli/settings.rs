//! `quiver config`: its output can be read back, and the order of precedence.

use std::fs;

use crate::sandbox::Sandbox;

#[test]
fn printed_settings_resolve_to_the_same_settings() {
    let sandbox = Sandbox::new();
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
        let shown = sandbox.quiver(&[&words, explain].concat()).stdout().to_owned();
        fs::write(sandbox.here().join("my.toml"), &shown).unwrap();
        let again = sandbox.quiver(&[&["config", "show", "--config", "my.toml"], explain].concat());
        assert_eq!(again.stdout(), shown);
        assert!(shown.contains("\ntemperature = 0.3\n") && shown.contains("\ndueling = true\n"), "{shown}");
        assert!(shown.contains("\nframes = 2000000\n"), "{shown}");
    }
}

#[test]
fn a_flag_overrides_a_variable_overrides_a_file_overrides_a_preset() {
    let sandbox = Sandbox::new();
    fs::write(
        sandbox.here().join("my.toml"),
        "game = \"pong\"\npreset = \"quick\"\nseed = 1\nn_step = 5\nlanes = 2\n",
    )
    .unwrap();
    let variables = [("QUIVER_SEED", "2"), ("QUIVER_N_STEP", "7")];
    let ran = sandbox.quiver_with(&["config", "show", "--config", "my.toml", "--seed", "3"], &variables);
    for line in ["seed = 3", "n_step = 7", "lanes = 2", "network = \"small\"", "preset = \"quick\""] {
        assert!(ran.stdout().lines().any(|shown| shown == line), "{line} in {}", ran.out);
    }
}

#[test]
fn showing_a_preset_needs_no_game() {
    let sandbox = Sandbox::new();
    assert!(
        sandbox
            .quiver(&["config", "show"])
            .stdout()
            .starts_with("game = \"pong\"\npreset = \"paper-atari\"\n")
    );
    assert!(
        sandbox
            .quiver(&["config", "show", "--preset", "cartpole"])
            .stdout()
            .starts_with("game = \"cartpole\"\n")
    );
}

#[test]
fn presets_are_listed_with_their_differences() {
    let sandbox = Sandbox::new();
    let ran = sandbox.quiver(&["config", "presets"]);
    for preset in settings::presets::PRESETS {
        assert!(ran.stdout().contains(&format!("{}: {}", preset.name, preset.about)), "{}", ran.out);
    }
    assert!(ran.out.contains("    rho = old-unit-temperature\n"), "{}", ran.out);
}
