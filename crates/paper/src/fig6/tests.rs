//! The whole of figure 6 with a few lines of shell in the place of `quiver`: what is started, what is not started again,
//! how it stops, and what is made of the records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use run::order::Sweep;
use value::Strategy;

use super::plan::tests::{options, sweep};
use super::*;

/// Longer than anything here should take on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A `quiver train` that knows its words, keeps a record and ends. `started` counts what was asked for.
const FAKE: &str = r#"#!/bin/sh
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

/// Puts the fake into a folder, written by another process: a file that was just written can be refused as busy while
/// other tests fork.
fn fake(folder: &Path, body: &str) -> PathBuf {
    let (source, path) = (folder.join("fake.sh"), folder.join("quiver"));
    fs::write(&source, FAKE.replace("BODY", body)).unwrap();
    let status =
        Command::new("install").args(["-m755".as_ref(), source.as_os_str(), path.as_os_str()]).status();
    assert!(status.unwrap().success());
    path
}

fn started(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("started")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn made(options: &Options, sweep: &Sweep, quiver: &Path) -> Result<Figure> {
    let claim = Claim::with(options, sweep, quiver.to_owned())?;
    make(options, &claim, &AtomicBool::new(false), &mut Progress::plain(&|_| {}))
}

#[test]
fn a_sweep_makes_every_run_once_and_draws_them() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("out"));
    let quiver = fake(folder.path(), "");
    let figure = made(&options, &sweep(5_000), &quiver).unwrap();
    assert_eq!(started(folder.path()).len(), 6);
    assert!(figure.claims.iter().all(|claim| claim.verdict == Verdict::Open), "{:?}", figure.claims);
    assert!(figure.about.contains("says nothing of which is better"));
    let rows = fs::read_to_string(options.out.join("fig6.csv")).unwrap();
    assert!(rows.starts_with("game,strategy,seed,frames,mean,stderr\ncartpole,uniform,4,0,1,1\n"), "{rows}");
    assert!(rows.contains("cartpole,ver,5,500,35,1"), "{rows}");
    let gains = fs::read_to_string(options.out.join("fig6_gains.csv")).unwrap();
    // Seeds 4 and 5: 34.5 over 14.5.
    assert!(gains.contains(&format!("ver,uniform,relative,1,{}", 100.0 * (34.5 - 14.5) / 14.5)), "{gains}");
    assert!(options.out.join("fig6.svg").is_file());
    let run = options.out.join("runs/cartpole-ver-seed5");
    assert!(run.is_dir() && !run.join("replay").exists(), "of a finished run only what is small is kept");

    made(&options, &sweep(5_000), &quiver).unwrap();
    assert_eq!(started(folder.path()).len(), 6, "finished runs are not repeated");
    made(&options, &Sweep { seeds: 3, ..sweep(5_000) }, &quiver).unwrap();
    assert_eq!(started(folder.path()).len(), 9, "another seed is three more runs");
}

#[test]
fn a_sweep_that_is_stopped_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("out"));
    // The first three end, the others wait until they are told to end, as a trainer that writes a checkpoint does.
    let body = r#"case "$name" in *seed5) [ -e "$here/go" ] || { trap 'exit 0' TERM; touch "$run/waits"; while :; do sleep 0.05; done; } ;; esac"#;
    let quiver = fake(folder.path(), body);
    let asked = AtomicBool::new(false);
    let waits = |name: &str| options.out.join("runs").join(name).join("waits").exists();
    let both_wait = || waits("cartpole-uniform-seed5") && waits("cartpole-per-seed5");
    let outcome = std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let started = Instant::now();
            while !both_wait() && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
            asked.store(true, Ordering::Relaxed);
        });
        let sweep = sweep(5_000);
        let claim = Claim::with(&options, &sweep, quiver.clone()).unwrap();
        let outcome = make(&options, &claim, &asked, &mut Progress::plain(&|_| {}));
        asks.join().unwrap();
        outcome
    });
    let error = outcome.unwrap_err();
    assert!(!error.downcast_ref::<Stopped>().unwrap().at_once, "all runs ended by themselves");
    assert!(error.to_string().contains("3 of 6 runs done"), "{error}");
    assert!(options.out.join("fig6.json").is_file(), "what there is has been drawn");

    fs::write(folder.path().join("go"), "").unwrap();
    let before = started(folder.path()).len();
    made(&options, &sweep(5_000), &quiver).unwrap();
    let after = started(folder.path());
    assert_eq!(after.len() - before, 3, "{after:?}");
    let resumed =
        after[before..].iter().filter(|words| words.starts_with("train --lifeline --resume ")).count();
    assert_eq!(resumed, 2, "two had begun: {after:?}");
}

#[test]
fn a_run_that_fails_is_reported_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("out"));
    let body = r#"case "$name" in *per-seed4) echo 'error: no more memory' >&2; exit 1 ;; esac"#;
    let error = made(&options, &sweep(5_000), &fake(folder.path(), body)).unwrap_err().to_string();
    assert!(
        error.contains("1 of 6 runs failed") && error.contains("cartpole-per-seed4 ended with"),
        "{error}"
    );
    assert!(error.contains("no more memory"), "{error}");
    assert_eq!(started(folder.path()).len(), 6);
    let before = started(folder.path()).len();
    made(&options, &sweep(5_000), &fake(folder.path(), "")).unwrap();
    assert_eq!(started(folder.path()).len() - before, 1, "only what failed is tried again");
}

#[test]
fn a_run_that_another_process_trains_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("out"));
    let sweep = Sweep { strategies: vec![Strategy::VER], seeds: 1, ..sweep(5_000) };
    let run = plan::runs(&options, &sweep).unwrap().remove(0);
    let held = run::RunDir::create(&run.path, &run.resolved).unwrap();
    fs::create_dir_all(run.path.join("checkpoints/250")).unwrap();
    let said = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            let waits = || said.lock().unwrap().iter().any(|line: &String| line.contains("another process"));
            while !waits() && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
            drop(held);
        });
        let say = |line: &str| said.lock().unwrap().push(line.to_owned());
        let claim = Claim::with(&options, &sweep, fake(folder.path(), "")).unwrap();
        make(&options, &claim, &AtomicBool::new(false), &mut Progress::plain(&say)).unwrap();
    });
    assert_eq!(started(folder.path()).len(), 1);
    assert!(started(folder.path())[0].starts_with("train --lifeline --resume "));
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("out"));
    let sweep = Sweep { strategies: vec![Strategy::VER], seeds: 1, ..sweep(5_000) };
    let run = plan::runs(&options, &sweep).unwrap().remove(0);
    drop(run::RunDir::create(&run.path, &run.resolved).unwrap());
    fs::create_dir_all(run.path.join("checkpoints")).unwrap();
    fs::write(run.path.join("evaluations.jsonl"), "of weights that are lost").unwrap();
    made(&options, &sweep, &fake(folder.path(), "")).unwrap();
    assert!(started(folder.path())[0].starts_with("train cartpole --lifeline --preset "));
    assert!(run.is_finished());
}

#[test]
fn a_sweep_is_named_after_what_it_trains() {
    let title = |games: &[&str], strategies: &[Strategy]| {
        let games = games.iter().map(|&game| game.to_owned()).collect();
        title(&Sweep { games, strategies: strategies.to_vec(), ..sweep(5_000) })
    };
    let nine = NINE.each_ref().map(|known| known.game);
    assert_eq!(title(&nine, &Strategy::PAPER), "Atari: uniform, prioritized and valuable replay");
    assert_eq!(title(&nine[..4], &[Strategy::VER]), "4 games: valuable replay");
    let two = title(&["ms_pacman", "space_invaders"], &[Strategy::UNIFORM, Strategy::REAPER]);
    assert_eq!(two, "Ms Pacman and Space Invaders: uniform and ReaPER replay");
    assert_eq!(title(&["cartpole"], &[Strategy::PER]), "CartPole: prioritized replay");
}

#[test]
fn only_the_papers_own_experiment_can_decide() {
    let gain = |interval, games| Gain {
        a: Strategy::VER,
        b: Strategy::PER,
        measure: Measure::Relative,
        games,
        value: 5.0,
        interval,
        paper: None,
    };
    let verdict = |gain: &Gain, frames, seeds, preset: &str| {
        verdict(gain, frames, &Sweep { seeds, preset: preset.to_owned(), ..sweep(5_000) })
    };
    let paper =
        |interval, games, frames, seeds| verdict(&gain(interval, games), frames, seeds, "paper-atari");
    assert_eq!(paper(Some((1.0, 9.0)), 9, FRAMES, 3), Verdict::Holds);
    assert_eq!(paper(Some((-9.0, -1.0)), 9, FRAMES, 3), Verdict::Fails);
    assert_eq!(paper(Some((-1.0, 9.0)), 9, FRAMES, 3), Verdict::Open);
    assert_eq!(paper(Some((1.0, 9.0)), 2, FRAMES, 3), Verdict::Open);
    assert_eq!(paper(Some((1.0, 9.0)), 9, 200_000, 3), Verdict::Open);
    assert_eq!(paper(None, 9, FRAMES, 1), Verdict::Open);
    assert_eq!(verdict(&gain(Some((1.0, 9.0)), 9), FRAMES, 3, "quick"), Verdict::Open);
}
