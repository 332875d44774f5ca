//! `quiver sweep`: its errors, its output and its exit code, with a fake `quiver-lockstep`.

use std::fs;

use serde_json::Value;

use crate::fakes;
use crate::sandbox::{Ran, Sandbox};

/// Trains nothing: records its command, and finishes the run with a score of 10 times its seed. It fails for the seeds
/// that have a file `fail-<seed>` in the current directory.
const TRAIN: &str = r#"
case "$1" in '"Probe"') echo '{"works":true,"gpus":0}'; exit 0 ;; esac
run=$(printf '%s' "$1" | sed 's/.*"run":"\([^"]*\)".*/\1/')
seed=${run##*seed}
mkdir -p "$run"
printf '%s\n' "$1" >>"$run/commands"
if [ -e "fail-$seed" ]; then echo "error: no more memory" >&2; exit 3; fi
echo "{\"frames\":2000,\"updates\":1,\"player\":\"agent\",\"policy\":\"greedy\",\"mean\":$((seed * 10)),\"standard_error\":1,\"scores\":[1]}" >"$run/evaluations.jsonl"
mkdir -p "$run/checkpoints/final"
"#;

const SWEEP: [&str; 7] = ["sweep", "cartpole", "--seeds", "2", "--lockstep", "--vary", "temperature=0.1,0.2"];

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(TRAIN);
    fakes::install_idle(&sandbox);
    sandbox
}

/// The commands that a run was started with.
fn commands(sandbox: &Sandbox, run: &str) -> Vec<Value> {
    let path = sandbox.here().join("sweep/runs").join(run).join("commands");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(ran: &Ran) -> Vec<Value> {
    ran.out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

#[test]
fn bad_input_is_refused_before_anything_is_written() {
    let sandbox = sandbox();
    let refused = |words: &[&str], parts: &[&str]| {
        sandbox.quiver(&[&["sweep"], words].concat()).refused_for(parts);
        assert_eq!(sandbox.left(), [""; 0]);
    };
    refused(&[], &["no game given", "quiver sweep pong,breakout"]);
    refused(&["pong,boxng"], &["boxng", "boxing"]);
    refused(&["cartpole", "--vary", "temprature=1"], &["--vary temprature=1", "did you mean 'temperature'"]);
    refused(&["cartpole", "--vary", "seed=1,2"], &["use --seeds"]);
    refused(&["cartpole,pong", "--vary", "network=mlp"], &["pong with network=mlp"]);
    refused(&["cartpole", "--preset", "quik"], &["unknown preset 'quik'", "'quick'"]);
    refused(&["cartpole,pong", "--preset", "quick"], &["preset quick is not for cartpole"]);
    refused(&["cartpole", "--config", "none.toml"], &["can't read none.toml"]);
    refused(
        &["cartpole", "--seeds", "1000", "--vary", "batch_size=1,2,3,4,5,6,7,8,9,10,11"],
        &["11000 runs"],
    );
    refused(&["cartpole", "--out", "/proc/sweep"], &["can't write to /proc/sweep", "choose another --out"]);
    assert_eq!(sandbox.quiver(&["sweep", "cartpole", "--seeds", "0"]).code, Some(2));
    assert!(sandbox.quiver(&["sweep", "cartpole", "--sed", "0"]).err.contains("--seed"));
}

#[test]
fn a_missing_program_is_reported_before_anything_is_written() {
    let sandbox = Sandbox::new();
    sandbox.quiver(&["sweep", "cartpole"]).refused_for(&["quiver-lockstep is missing", "make build"]);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn every_run_gets_its_planned_settings_and_the_scores_are_printed() {
    let sandbox = sandbox();
    let variables = [("QUIVER_LEARNING_RATE", "0.002"), ("QUIVER_TEMPERATURE", "0.5")];
    let ran = sandbox.quiver_with(&SWEEP, &variables);
    let lines: Vec<&str> = ran.stdout().lines().collect();
    assert_eq!(
        lines,
        [
            "game      settings         seeds  final score",
            "cartpole  temperature=0.1      2  5.00 ± 5.00",
            "cartpole  temperature=0.2      2  5.00 ± 5.00",
            "",
            "compare the runs with: quiver compare sweep",
        ]
    );
    let command = commands(&sandbox, "cartpole-ver-temperature0.2-seed1").remove(0);
    let train = &command["Train"];
    assert_eq!((&train["resume"], &train["exit_with_parent"]), (&false.into(), &true.into()));
    let settings = &train["resolved"]["settings"];
    assert_eq!(
        [&settings["temperature"], &settings["learning_rate"], &settings["seed"], &settings["lockstep"]],
        [&Value::from(0.2), &0.002.into(), &1.into(), &true.into()]
    );
}

#[test]
fn a_failed_run_is_named_with_the_end_of_its_log_and_the_same_command_retries_it() {
    let sandbox = sandbox();
    fs::write(sandbox.here().join("fail-1"), "").unwrap();
    let ran = sandbox.quiver(&SWEEP);
    assert_eq!(ran.code, Some(1));
    let error = ran.err.lines().last().unwrap();
    for part in
        ["2 of 4 runs failed", "cartpole-ver-temperature0.1-seed1 ended with", "no more memory", "retry"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(ran.out.contains("cartpole  temperature=0.1      1  0.00\n"), "{}", ran.out);

    fs::remove_file(sandbox.here().join("fail-1")).unwrap();
    sandbox.quiver(&SWEEP).stdout();
    for (run, starts) in [("seed0", 1), ("seed1", 1)] {
        let run = format!("cartpole-ver-temperature0.1-{run}");
        assert_eq!(commands(&sandbox, &run).len(), starts, "{run}: a run without a checkpoint starts over");
    }
    let log = fs::read_to_string(sandbox.here().join("sweep/logs/cartpole-ver-temperature0.1-seed1.log"));
    assert_eq!(log.unwrap().matches("$ quiver train").count(), 2);
    sandbox.quiver(&[&SWEEP[..], &["--discount", "0.5"]].concat()).refused_for(&["discount = 0.99, not 0.5"]);
}

#[test]
fn events_are_one_object_per_line_and_text_is_on_stderr() {
    let sandbox = sandbox();
    fs::write(sandbox.here().join("fail-1"), "").unwrap();
    let ran = sandbox.quiver(&["sweep", "cartpole", "--seeds", "2", "--lockstep", "--json"]);
    assert_eq!(ran.code, Some(1));
    let events = events(&ran);
    let named: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(named, ["plan", "started", "finished", "started", "failed", "summary"]);
    let plan = &events[0]["runs"];
    assert_eq!(plan.as_array().unwrap().len(), 2);
    assert_eq!((&plan[1]["run"], &plan[1]["state"]), (&"cartpole-ver-seed1".into(), &"new".into()));
    assert_eq!((&plan[1]["seed"], &plan[1]["preset"]), (&1.into(), &"cartpole".into()));
    assert_eq!(events[2]["path"], "sweep/runs/cartpole-ver-seed0");
    assert_eq!((&events[2]["frames"], &events[2]["score"]), (&20_000.into(), &0.0.into()));
    assert!(events[4]["error"].as_str().unwrap().contains("no more memory"));
    let summary = events.last().unwrap();
    let of = |key: &str| &summary[key];
    assert_eq!([of("runs"), of("finished"), of("failed")], [&Value::from(2), &1.into(), &1.into()]);
    assert_eq!((of("stopped"), of("out")), (&false.into(), &"sweep".into()));
    assert_eq!(summary["scores"][0]["standard_error"], Value::Null, "one seed has no error");
    assert!(ran.err.contains("sweep: starting cartpole-ver-seed0"), "{}", ran.err);
    assert!(ran.err.contains("quiver compare sweep"), "{}", ran.err);
}

#[test]
fn help_teaches_with_examples_and_lists_the_settings() {
    let sandbox = Sandbox::new();
    let ran = sandbox.quiver(&["sweep", "--help"]);
    for words in
        ["Examples:\n  quiver sweep cartpole", "--vary <KEY=VALUES>", "two cores busy", "--learning-rate"]
    {
        assert!(ran.stdout().contains(words), "{words}: {}", ran.out);
    }
    assert!(!sandbox.quiver(&["sweep", "-h"]).stdout().contains("--adam-epsilon"));
}
