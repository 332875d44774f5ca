//! `quiver` and the programs that link libtorch: a missing or broken program, and the command that `quiver` passes on. How
//! it starts a cluster is tested in `cluster.rs`.

use run::command::Command;

use crate::fakes;
use crate::sandbox::Sandbox;

/// Answers the probe, and otherwise prints its argument.
pub const ECHO: &str =
    r#"case "$1" in '"Probe"') echo '{"works":true,"gpus":0}' ;; *) printf '%s' "$1" ;; esac"#;

#[test]
fn a_missing_program_is_reported_with_a_remedy() {
    let sandbox = Sandbox::new();
    sandbox
        .quiver(&["train", "cartpole", "--lockstep"])
        .refused_for(&["quiver-lockstep is missing", "make build"]);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn a_missing_libtorch_is_reported_with_a_remedy() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(
        "echo \"$0: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file: \
         No such file or directory\" >&2; exit 127",
    );
    fakes::install_idle(&sandbox);
    let expected = "libtorch is missing or damaged (libtorch_cpu.so): run 'make setup', or set LD_LIBRARY_PATH to its folder";
    for words in [&["train", "cartpole"][..], &["train", "cartpole", "--lockstep"]] {
        assert_eq!(sandbox.quiver(words).refused(), expected);
        assert_eq!(sandbox.left(), [""; 0]);
    }
    let doctor = sandbox.quiver(&["doctor"]);
    assert!(doctor.out.contains("✗ libtorch       libtorch is missing or damaged"), "{}", doctor.out);
    doctor.refused_for(&["1 check failed"]);
}

#[test]
fn the_command_contains_all_resolved_settings() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(ECHO);
    let words = ["train", "CartPole", "--lockstep", "--seed", "7", "--strategy", "per", "--double=false"];
    let ran = sandbox.quiver_with(&words, &[("QUIVER_LEARNING_RATE", "0.002")]);
    let Command::Train { run, resolved, resume, .. } = serde_json::from_str(ran.stdout()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!(run.to_str(), Some("runs/cartpole-per-seed7"));
    assert_eq!((resolved.game.as_str(), resolved.preset.as_str(), resume), ("cartpole", "cartpole", false));
    assert_eq!(
        (resolved.settings.seed, resolved.settings.learning_rate, resolved.settings.double),
        (7, 0.002, false)
    );
    assert_eq!(sandbox.left(), [""; 0], "quiver-lockstep creates the directory");
}

#[test]
fn a_second_run_of_a_name_gets_a_number() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(ECHO);
    sandbox.run("runs/cartpole-ver-seed0", "cartpole");
    let ran = sandbox.quiver(&["train", "cartpole", "--lockstep"]);
    let Command::Train { run, .. } = serde_json::from_str(ran.stdout()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!(run.to_str(), Some("runs/cartpole-ver-seed0-2"));
}

#[test]
fn a_run_resumes_with_its_own_settings() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(ECHO);
    sandbox.run_with("runs/mine", "cartpole", &[("lockstep", "true")]);
    let ran = sandbox.quiver(&["train", "--resume", "mine", "--frames", "50k"]);
    let Command::Train { run, resolved, resume, .. } = serde_json::from_str(ran.stdout()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!((run.to_str(), resume), (Some("runs/mine"), true));
    assert_eq!((resolved.game.as_str(), resolved.settings.frames.0), ("cartpole", 50_000));
}

#[test]
fn evaluate_and_play_pass_on_their_options() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(ECHO);
    let path = sandbox.run("mine", "cartpole");
    run::checkpoint::write(&run::directory::checkpoints(&path), "best", |_| Ok(())).unwrap();
    let ran = sandbox.quiver(&["evaluate", "mine", "--episodes", "30", "--json", "--policy", "greedy"]);
    let Command::Evaluate { agent, episodes, json } = serde_json::from_str(ran.stdout()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!((episodes, json, agent.seed, agent.checkpoint), (30, true, 0, None));
    assert_eq!(agent.policy.map(|policy| policy.to_string()).as_deref(), Some("greedy"));
    let ran = sandbox.quiver(&["play", "mine", "--video", "a.gif"]);
    let Command::Play { steps_max, .. } = serde_json::from_str(ran.stdout()).unwrap() else {
        panic!("{}", ran.out)
    };
    assert_eq!(steps_max, 200, "a whole game of CartPole");
}

#[test]
fn the_exit_code_is_that_of_the_started_program() {
    let sandbox = Sandbox::new();
    sandbox
        .install_lockstep(r#"case "$1" in '"Probe"') echo '{"works":true,"gpus":0}' ;; *) exit 3 ;; esac"#);
    assert_eq!(sandbox.quiver(&["train", "cartpole", "--lockstep"]).code, Some(3));
}

#[test]
fn the_doctor_finds_no_problem_in_a_complete_installation() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(ECHO);
    for name in ["quiver-learner", "quiver-actor", "quiver-replay-server", "quiver-paper"] {
        assert!(sandbox.quiver(&["doctor"]).out.contains(&format!("✗ program        {name} is missing")));
        sandbox.program(name, "exit 1");
    }
    let ran = sandbox.quiver(&["doctor"]);
    assert!(ran.stdout().contains("✓ libtorch       works on the CPU; no GPU found"), "{}", ran.out);
    assert!(ran.out.contains("✓ ROMs           all 104"), "{}", ran.out);
    assert!(!ran.out.contains('✗'), "{}", ran.out);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn the_doctor_finds_problems() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(ECHO);
    fakes::install_idle(&sandbox);
    std::fs::write(sandbox.here().join("file"), "").unwrap();
    let variables = [("QUIVER_ROMS", "no-such-folder")];
    let ran = sandbox.quiver_with(&["doctor", "--run-dir", "file/runs"], &variables);
    ran.refused_for(&["2 checks failed"]);
    assert!(ran.out.contains("✗ ROMs           104 of 104 are unusable"), "{}", ran.out);
    assert!(ran.out.contains("✗ run directory  can't write to file/runs"), "{}", ran.out);
}
