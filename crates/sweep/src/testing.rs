//! A sweep over CartPole, and a shell script that fakes `quiver`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use run::command::{Sweep, Vary};
use value::Strategy;

/// A sweep over CartPole, which needs no ROM: three strategies, two seeds.
pub fn sweep(frames: u64) -> Sweep {
    Sweep {
        games: vec!["cartpole".to_owned()],
        vary: vec![Vary::strategies(&Strategy::PAPER)],
        seeds: 2,
        parallel: 2,
        preset: Some("cartpole".to_owned()),
        config: None,
        flags: vec![("frames".to_owned(), frames.to_string())],
        changed: true,
        environment: Vec::new(),
    }
}

/// A setting with comma-separated values.
pub fn vary(key: &str, values: &str) -> Vary {
    Vary { key: key.to_owned(), values: values.split(',').map(str::to_owned).collect() }
}

/// A `quiver train` that parses its flags, writes a record and exits. It appends its arguments to `started`.
const SCRIPT: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/started"
case "$3" in
    --resume) run=$4 ;;
    *)
        while [ $# -gt 0 ]; do
            case "$1" in --run-dir) run=$2 ;; esac
            shift
        done
        mkdir -p "$run/checkpoints/250" "$run/replay"
        echo 'made up' >"$run/config.toml" ;;
esac
name=${run##*/}
seed=${name##*seed}
case "$name" in *uniform*) score=10 ;; *per*) score=20 ;; *) score=30 ;; esac
evaluation() {
    echo "{\"frames\":$1,\"updates\":1,\"player\":\"agent\",\"policy\":\"stochastic\",\"mean\":$2,\"standard_error\":1,\"scores\":[$2]}"
}
[ -e "$run/evaluations.jsonl" ] || evaluation 0 1 >"$run/evaluations.jsonl"
echo '{"frames":250}' >"$run/training.jsonl"
BODY
evaluation 500 $((score + seed)) >>"$run/evaluations.jsonl"
mkdir -p "$run/checkpoints/final"
"#;

/// Writes the fake into a folder, with `body` run before the final evaluation. Another process writes it, because
/// executing a file that this process has just written can fail with ETXTBSY while other tests fork.
pub fn fake(folder: &Path, body: &str) -> PathBuf {
    let (source, path) = (folder.join("fake.sh"), folder.join("quiver"));
    fs::write(&source, SCRIPT.replace("BODY", body)).unwrap();
    let status =
        Command::new("install").args(["-m755".as_ref(), source.as_os_str(), path.as_os_str()]).status();
    assert!(status.unwrap().success());
    path
}

/// The command lines with which the fake was started.
pub fn started(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("started")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
