//! How often the intervals hold the truth, and how often the test is wrong, when the truth is known.
//!
//! A percentile bootstrap over five runs is too narrow. docs/statistics.md has the figures that these tests print with
//! `--nocapture`.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stats::aggregate::Aggregate;
use stats::improvement::{permutation_test, probability_of_improvement};
use stats::{Bootstrap, Scores};

/// Simulated experiments, and bootstrap rounds in each. A share of 0.95 of 2,000 has a standard error of 0.005.
const EXPERIMENTS: usize = 2_000;
const ROUNDS: usize = 500;

/// Four standard errors of a share of the experiments.
const TOLERANCE: f64 = 0.03;

/// How the scores of a game's runs are distributed around its centre.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Normal,
    /// Most runs below the mean, a few far above it.
    Lognormal,
}

/// The runs' centres in the games, in the units of their spread: as far apart as human-normalised scores of games are.
const CENTRES: [f64; 3] = [0.0, 1.0, 3.0];

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    // The sum of twelve uniform numbers has variance 1; its tails end at 6, which no statistic here sees.
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

fn scores(rng: &mut ChaCha8Rng, runs: usize, games: usize, spread: Spread) -> Scores {
    let score = |centre: f64, rng: &mut ChaCha8Rng| match spread {
        Spread::Normal => centre + normal(rng),
        Spread::Lognormal => centre + (0.75 * normal(rng)).exp(),
    };
    let game = |centre: &f64| (0..runs).map(|_| score(*centre, rng)).collect();
    Scores::new(CENTRES[..games].iter().map(game).collect()).unwrap()
}

/// The share of intervals that hold the value of the same statistic over 200,000 runs.
fn coverage(runs: usize, games: usize, spread: Spread) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(runs as u64);
    let truth = Aggregate::InterquartileMean.of(&scores(&mut rng, 200_000, games, spread));
    let holds = |_: &usize| {
        let scores = scores(&mut rng, runs, games, spread);
        let statistic = |scores: &Scores| Aggregate::InterquartileMean.of(scores);
        Bootstrap::new(ROUNDS).interval(&scores, &mut rng, statistic).unwrap().holds(truth)
    };
    (0..EXPERIMENTS).filter(holds).count() as f64 / EXPERIMENTS as f64
}

/// The shares of experiments in which two equal algorithms differ by the test: by the interval of the probability of
/// improvement, and by the permutation test.
fn false_verdicts(runs: usize, games: usize) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(runs as u64);
    let (mut by_interval, mut by_test) = (0, 0);
    for _ in 0..EXPERIMENTS {
        let a = scores(&mut rng, runs, games, Spread::Lognormal);
        let b = scores(&mut rng, runs, games, Spread::Lognormal);
        let interval =
            Bootstrap::new(ROUNDS).interval_of_pair((&a, &b), &mut rng, probability_of_improvement);
        by_interval += usize::from(!interval.unwrap().holds(0.5));
        by_test += usize::from(permutation_test(&a, &b, ROUNDS, &mut rng) <= 0.05);
    }
    (by_interval as f64 / EXPERIMENTS as f64, by_test as f64 / EXPERIMENTS as f64)
}

#[test]
fn intervals_hold_the_truth_about_as_often_as_documented() {
    for (runs, games, spread, documented) in [
        (5, 1, Spread::Normal, 0.91),
        (5, 1, Spread::Lognormal, 0.9),
        (10, 1, Spread::Normal, 0.935),
        (10, 1, Spread::Lognormal, 0.93),
        (5, 3, Spread::Normal, 0.9),
        (5, 3, Spread::Lognormal, 0.87),
        (10, 3, Spread::Normal, 0.92),
        (10, 3, Spread::Lognormal, 0.9),
        (30, 3, Spread::Normal, 0.93),
        (30, 3, Spread::Lognormal, 0.93),
    ] {
        let measured = coverage(runs, games, spread);
        println!("coverage with {runs} runs of {games} games, {spread:?}: {measured:.3}");
        let apart = (measured - documented).abs();
        assert!(apart <= TOLERANCE, "{runs} runs, {games} games, {spread:?}: {measured}");
    }
}

#[test]
fn the_permutation_test_is_wrong_as_often_as_it_says_and_the_interval_more_often() {
    for (runs, games, documented) in [(5, 1, 0.09), (5, 3, 0.08), (10, 1, 0.07), (10, 3, 0.06)] {
        let (by_interval, by_test) = false_verdicts(runs, games);
        println!("{runs} runs of {games} games: interval {by_interval:.3}, test {by_test:.3}");
        assert!(by_test <= 0.05 + 0.02, "{runs} runs, {games} games: {by_test}");
        assert!((by_interval - documented).abs() <= TOLERANCE, "{runs} runs, {games} games: {by_interval}");
    }
}
