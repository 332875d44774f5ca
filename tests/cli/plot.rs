//! `quiver plot` on made-up records.

use std::fs;
use std::path::Path;

use run::record::{Cut, Episode, Evaluation, Record};
use settings::choices::EvaluationPolicy::Stochastic;

use crate::sandbox::Sandbox;

fn record(run: &Path, evaluations: &[(&str, u64, [f64; 3])]) {
    let mut record = Record::open(run, &Cut::default()).unwrap();
    for (player, frames, scores) in evaluations {
        let evaluation =
            Evaluation { frames: *frames, ..Evaluation::new(*player, Stochastic, scores.to_vec()) };
        record.evaluation(&evaluation).unwrap();
        let episode = Episode { frames: *frames, score: evaluation.mean, steps: 9, truncated: false };
        record.episode(&episode).unwrap();
    }
}

/// The PNG's width and height, from its header.
fn png_size(path: &Path) -> (u32, u32) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn one_run_is_drawn_with_its_baselines() {
    let sandbox = Sandbox::new();
    let run = sandbox.run("runs/mine", "space_invaders");
    record(
        &run,
        &[
            ("agent", 400_000, [1.0, 2.0, 3.0]),
            ("agent", 800_000, [5.0, 6.0, 7.0]),
            ("random", 800_000, [1.5; 3]),
        ],
    );
    let ran = sandbox.quiver(&["plot", "mine", "--training"]);
    assert_eq!(ran.stdout(), "runs/mine/curve.png\nruns/mine/curve.svg\n");
    assert_eq!(png_size(&run.join("curve.png")), (1600, 1000));
    let svg = fs::read_to_string(run.join("curve.svg")).unwrap();
    for text in [
        "Space Invaders",
        "score per game",
        "frames (thousands)",
        "mine",
        "random 1.5",
        "mean of 3 games ± 1",
    ] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn several_runs_share_a_figure() {
    let sandbox = Sandbox::new();
    for (name, score) in [("a", -20.0), ("b&<b>", 3e6), ("c", 0.0)] {
        record(
            &sandbox.run(name, "pong"),
            &[("agent", 2_000_000, [score; 3]), ("random", 2_000_000, [1.0; 3])],
        );
    }
    let ran = sandbox.quiver(&["plot", "a", "b&<b>", "c", "--title", "Three of them", "--out", "v1.2"]);
    assert_eq!(ran.stdout(), "v1.2.png\nv1.2.svg\n");
    let svg = fs::read_to_string(sandbox.here().join("v1.2.svg")).unwrap();
    for text in ["Three of them", "b&amp;&lt;b&gt;", "frames (millions)"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!svg.contains("random"), "baselines belong to one run");
    sandbox.quiver(&["plot", "a", "c"]).stdout();
    sandbox.quiver(&["plot", "a", "--out", "x.png"]).stdout();
    for name in ["curves.png", "curves.svg", "x.png", "x.svg"] {
        assert!(sandbox.left().contains(&name.into()), "{name} in {:?}", sandbox.left());
    }
}

#[test]
fn a_run_without_evaluations_is_refused() {
    let sandbox = Sandbox::new();
    let run = sandbox.run("runs/mine", "pong");
    sandbox.quiver(&["plot", "mine"]).refused_for(&["no evaluation yet"]);
    record(&run, &[("random", 1, [0.0; 3])]);
    sandbox.quiver(&["plot", "mine"]).refused_for(&["no evaluation yet"]);
    sandbox.quiver(&["plot", "other"]).refused_for(&["no run other"]);
}

#[test]
fn a_figure_that_can_not_be_written_is_refused() {
    let sandbox = Sandbox::new();
    record(&sandbox.run("mine", "pong"), &[("agent", 1, [0.0; 3])]);
    sandbox.quiver(&["plot", "mine", "--out", "no/such/folder/x"]).refused_for(&["choose another --out"]);
}
