//! Damage, full disks and rivals: a clear line, a non-zero exit, nothing half-written.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{command, final_weights, order, refused, succeed, wait_for_checkpoint};

const SHORT: [(&str, &str); 4] = [
    ("frames", "2000"),
    ("checkpoint_every_frames", "1000"),
    ("evaluate_episodes", "2"),
    ("evaluate_final_episodes", "2"),
];

fn hidden_files(path: &Path) -> Vec<String> {
    let names =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('.') || name.ends_with(".partial")).collect()
}

#[test]
fn a_damaged_checkpoint_is_named_and_an_older_one_serves_once_it_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    succeed(&order(&path, "cartpole", &SHORT, false));
    for file in ["weights.safetensors", "state.bin", "replay.bin", "manifest.json"] {
        let damaged = path.join("checkpoints/2000").join(file);
        let good = fs::read(&damaged).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 0x20;
        fs::write(&damaged, bad).unwrap();
        let error = refused(&command(&order(&path, "cartpole", &SHORT, true)).output().unwrap());
        assert!(error.contains("2000 is damaged") && error.contains("delete it"), "{error}");
        fs::write(&damaged, good).unwrap();
    }
    fs::remove_dir_all(path.join("checkpoints/2000")).unwrap();
    succeed(&order(&path, "cartpole", &SHORT, true));
}

#[test]
fn a_run_directory_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let long = [("frames", "1000000"), ("checkpoint_every_frames", "1000")];
    let mut child = command(&order(&path, "cartpole", &long, false)).spawn().unwrap();
    wait_for_checkpoint(&path, 1, &mut child);
    let error = refused(&command(&order(&path, "cartpole", &long, true)).output().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(error.contains("in use by another process"), "{error}");
}

#[test]
fn a_disk_that_takes_no_more_ends_the_run_and_keeps_what_was_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    // With the signal ignored, a write beyond the limit fails as it does on a full disk.
    let limited = |blocks: u32, order: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$1\"");
        let program = env!("CARGO_BIN_EXE_quiver-lockstep");
        Command::new("bash").args(["-c", &script, program, order]).output().unwrap()
    };
    let error = refused(&limited(1, &order(&path, "cartpole", &SHORT, false)));
    assert!(error.contains("can't write") && error.contains("space"), "{error}");
    assert!(!path.exists(), "nothing is left");

    let error = refused(&limited(64, &order(&path, "cartpole", &SHORT, false)));
    assert!(error.contains("can't write checkpoint") && error.contains("--resume"), "{error}");
    assert_eq!(hidden_files(&path.join("checkpoints")), Vec::<String>::new());
    succeed(&order(&path, "cartpole", &SHORT, true));
}

#[test]
fn a_run_that_ended_before_its_first_checkpoint_starts_over_to_the_same_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    succeed(&order(&path, "cartpole", &SHORT, false));
    let (weights, episodes) = (final_weights(&path), run::record::episodes(&path).unwrap());
    fs::remove_dir_all(path.join("checkpoints")).unwrap();
    fs::create_dir(path.join("checkpoints")).unwrap();
    succeed(&order(&path, "cartpole", &SHORT, true));
    assert_eq!(final_weights(&path), weights);
    assert_eq!(run::record::episodes(&path).unwrap(), episodes);
}

#[test]
fn a_replay_too_small_for_its_frames_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    // Room for a thousand transitions without their frames, which is all that can be known beforehand.
    let small = [("replay_bytes", "100kB"), ("frames", "3000")];
    let error = refused(&command(&order(&path, "cartpole", &small, false)).output().unwrap());
    assert!(error.contains("raise replay_bytes"), "{error}");
}
