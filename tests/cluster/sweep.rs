//! `quiver paper fig6` over real clusters, killed in the middle and started again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{folder, turn};
use crate::process::{Process, command, until};

/// Three short runs of CartPole.
const STRATEGIES: [&str; 3] = ["uniform", "per", "ver"];

fn start(folder: &Path) -> Process {
    let mut command = command("quiver");
    command.args(["paper", "fig6", "--games", "cartpole", "--preset", "cartpole", "--frames", "2000"]);
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
fn a_killed_sweep_goes_on_without_repeating_finished_runs() {
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
