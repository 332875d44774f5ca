//! `quiver sweep` over real runs: killed in the middle, stopped, and started again.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use run::directory::{check_free, checkpoints};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{folder, turn};
use crate::process::{Process, command, until};

/// Two variants and two seeds of CartPole, each a few seconds long.
const VARY: [&str; 4] = ["--vary", "strategy=per,ver", "--seeds", "2"];
const RUNS: [&str; 4] =
    ["cartpole-per-seed0", "cartpole-ver-seed0", "cartpole-per-seed1", "cartpole-ver-seed1"];

fn start(folder: &Path, out: &str, words: &[&str]) -> Process {
    let mut command = command("quiver");
    command.args(["sweep", "cartpole", "--out", out, "--json"]).args(words).current_dir(folder);
    for (key, value) in [
        ("frames", "2000"),
        ("min-size", "300"),
        ("random-steps", "300"),
        ("evaluate-every-frames", "500"),
        ("evaluate-final-episodes", "3"),
        ("checkpoint-every-frames", "500"),
    ] {
        command.args([format!("--{key}"), value.to_owned()]);
    }
    Process::spawn(folder, out, command)
}

fn run(folder: &Path, out: &str, name: &str) -> PathBuf {
    folder.join(out).join("runs").join(name)
}

fn is_finished(run: &Path) -> bool {
    checkpoints(run).join("final").is_dir()
}

fn has_checkpoint(run: &Path) -> bool {
    !run::checkpoint::numbers(&checkpoints(run)).is_empty()
}

/// The events of all starts of a sweep.
fn events(folder: &Path, out: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(format!("{out}.out"))).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

/// The runs of these events, in their order.
fn runs_of(events: &[Value], name: &str) -> Vec<String> {
    let of = events.iter().filter(|event| event["event"] == name);
    of.map(|event| event["run"].as_str().unwrap().to_owned()).collect()
}

/// Content and time of change of every file below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files.extend(self::files(&entry));
        } else {
            let changed = entry.metadata().unwrap().modified().unwrap();
            files.insert(entry.clone(), (fs::read(&entry).unwrap(), changed));
        }
    }
    files
}

#[track_caller]
fn ends_well(folder: &Path, out: &str, sweep: &mut Process, names: &[&str]) {
    for name in names {
        until(&format!("{name} is trained"), || is_finished(&run(folder, out, name)));
    }
    assert!(sweep.end().success(), "{}", sweep.log());
}

#[test]
fn a_killed_sweep_continues_without_repeating_finished_runs() {
    let (_turn, folder) = (turn(), folder());
    let folder = folder.path();
    let path = |name: &str| run(folder, "out", name);
    let mut sweep = start(folder, "out", &VARY);
    until("the first run is trained and the second has a checkpoint", || {
        is_finished(&path(RUNS[0])) && has_checkpoint(&path(RUNS[1]))
    });
    sweep.kill();
    until("the run that it had started ends by itself", || check_free(&path(RUNS[1])).is_ok());
    assert!(has_checkpoint(&path(RUNS[1])));
    let first_start = events(folder, "out");
    let finished = runs_of(&first_start, "finished");
    assert!((1..4).contains(&finished.len()), "killed in the middle, with {finished:?} done");
    let before: Vec<_> = finished.iter().map(|name| files(&path(name))).collect();
    let mut left: Vec<_> = RUNS.into_iter().filter(|name| !is_finished(&path(name))).collect();
    left.sort_unstable();

    let mut sweep = start(folder, "out", &VARY);
    ends_well(folder, "out", &mut sweep, &RUNS);
    for (name, before) in finished.iter().zip(&before) {
        assert!(files(&path(name)) == *before, "{name} was finished, and has been changed");
    }
    let events = events(folder, "out").split_off(first_start.len());
    let mut started = [runs_of(&events, "resumed"), runs_of(&events, "started")].concat();
    started.sort();
    assert_eq!(started, left, "each unfinished run is started once, and no other");
    if left.contains(&RUNS[1]) {
        assert_eq!(runs_of(&events, "resumed"), [RUNS[1]]);
    }
    let summary = events.last().unwrap();
    assert_eq!((&summary["event"], &summary["finished"]), (&"summary".into(), &4.into()), "{summary}");
    let scores = summary["scores"].as_array().unwrap();
    assert_eq!(scores.iter().map(|row| row["seeds"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 2]);
    assert!(scores.iter().all(|row| row["mean"].as_f64().is_some_and(|mean| mean > 0.0)), "{summary}");

    let before = RUNS.map(|name| files(&path(name)));
    let mut sweep = start(folder, "out", &VARY);
    ends_well(folder, "out", &mut sweep, &RUNS);
    assert!(RUNS.map(|name| files(&path(name))) == before, "nothing is left to train");
}

#[test]
fn a_killed_lockstep_sweep_gives_the_same_weights_as_one_that_was_not() {
    let (_turn, folder) = (turn(), folder());
    let folder = folder.path();
    let words = ["--seeds", "2", "--parallel", "2", "--lockstep"];
    let names = ["cartpole-ver-seed0", "cartpole-ver-seed1"];
    let mut whole = start(folder, "whole", &words);
    ends_well(folder, "whole", &mut whole, &names);

    let mut killed = start(folder, "killed", &words);
    until("both have checkpoints", || names.iter().all(|name| has_checkpoint(&run(folder, "killed", name))));
    killed.kill();
    until("its runs end by themselves", || {
        names.iter().all(|name| check_free(&run(folder, "killed", name)).is_ok())
    });
    let mut killed = start(folder, "killed", &words);
    ends_well(folder, "killed", &mut killed, &names);
    for name in names {
        let weights = |out: &str| {
            fs::read(checkpoints(&run(folder, out, name)).join("final/weights.safetensors")).unwrap()
        };
        assert!(weights("whole") == weights("killed"), "{name}");
    }
}

#[test]
fn a_stopped_sweep_writes_checkpoints_and_resumes_from_them() {
    let (_turn, folder) = (turn(), folder());
    let folder = folder.path();
    let words = ["--seeds", "2", "--parallel", "2", "--lockstep", "--frames", "1M"];
    let start = |words: &[&str]| {
        let mut command = command("quiver");
        command.args(["sweep", "cartpole", "--out", "out", "--json"]).args(words).current_dir(folder);
        Process::spawn(folder, "out", command)
    };
    let names = ["cartpole-ver-seed0", "cartpole-ver-seed1"];
    let mut sweep = start(&words);
    until("both train", || {
        names.iter().all(|name| {
            run(folder, "out", name).join("training.jsonl").metadata().is_ok_and(|file| file.len() > 0)
        })
    });
    sweep.signal(Signal::TERM);
    assert_eq!(sweep.end().code(), Some(0), "stopping in order is no failure: {}", sweep.log());
    assert!(sweep.log().contains("stopped with 0 of 2 runs done"), "{}", sweep.log());
    assert!(names.iter().all(|name| has_checkpoint(&run(folder, "out", name))));
    let events = events(folder, "out");
    assert_eq!(runs_of(&events, "stopped").len(), 2, "{events:?}");
    assert_eq!(events.last().unwrap()["stopped"], true);

    let mut sweep = start(&words);
    until("both resume", || runs_of(&self::events(folder, "out"), "resumed").len() == 2);
    sweep.signal(Signal::TERM);
    assert_eq!(sweep.end().code(), Some(0), "{}", sweep.log());
}
