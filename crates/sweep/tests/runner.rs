//! Whole sweeps with a shell script that fakes `quiver`: which runs are started, resumed, skipped and reported.
#![allow(clippy::disallowed_methods, reason = "the tests wait for real processes")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use run::command::Sweep;
use sweep::testing::{fake, started, sweep};
use sweep::{LockedSweep, Run, Stopped, SweepOutcome, SweepProgress};

/// Longer than anything here takes on the busiest machine.
const WAIT_MAX: Duration = Duration::from_secs(120);

const SEED: u64 = 4;

fn run_all(out: &Path, sweep: &Sweep, quiver: &Path, stop: &AtomicBool) -> Result<SweepOutcome> {
    let claim = LockedSweep::new(out, SEED, sweep, quiver.to_owned())?;
    let outcome = claim.run(stop, &mut SweepProgress::plain("sweep", &|_| {}));
    claim.check(&outcome).map(|()| outcome)
}

fn train(out: &Path, sweep: &Sweep, quiver: &Path) -> Result<SweepOutcome> {
    run_all(out, sweep, quiver, &AtomicBool::new(false))
}

/// The first run of a sweep that was claimed before, and trained nothing.
fn claimed_run(out: &Path, sweep: &Sweep) -> Run {
    let claim = LockedSweep::new(out, SEED, sweep, "quiver".into()).unwrap();
    claim.runs()[0].clone()
}

#[test]
fn a_sweep_trains_every_run_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let quiver = fake(folder.path(), "");
    train(&out, &sweep(5_000), &quiver).unwrap();
    assert_eq!(started(folder.path()).len(), 6);
    let run = out.join("runs/cartpole-ver-seed5");
    assert!(run.is_dir() && !run.join("replay").exists(), "the replay of a finished run is deleted");
    fs::create_dir(run.join("replay")).unwrap();
    train(&out, &sweep(5_000), &quiver).unwrap();
    assert_eq!(started(folder.path()).len(), 6, "finished runs are not repeated");
    assert!(!run.join("replay").exists(), "a sweep that was killed at this moment has left it");
    train(&out, &Sweep { seeds: 3, ..sweep(5_000) }, &quiver).unwrap();
    assert_eq!(started(folder.path()).len(), 9, "another seed is three more runs");
}

#[test]
fn a_stopped_sweep_resumes_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    // The first three exit; the others wait for SIGTERM, as a trainer that writes a checkpoint does.
    let body = r#"case "$name" in *seed5) [ -e "$here/go" ] || { trap 'exit 0' TERM; touch "$run/waits"; while :; do sleep 0.05; done; } ;; esac"#;
    let quiver = fake(folder.path(), body);
    let stop = AtomicBool::new(false);
    let waits = |name: &str| out.join("runs").join(name).join("waits").exists();
    let both_wait = || waits("cartpole-uniform-seed5") && waits("cartpole-per-seed5");
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while !both_wait() && started.elapsed() < WAIT_MAX {
                std::thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Ordering::Relaxed);
        });
        run_all(&out, &sweep(5_000), &quiver, &stop)
    });
    let error = outcome.unwrap_err();
    assert!(!error.downcast_ref::<Stopped>().unwrap().killed, "all runs exited by themselves");
    assert!(error.to_string().contains("3 of 6 runs done"), "{error}");

    fs::write(folder.path().join("go"), "").unwrap();
    let before = started(folder.path()).len();
    train(&out, &sweep(5_000), &quiver).unwrap();
    let after = started(folder.path());
    assert_eq!(after.len() - before, 3, "{after:?}");
    let resumed = after[before..]
        .iter()
        .filter(|words| words.starts_with("train --exit-with-parent --resume "))
        .count();
    assert_eq!(resumed, 2, "two had begun: {after:?}");
}

#[test]
fn a_second_request_to_stop_kills_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let quiver = fake(folder.path(), r#"trap '' TERM; touch "$here/waits"; while :; do sleep 0.05; done"#);
    let sweep = Sweep { vary: Vec::new(), seeds: 1, ..sweep(5_000) };
    let claim = LockedSweep::new(&out, SEED, &sweep, quiver).unwrap();
    let (stop, printed) = (AtomicBool::new(false), std::sync::Mutex::new(String::new()));
    let print = |line: &str| printed.lock().unwrap().push_str(line);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            let wait = |done: &dyn Fn() -> bool| {
                while !done() && started.elapsed() < WAIT_MAX {
                    std::thread::sleep(Duration::from_millis(20));
                }
                stop.store(true, Ordering::Relaxed);
            };
            wait(&|| folder.path().join("waits").exists());
            wait(&|| printed.lock().unwrap().contains("stopping"));
        });
        claim.run(&stop, &mut SweepProgress::plain("sweep", &print))
    });
    let error = claim.check(&outcome).unwrap_err();
    let stopped = error.downcast_ref::<Stopped>().unwrap();
    assert_eq!((stopped.killed, stopped.exit_code()), (true, 130), "{error}");
}

#[test]
fn a_run_that_fails_is_reported_and_the_others_continue() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let body = r#"case "$name" in *per-seed4) echo 'error: no more memory' >&2; exit 1 ;; esac"#;
    let error = train(&out, &sweep(5_000), &fake(folder.path(), body)).unwrap_err().to_string();
    assert!(
        error.contains("1 of 6 runs failed") && error.contains("cartpole-per-seed4 ended with"),
        "{error}"
    );
    assert!(error.contains("no more memory"), "{error}");
    assert_eq!(started(folder.path()).len(), 6);
    let before = started(folder.path()).len();
    train(&out, &sweep(5_000), &fake(folder.path(), "")).unwrap();
    assert_eq!(started(folder.path()).len() - before, 1, "only the failed run is retried");
}

#[test]
fn a_run_that_another_process_trains_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let sweep = Sweep { vary: Vec::new(), seeds: 1, ..sweep(5_000) };
    let run = claimed_run(&out, &sweep);
    let held = run::RunDir::create(&run.path, &run.resolved).unwrap();
    fs::create_dir_all(run.path.join("checkpoints/250")).unwrap();
    let printed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            let waits =
                || printed.lock().unwrap().iter().any(|line: &String| line.contains("another process"));
            while !waits() && started.elapsed() < WAIT_MAX {
                std::thread::sleep(Duration::from_millis(20));
            }
            drop(held);
        });
        let print = |line: &str| printed.lock().unwrap().push(line.to_owned());
        let claim = LockedSweep::new(&out, SEED, &sweep, fake(folder.path(), "")).unwrap();
        let outcome = claim.run(&AtomicBool::new(false), &mut SweepProgress::plain("sweep", &print));
        claim.check(&outcome).unwrap();
    });
    assert_eq!(started(folder.path()).len(), 1);
    assert!(started(folder.path())[0].starts_with("train --exit-with-parent --resume "));
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let sweep = Sweep { vary: Vec::new(), seeds: 1, ..sweep(5_000) };
    let run = claimed_run(&out, &sweep);
    drop(run::RunDir::create(&run.path, &run.resolved).unwrap());
    fs::create_dir_all(run.path.join("checkpoints")).unwrap();
    fs::write(run.path.join("evaluations.jsonl"), "of weights that are lost").unwrap();
    train(&out, &sweep, &fake(folder.path(), "")).unwrap();
    assert!(started(folder.path())[0].starts_with("train --exit-with-parent --config "));
    assert!(run.is_finished());
}
