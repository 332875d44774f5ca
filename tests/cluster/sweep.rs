//! `quiver paper fig6` over real clusters, killed in the middle and started again.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::{folder, turn};
use crate::process::{Process, command, until};

/// How long all figures may take, on the busiest machine.
const ALL_WAIT_MAX: Duration = Duration::from_secs(1800);

/// Three short runs of CartPole.
const STRATEGIES: [&str; 3] = ["uniform", "per", "ver"];

fn start(folder: &Path) -> Process {
    start_figure(folder, "fig6", &[])
}

fn start_figure(folder: &Path, figure: &str, flags: &[&str]) -> Process {
    let mut command = command("quiver");
    command.args(["paper", figure, "--games", "cartpole", "--preset", "cartpole", "--frames", "2000"]);
    command.args(flags);
    for setting in
        ["min_size=300", "random_steps=300", "evaluate_every_frames=500", "checkpoint_every_frames=500"]
    {
        command.args(["--set", setting]);
    }
    command.args(["--out", "out"]).current_dir(folder);
    Process::spawn(folder, "sweep", command)
}

fn run(folder: &Path, strategy: &str) -> PathBuf {
    folder.join("out/runs").join(format!("cartpole-{strategy}-seed0"))
}

fn is_finished(folder: &Path, strategy: &str) -> bool {
    run(folder, strategy).join("checkpoints/final").is_dir()
}

/// How often learners were started, run by run.
fn starts(folder: &Path) -> [usize; 3] {
    let lines =
        |run: PathBuf| fs::read_to_string(run.join("starts.jsonl")).map_or(0, |text| text.lines().count());
    STRATEGIES.map(|strategy| lines(run(folder, strategy)))
}

#[track_caller]
fn ends_well(folder: &Path, sweep: &mut Process) {
    for strategy in STRATEGIES {
        until(&format!("{strategy} is trained"), || is_finished(folder, strategy));
    }
    assert!(sweep.end().success(), "{}", sweep.log());
}

#[test]
fn a_killed_sweep_resumes_without_repeating_finished_runs() {
    let (_turn, folder) = (turn(), folder());
    let folder = folder.path();
    let mut sweep = start(folder);
    until("the first run is trained and the second has begun", || {
        is_finished(folder, "uniform") && run(folder, "per").join("evaluations.jsonl").is_file()
    });
    sweep.kill();
    until("the run that it had started ends by itself", || {
        run::directory::check_free(&run(folder, "per")).is_ok()
    });

    let mut sweep = start(folder);
    ends_well(folder, &mut sweep);
    assert_eq!(starts(folder)[0], 1, "the first run was finished when the sweep was killed");
    let rows = fs::read_to_string(folder.join("out/fig6.csv")).unwrap();
    for strategy in STRATEGIES {
        let evaluations =
            rows.lines().filter(|row| row.starts_with(&format!("cartpole,{strategy},0,"))).count();
        assert!(evaluations >= 2, "{strategy}: {rows}");
    }
    for file in ["fig6.png", "fig6.svg", "fig6_gains.csv", "report.html", "report.md"] {
        assert!(folder.join("out").join(file).is_file(), "{file}");
    }

    let before = starts(folder);
    let mut sweep = start(folder);
    ends_well(folder, &mut sweep);
    assert_eq!(starts(folder), before, "nothing is left to train");
}

/// The whole of `quiver paper all`, its sweep in a small version: two runs of CartPole.
#[test]
fn one_command_makes_all_figures_and_the_report() {
    let (_turn, folder) = (turn(), folder());
    let folder = folder.path();
    let mut all = start_figure(folder, "all", &["--strategies", "uniform,ver"]);
    let (started, out) = (Instant::now(), folder.join("out"));
    let status = loop {
        match all.ended() {
            Some(status) => break status,
            None => assert!(started.elapsed() < ALL_WAIT_MAX, "{}", all.log()),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(status.success(), "{}", all.log());
    let said = fs::read_to_string(folder.join("sweep.out")).unwrap();
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for figure in 1..=6 {
        assert!(said.contains(&format!("fig{figure}  ")), "{said}");
        for ending in ["csv", "png", "svg", "json"] {
            assert!(out.join(format!("fig{figure}.{ending}")).is_file(), "fig{figure}.{ending}");
        }
        assert!(report.contains(&format!("fig{figure}.png")), "{report}");
    }
    assert!(said.ends_with(&format!("report  {}\n", Path::new("out/report.html").display())), "{said}");
    assert!(report.contains("CartPole: uniform and valuable replay"), "{report}");

    // A sweep with other settings is refused before anything is made, and nothing is reported.
    let mut refused = start_figure(folder, "all", &["--strategies", "uniform,ver", "--set", "discount=0.9"]);
    assert_eq!(refused.end().code(), Some(1));
    assert!(refused.log().contains("choose another --out"), "{}", refused.log());
    assert_eq!(fs::read_to_string(folder.join("sweep.out")).unwrap(), said);
}
