//! Means with their errors, and what is robust against one game that carries all.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Mean and standard error of the mean (0 for a single number).
pub fn mean_and_error(numbers: &[f64]) -> (f64, f64) {
    run::record::Evaluation::mean_and_error(numbers)
}

/// The mean of the middle half: a quarter of the weight is cut off at each end, fractions of a number included.
pub fn interquartile_mean(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let (low, high) = (count / 4.0, 3.0 * count / 4.0);
    // Number i lies on [i, i + 1) of the line from 0 to count.
    let share = |index: usize| ((index as f64 + 1.0).min(high) - (index as f64).max(low)).max(0.0);
    sorted.iter().enumerate().map(|(index, number)| share(index) * number).sum::<f64>() / (high - low)
}

/// The middle 95% of a statistic over samples drawn with replacement.
///
/// `groups` are resampled each within itself (runs within a game), and `statistic` sees all of them.
pub fn bootstrap(
    groups: &[Vec<f64>],
    rounds: usize,
    rng: &mut ChaCha8Rng,
    statistic: impl Fn(&[Vec<f64>]) -> f64,
) -> (f64, f64) {
    let mut seen: Vec<f64> = (0..rounds)
        .map(|_| {
            let drawn: Vec<Vec<f64>> = groups
                .iter()
                .map(|group| (0..group.len()).map(|_| group[rng.random_range(0..group.len())]).collect())
                .collect();
            statistic(&drawn)
        })
        .collect();
    seen.sort_by(f64::total_cmp);
    let at = |share: f64| seen[((seen.len() - 1) as f64 * share).round() as usize];
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn the_interquartile_mean_cuts_a_quarter_at_each_end() {
        assert_eq!(interquartile_mean(&[100.0, 1.0, 2.0, -50.0]), 1.5);
        assert_eq!(interquartile_mean(&[7.0]), 7.0);
        // Of six numbers the second and the fifth count by half.
        assert_eq!(interquartile_mean(&[0.0, 1.0, 2.0, 3.0, 4.0, 9.0]), (0.5 + 2.0 + 3.0 + 2.0) / 3.0);
    }

    #[test]
    fn an_interval_holds_the_mean_and_shrinks_with_numbers() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mean = |groups: &[Vec<f64>]| {
            let all: Vec<f64> = groups.concat();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let group = |count: usize| vec![(0..count).map(|index| (index % 10) as f64).collect::<Vec<_>>()];
        let few = bootstrap(&group(10), 1_000, &mut rng, mean);
        let many = bootstrap(&group(1_000), 1_000, &mut rng, mean);
        assert!(few.0 < 4.5 && 4.5 < few.1 && many.0 < 4.5 && 4.5 < many.1);
        assert!(many.1 - many.0 < (few.1 - few.0) / 5.0);
    }
}
