//! The two halves of the command: what `quiver` does without the other, with a broken one, and what it hands over in
//! lockstep. How it starts a cluster is in `cluster.rs`.

use run::order::Order;

use crate::fakes;
use crate::place::Place;

/// Answers the probe, and otherwise says what it was told.
pub const ECHO: &str =
    r#"case "$1" in '"Probe"') echo '{"works":true,"gpus":0}' ;; *) printf '%s' "$1" ;; esac"#;

#[test]
fn a_missing_half_is_to_be_built() {
    let place = Place::new();
    let ran = place.quiver(&["train", "cartpole", "--lockstep"]);
    assert!(
        ran.refused().contains("quiver-lockstep is missing") && ran.err.contains("make build"),
        "{}",
        ran.err
    );
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn a_missing_libtorch_is_named_with_the_remedy() {
    let place = Place::new();
    place.other_half(
        "echo \"$0: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file: \
         No such file or directory\" >&2; exit 127",
    );
    fakes::install_idle(&place);
    let expected = "libtorch is missing or damaged (libtorch_cpu.so): run `make setup`, or set LD_LIBRARY_PATH to its folder";
    for words in [&["train", "cartpole"][..], &["train", "cartpole", "--lockstep"]] {
        assert_eq!(place.quiver(words).refused(), expected);
        assert_eq!(place.left(), [""; 0]);
    }
    let doctor = place.quiver(&["doctor"]);
    assert!(doctor.out.contains("✗ libtorch       libtorch is missing or damaged"), "{}", doctor.out);
    assert!(doctor.refused().contains("one thing needs mending"), "{}", doctor.err);
}

#[test]
fn the_order_has_all_that_was_decided() {
    let place = Place::new();
    place.other_half(ECHO);
    let words = ["train", "CartPole", "--lockstep", "--seed", "7", "--strategy", "per", "--double=false"];
    let ran = place.quiver_with(&words, &[("QUIVER_LEARNING_RATE", "0.002")]);
    let Order::Train { run, resolved, resume } = serde_json::from_str(ran.said()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!(run.to_str(), Some("runs/cartpole-per-seed7"));
    assert_eq!((resolved.game.as_str(), resolved.preset.as_str(), resume), ("cartpole", "cartpole", false));
    assert_eq!(
        (resolved.settings.seed, resolved.settings.learning_rate, resolved.settings.double),
        (7, 0.002, false)
    );
    assert_eq!(place.left(), [""; 0], "the directory is the other half's to make");
}

#[test]
fn a_second_run_of_a_name_gets_a_number() {
    let place = Place::new();
    place.other_half(ECHO);
    place.run("runs/cartpole-ver-seed0", "cartpole");
    let ran = place.quiver(&["train", "cartpole", "--lockstep"]);
    let Order::Train { run, .. } = serde_json::from_str(ran.said()).unwrap() else { panic!("{}", ran.out) };
    assert_eq!(run.to_str(), Some("runs/cartpole-ver-seed0-2"));
}

#[test]
fn a_run_goes_on_with_its_own_settings() {
    let place = Place::new();
    place.other_half(ECHO);
    place.run_with("runs/mine", "cartpole", &[("lockstep", "true")]);
    let ran = place.quiver(&["train", "--resume", "mine", "--frames", "50k"]);
    let Order::Train { run, resolved, resume } = serde_json::from_str(ran.said()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!((run.to_str(), resume), (Some("runs/mine"), true));
    assert_eq!((resolved.game.as_str(), resolved.settings.frames.0), ("cartpole", 50_000));
}

#[test]
fn an_agent_is_handed_over_with_its_games() {
    let place = Place::new();
    place.other_half(ECHO);
    let path = place.run("mine", "cartpole");
    run::checkpoint::write(&run::directory::checkpoints(&path), "best", |_| Ok(())).unwrap();
    let ran = place.quiver(&["evaluate", "mine", "--episodes", "30", "--json", "--policy", "greedy"]);
    let Order::Evaluate { agent, episodes, json } = serde_json::from_str(ran.said()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!((episodes, json, agent.seed, agent.checkpoint), (30, true, 0, None));
    assert_eq!(agent.policy.map(|policy| policy.to_string()).as_deref(), Some("greedy"));
    let ran = place.quiver(&["play", "mine", "--video", "a.gif"]);
    let Order::Play { steps_max, .. } = serde_json::from_str(ran.said()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!(steps_max, 200, "a whole game of CartPole");
}

#[test]
fn the_exit_code_is_the_other_halfs() {
    let place = Place::new();
    place.other_half(r#"case "$1" in '"Probe"') echo '{"works":true,"gpus":0}' ;; *) exit 3 ;; esac"#);
    assert_eq!(place.quiver(&["train", "cartpole", "--lockstep"]).code, Some(3));
}

#[test]
fn the_doctor_is_content_with_a_whole_installation() {
    let place = Place::new();
    place.other_half(ECHO);
    for name in ["quiver-learner", "quiver-actor", "quiver-replay-server", "quiver-paper"] {
        assert!(place.quiver(&["doctor"]).out.contains(&format!("✗ program        {name} is missing")));
        place.program(name, "exit 1");
    }
    let ran = place.quiver(&["doctor"]);
    assert!(ran.said().contains("✓ libtorch       works on the CPU; no GPU found"), "{}", ran.out);
    assert!(ran.out.contains("✓ ROMs           all 104"), "{}", ran.out);
    assert!(!ran.out.contains('✗'), "{}", ran.out);
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn the_doctor_finds_damage() {
    let place = Place::new();
    place.other_half(ECHO);
    fakes::install_idle(&place);
    std::fs::write(place.here().join("file"), "").unwrap();
    let variables = [("QUIVER_ROMS", "no-such-folder")];
    let ran = place.quiver_with(&["doctor", "--run-dir", "file/runs"], &variables);
    assert!(ran.refused().contains("2 things need mending"), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("✗ ROMs           104 of 104 can't be used"), "{}", ran.out);
    assert!(ran.out.contains("✗ run directory  can't write to file/runs"), "{}", ran.out);
}
