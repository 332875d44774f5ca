//! `quiver compare` on made-up records.

use std::fs;
use std::path::{Path, PathBuf};

use run::record::{Cut, Evaluation, Record};
use serde_json::Value;
use settings::choices::EvaluationPolicy::Stochastic;

use crate::sandbox::Sandbox;

/// A finished run of a strategy, whose evaluations are (frames, score).
fn run(
    sandbox: &Sandbox,
    folder: &str,
    (game, strategy, seed): (&str, &str, u64),
    points: &[(u64, f64)],
) -> PathBuf {
    let name = format!("{folder}/{game}-{strategy}-seed{seed}");
    let path = sandbox.run_with(&name, game, &[("strategy", strategy), ("seed", &seed.to_string())]);
    let mut record = Record::open(&path, &Cut::default()).unwrap();
    for (frames, score) in points {
        let scores = vec![score - 1.0, score + 1.0];
        let evaluation = Evaluation { frames: *frames, ..Evaluation::new("agent", Stochastic, scores) };
        record.evaluation(&evaluation).unwrap();
    }
    record.evaluation(&Evaluation::new("random", Stochastic, vec![9_999.0])).unwrap();
    fs::create_dir_all(path.join("checkpoints/final")).unwrap();
    path
}

/// Runs of CartPole whose scores rise to `last` plus a spread over seeds.
fn cartpole(sandbox: &Sandbox, strategy: &str, seeds: u64, last: f64) {
    for seed in 0..seeds {
        // Not in the order of seeds, so that the interquartile mean has to sort.
        let last = last + [2.0, -7.0, 11.0, 0.0, 4.0][seed as usize % 5];
        let points = [(1_000, 20.0), (3_000 + seed, (20.0 + last) / 2.0), (5_000, last)];
        run(sandbox, "study/runs", ("cartpole", strategy, seed), &points);
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn two_strategies_are_compared_in_text_files_and_pictures() {
    let sandbox = Sandbox::new();
    cartpole(&sandbox, "uniform", 5, 100.0);
    cartpole(&sandbox, "ver", 5, 150.0);
    let ran = sandbox.quiver(&["compare", "study", "--out", "out"]);
    for text in [
        "Score: the last evaluation of each run, at 5,000 frames.",
        "CartPole",
        "strategy=uniform over strategy=ver",
        "strategy=ver scores higher",
        "With 5 seeds the 95% intervals are too narrow",
    ] {
        assert!(ran.stdout().contains(text), "{text} is not in:\n{}", ran.out);
    }
    assert!(!ran.out.contains("Fewer than"), "{}", ran.out);

    let out = sandbox.here().join("out");
    let compared = json(&out.join("compare.json"));
    // Without the smallest and the largest of 102, 93, 111, 100 and 104.
    assert_eq!(compared["by_game"][0]["iqm"]["value"], 102.0);
    assert_eq!(compared["by_game"][0]["mean"], 102.0);
    let pair = &compared["pairs"][0];
    assert_eq!(
        (&pair["verdict"], &pair["probability_of_improvement"]["value"]),
        (&"lower".into(), &0.0.into())
    );
    // Two of the 252 divisions of ten runs; 2,000 rounds have a standard error of 0.002.
    assert!((pair["p"].as_f64().unwrap() - 2.0 / 252.0).abs() < 0.008, "{pair}");
    assert_eq!((&compared["scale"], compared["runs"].as_array().unwrap().len()), (&"score".into(), 10));

    let rliable = json(&out.join("rliable.json"));
    assert_eq!(rliable["strategy=uniform"], serde_json::json!([[102.0], [93.0], [111.0], [100.0], [104.0]]));
    let scores = fs::read_to_string(out.join("scores.csv")).unwrap();
    assert!(
        scores
            .starts_with("group,game,seed,frames,score,normalised\nstrategy=uniform,cartpole,0,5000,102,\n"),
        "{scores}"
    );
    let curves = fs::read_to_string(out.join("curves.csv")).unwrap();
    assert!(curves.contains("strategy=ver,cartpole,5000,5,152,"), "{curves}");
    for stem in ["aggregates", "profile", "improvement", "curves"] {
        assert!(out.join(stem).with_extension("png").is_file(), "{stem}");
        let svg = fs::read_to_string(out.join(stem).with_extension("svg")).unwrap();
        assert!(svg.contains("strategy=ver") && svg.contains("CartPole"), "{stem}");
    }
}

#[test]
fn the_same_seed_of_the_bootstrap_gives_the_same_numbers() {
    let sandbox = Sandbox::new();
    cartpole(&sandbox, "uniform", 5, 100.0);
    cartpole(&sandbox, "per", 5, 101.0);
    let once = sandbox.quiver(&["compare", "study", "--json"]);
    assert_eq!(once.stdout(), sandbox.quiver(&["compare", "study", "--json"]).stdout());
    assert_ne!(once.stdout(), sandbox.quiver(&["compare", "study", "--json", "--seed", "1"]).stdout());
    let compared: Value = serde_json::from_str(once.stdout()).unwrap();
    assert_eq!(compared["pairs"][0]["verdict"], "open", "{compared}");
    let of_one = &compared["by_game"][1]["iqm"];
    assert!(of_one["low"].as_f64() < of_one["value"].as_f64(), "{compared}");
}

#[test]
fn several_atari_games_are_put_together_on_the_human_scale() {
    let sandbox = Sandbox::new();
    for seed in 0..2 {
        for (strategy, share) in [("uniform", 0.25), ("ver", 0.75)] {
            run(&sandbox, "runs", ("boxing", strategy, seed), &[(400_000, 0.1 + 12.0 * share)]);
            run(&sandbox, "runs", ("pong", strategy, seed), &[(400_000, -20.7 + 35.3 * share)]);
        }
    }
    let ran = sandbox.quiver(&["compare", "runs", "--baseline", "strategy=uniform", "--out", "out"]);
    for text in [
        "2 games, human-normalised",
        "strategy=ver over strategy=uniform",
        "none: too few seeds",
        "Fewer than 5 seeds",
    ] {
        assert!(ran.stdout().contains(text), "{text} is not in:\n{}", ran.out);
    }
    let compared = json(&sandbox.here().join("out/compare.json"));
    assert_eq!(compared["scale"], "human_normalised");
    for (row, expected) in [(0, 0.25), (1, 0.75)] {
        for what in ["median", "iqm", "mean", "optimality_gap"] {
            let value = compared["aggregates"][row][what]["value"].as_f64().unwrap();
            let expected = if what == "optimality_gap" { 1.0 - expected } else { expected };
            assert!((value - expected).abs() < 1e-12, "{what}: {value}");
        }
    }
}

#[test]
fn games_without_a_reference_are_put_together_by_a_file_only() {
    let sandbox = Sandbox::new();
    for (strategy, score) in [("uniform", 110.0), ("ver", 200.0)] {
        for seed in 0..2 {
            run(&sandbox, "runs", ("cartpole", strategy, seed), &[(5_000, score)]);
            run(&sandbox, "runs", ("minatar_breakout", strategy, seed), &[(5_000, score / 10.0)]);
        }
    }
    let ran = sandbox.quiver(&["compare", "runs"]);
    assert!(ran.stdout().contains("are not averaged, because cartpole, minatar_breakout"), "{}", ran.out);
    fs::write(sandbox.here().join("scale.csv"), "game,zero,one\ncartpole,20,200\nminatar_breakout,2,20\n")
        .unwrap();
    let ran = sandbox.quiver(&["compare", "runs", "--normalise", "scale.csv", "--json"]);
    let compared: Value = serde_json::from_str(ran.stdout()).unwrap();
    assert_eq!(compared["aggregates"][0]["iqm"]["value"], 0.5, "{compared}");
    fs::write(sandbox.here().join("scale.csv"), "game,zero,one\ncartpole,20,200\n").unwrap();
    sandbox
        .quiver(&["compare", "runs", "--normalise", "scale.csv"])
        .refused_for(&["no line for minatar_breakout"]);
}

#[test]
fn what_is_left_out_or_missing_is_named() {
    let sandbox = Sandbox::new();
    cartpole(&sandbox, "uniform", 5, 100.0);
    cartpole(&sandbox, "ver", 4, 150.0);
    let half = run(&sandbox, "study/runs", ("cartpole", "ver", 4), &[(1_000, 20.0), (2_000, 60.0)]);
    fs::remove_dir(half.join("checkpoints/final")).unwrap();
    run(&sandbox, "study/runs", ("cartpole", "per", 0), &[]);
    let ran = sandbox.quiver(&["compare", "study"]);
    for text in [
        "not finished (--unfinished includes them): study/runs/cartpole-ver-seed4.",
        "no evaluation yet: study/runs/cartpole-per-seed0.",
        "strategy=ver has no run of CartPole with seed 4.",
        "none: too few seeds",
    ] {
        assert!(ran.stdout().contains(text), "{text} is not in:\n{}", ran.out);
    }
    let all = sandbox.quiver(&["compare", "study", "--unfinished"]);
    assert!(all.stdout().contains("at 2,000 to 5,000 frames"), "{}", all.out);
    // Early in training the unfinished run counts as the others do.
    let early = sandbox.quiver(&["compare", "study", "--frames", "2k", "--json"]);
    let early: Value = serde_json::from_str(early.stdout()).unwrap();
    assert_eq!(early["by_game"][1]["seeds"], 5, "{early}");
    assert_eq!(early["runs"][9]["score"], 60.0, "{early}");
    assert_eq!(early["runs"][0]["score"], 20.0 + (102.0 - 20.0) / 4.0, "{early}");
    let one = sandbox.quiver(&["compare", "study/runs/cartpole-ver-seed0", "study/runs/cartpole-ver-seed1"]);
    assert!(one.stdout().contains("there is one group"), "{}", one.out);
}

#[test]
fn bad_input_is_refused_with_a_remedy() {
    let sandbox = Sandbox::new();
    sandbox.quiver(&["compare", "nothing"]).refused_for(&["no run nothing", "name a run, or a folder"]);
    fs::create_dir(sandbox.here().join("empty")).unwrap();
    sandbox.quiver(&["compare", "empty"]).refused_for(&["no runs in empty", "config.toml"]);
    let path = run(&sandbox, "a", ("cartpole", "ver", 0), &[]);
    sandbox.quiver(&["compare", "a"]).refused_for(&["nothing to compare", "no evaluation yet"]);
    fs::remove_dir_all(path).unwrap();
    run(&sandbox, "a", ("cartpole", "ver", 0), &[(1, 1.0)]);
    run(&sandbox, "b", ("cartpole", "ver", 0), &[(1, 1.0)]);
    sandbox.quiver(&["compare", "a", "b"]).refused_for(&["the same seed", "leave one of them out"]);
    sandbox.quiver(&["compare", "a", "./a", "a/cartpole-ver-seed0"]).stdout();
    sandbox.quiver(&["compare", "a", "--frames", "1M"]).refused_for(&["before and after 1,000,000 frames"]);
    run(&sandbox, "c", ("cartpole", "per", 0), &[(1, 1.0)]);
    let unknown = sandbox.quiver(&["compare", "a", "c", "--baseline", "strategy=pre"]);
    unknown.refused_for(&["no group strategy=pre", "strategy=ver, strategy=per"]);
    sandbox.quiver(&["compare", "a", "--out", "/proc/x"]).refused_for(&["choose another --out"]);
}
