//! Performance profiles: how often a run scores above each threshold.

use crate::Scores;

/// For each threshold, the share of runs that score above it: of each task's runs, then the mean over tasks.
pub fn performance_profile(scores: &Scores, thresholds: &[f64]) -> Vec<f64> {
    let above = |threshold: f64, runs: &[f64]| {
        runs.iter().filter(|score| **score > threshold).count() as f64 / runs.len() as f64
    };
    let tasks = scores.tasks();
    let share =
        |&threshold: &f64| tasks.iter().map(|runs| above(threshold, runs)).sum::<f64>() / tasks.len() as f64;
    thresholds.iter().map(share).collect()
}

/// Equally spaced thresholds from below the smallest score of all to the largest, at least two of them.
pub fn thresholds<'a>(all: impl IntoIterator<Item = &'a Scores>, count: usize) -> Vec<f64> {
    let values = all.into_iter().flat_map(Scores::values);
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), score| (low.min(score), high.max(score)));
    let last = count.max(2) - 1;
    // A little below the smallest score, where every profile is 1.
    let low = low - 0.02 * (high - low).max(f64::EPSILON);
    (0..=last).map(|index| low + (high - low) * index as f64 / last as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_falls_from_one_to_zero_and_counts_tasks_alike() {
        let scores = Scores::new(vec![vec![0.0, 1.0, 2.0, 3.0], vec![2.0]]).unwrap();
        assert_eq!(performance_profile(&scores, &[-1.0, 0.0, 1.5, 2.0, 3.0]), [1.0, 0.875, 0.75, 0.125, 0.0]);
        let thresholds = thresholds([&scores], 11);
        let profile = performance_profile(&scores, &thresholds);
        assert_eq!((profile[0], profile[10], thresholds[10]), (1.0, 0.0, 3.0));
        assert!(profile.windows(2).all(|pair| pair[0] >= pair[1]));
    }
}
