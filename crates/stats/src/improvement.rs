//! How likely a run of one algorithm scores above a run of another, and whether that may be chance.

use rand::Rng;
use rand::seq::SliceRandom;

use crate::Scores;

/// Runs per task from which on a difference is judged. With three, not even complete separation on one task is significant
/// (p = 2/20), and bootstrap intervals of fewer than five are far too narrow.
pub const RUNS_MIN: usize = 5;

/// The probability that a run of `a` scores above a run of `b` on the same task, a tie counting one half; the mean over
/// tasks. That is the Mann-Whitney statistic over its largest value.
///
/// # Panics
///
/// If they do not have the same number of tasks.
pub fn probability_of_improvement(a: &Scores, b: &Scores) -> f64 {
    assert_eq!(a.tasks().len(), b.tasks().len(), "the tasks of both are the same");
    let pairs = a.tasks().iter().zip(b.tasks());
    pairs.map(|(a, b)| above(a, b)).sum::<f64>() / a.tasks().len() as f64
}

fn above(a: &[f64], b: &[f64]) -> f64 {
    let points = |one: &f64| {
        b.iter()
            .map(|other| {
                if one > other {
                    1.0
                } else if one == other {
                    0.5
                } else {
                    0.0
                }
            })
            .sum::<f64>()
    };
    a.iter().map(points).sum::<f64>() / (a.len() * b.len()) as f64
}

/// The two-sided p-value of [`probability_of_improvement`] if a run's algorithm does not matter: the share of
/// permutations of the runs of each task for which it is at least as far from 1/2, the observed one included.
///
/// With enough rounds it is valid for any number of runs, unlike a bootstrap interval.
pub fn permutation_test(a: &Scores, b: &Scores, rounds: usize, rng: &mut impl Rng) -> f64 {
    // Sums of the same terms in another order differ in the last bits.
    const TOLERANCE: f64 = 1e-9;
    let observed = (probability_of_improvement(a, b) - 0.5).abs() - TOLERANCE;
    let mut pools: Vec<(usize, Vec<f64>)> =
        a.tasks().iter().zip(b.tasks()).map(|(a, b)| (a.len(), [a.as_slice(), b].concat())).collect();
    let mut extreme = 0;
    for _ in 0..rounds {
        let mut sum = 0.0;
        for (count, pool) in &mut pools {
            pool.shuffle(rng);
            let (a, b) = pool.split_at(*count);
            sum += above(a, b);
        }
        extreme += usize::from((sum / pools.len() as f64 - 0.5).abs() >= observed);
    }
    (extreme + 1) as f64 / (rounds + 1) as f64
}

/// Holm's adjustment of the p-values of several comparisons: one of them below α is wrong with probability at most α over
/// all true hypotheses together.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p_values.len() - rank) as f64 * p_values[index]).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn scores(tasks: &[&[f64]]) -> Scores {
        Scores::new(tasks.iter().map(|runs| runs.to_vec()).collect()).unwrap()
    }

    #[test]
    fn ties_count_one_half_and_tasks_alike() {
        let (a, b) = (scores(&[&[1.0, 2.0], &[5.0]]), scores(&[&[1.0, 3.0], &[4.0, 4.0, 4.0]]));
        // Task 1: 1 against 1 and 3 is ½ and 0, 2 against them 1 and 0.
        assert_eq!(probability_of_improvement(&a, &b), (1.5 / 4.0 + 1.0) / 2.0);
        assert_eq!(probability_of_improvement(&b, &a), 1.0 - (1.5 / 4.0 + 1.0) / 2.0);
        assert_eq!(probability_of_improvement(&a, &a), 0.5);
    }

    #[test]
    fn p_values_are_those_of_the_exact_test() {
        let p = |a: &[f64], b: &[f64]| {
            permutation_test(&scores(&[a]), &scores(&[b]), 100_000, &mut ChaCha8Rng::seed_from_u64(2))
        };
        // Of the C(6, 3) = 20 divisions two are as extreme, of C(10, 5) = 252 two. Four standard errors of the rounds.
        let near = |p: f64, expected: f64| (p - expected).abs() < 4.0 * (expected / 100_000.0).sqrt();
        let three = p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!(near(three, 0.1), "{three}");
        let five = p(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!(near(five, 2.0 / 252.0), "{five}");
        assert_eq!(p(&[1.0, 2.0], &[1.0, 2.0]), 1.0);
    }

    #[test]
    fn holm_multiplies_the_smallest_most_and_keeps_the_order() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.5, 0.9]), [1.0, 1.0]);
        assert_eq!(holm(&[]), Vec::<f64>::new());
    }
}
