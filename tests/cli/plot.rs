//! `quiver plot` on made-up records.

use std::fs;
use std::path::Path;

use run::record::{Cut, Episode, Evaluation, Record};
use settings::choices::EvaluationPolicy::Stochastic;

use crate::place::Place;

fn record(run: &Path, evaluations: &[(&str, u64, [f64; 3])]) {
    let mut record = Record::open(run, &Cut::default()).unwrap();
    for (player, frames, scores) in evaluations {
        let (mean, standard_error) = Evaluation::mean_and_error(scores);
        let (player, scores) = ((*player).into(), scores.to_vec());
        let evaluation = Evaluation {
            frames: *frames,
            updates: 0,
            player,
            policy: Stochastic,
            mean,
            standard_error,
            scores,
        };
        record.evaluation(&evaluation).unwrap();
        record.episode(&Episode { frames: *frames, score: mean, steps: 9, truncated: false }).unwrap();
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
fn one_run_is_drawn_beside_its_record_with_what_it_had_to_beat() {
    let place = Place::new();
    let run = place.run("runs/mine", "space_invaders");
    record(
        &run,
        &[
            ("agent", 400_000, [1.0, 2.0, 3.0]),
            ("agent", 800_000, [5.0, 6.0, 7.0]),
            ("random", 800_000, [1.5; 3]),
        ],
    );
    let ran = place.quiver(&["plot", "mine", "--training"]);
    assert_eq!(ran.said(), "runs/mine/curve.png\nruns/mine/curve.svg\n");
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
fn several_runs_share_a_picture() {
    let place = Place::new();
    for (name, score) in [("a", -20.0), ("b&<b>", 3e6), ("c", 0.0)] {
        record(
            &place.run(name, "pong"),
            &[("agent", 2_000_000, [score; 3]), ("random", 2_000_000, [1.0; 3])],
        );
    }
    let ran = place.quiver(&["plot", "a", "b&<b>", "c", "--title", "Three of them", "--out", "v1.2"]);
    assert_eq!(ran.said(), "v1.2.png\nv1.2.svg\n");
    let svg = fs::read_to_string(place.here().join("v1.2.svg")).unwrap();
    for text in ["Three of them", "b&amp;&lt;b&gt;", "frames (millions)"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!svg.contains("random"), "baselines belong to one run");
    place.quiver(&["plot", "a", "c"]).said();
    place.quiver(&["plot", "a", "--out", "x.png"]).said();
    for name in ["curves.png", "curves.svg", "x.png", "x.svg"] {
        assert!(place.left().contains(&name.into()), "{name} in {:?}", place.left());
    }
}

#[test]
fn a_run_without_evaluations_is_refused() {
    let place = Place::new();
    let run = place.run("runs/mine", "pong");
    assert!(place.quiver(&["plot", "mine"]).refused().contains("no evaluation yet"));
    record(&run, &[("random", 1, [0.0; 3])]);
    assert!(place.quiver(&["plot", "mine"]).refused().contains("no evaluation yet"));
    assert!(place.quiver(&["plot", "other"]).refused().contains("no run other"));
}

#[test]
fn a_picture_that_can_not_be_written_is_refused() {
    let place = Place::new();
    record(&place.run("mine", "pong"), &[("agent", 1, [0.0; 3])]);
    let ran = place.quiver(&["plot", "mine", "--out", "no/such/folder/x"]);
    assert!(ran.refused().contains("choose another --out"), "{}", ran.err);
}
