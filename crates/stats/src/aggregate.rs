//! One number for the scores of an algorithm.
//!
//! The median and the mean are over tasks, of each task's mean over runs. The interquartile mean and the optimality gap are
//! over all runs of all tasks together. Both conventions are rliable's.

use crate::Scores;

/// A way to aggregate. The optimality gap presumes scores on which 1 is the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Median,
    InterquartileMean,
    Mean,
    /// The mean amount by which runs miss the score 1; smaller is better.
    OptimalityGap,
}

impl Aggregate {
    /// All, in the order in which rliable draws them.
    pub const ALL: [Self; 4] = [Self::Median, Self::InterquartileMean, Self::Mean, Self::OptimalityGap];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::InterquartileMean => "iqm",
            Self::Mean => "mean",
            Self::OptimalityGap => "optimality_gap",
        }
    }

    /// The aggregate of these scores.
    pub fn of(self, scores: &Scores) -> f64 {
        let by_task = || scores.tasks().iter().map(|runs| mean(runs)).collect::<Vec<_>>();
        match self {
            Self::Median => median(&by_task()),
            Self::InterquartileMean => interquartile_mean(&scores.values().collect::<Vec<_>>()),
            Self::Mean => mean(&by_task()),
            Self::OptimalityGap => {
                mean(&scores.values().map(|score| 1.0 - score.min(1.0)).collect::<Vec<_>>())
            }
        }
    }
}

/// The mean; NaN of nothing.
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// The middle number, or the mean of the two in the middle; NaN of nothing.
pub fn median(numbers: &[f64]) -> f64 {
    quantile(numbers, 0.5)
}

/// The number below which that share of the numbers lies, linear between neighbours; NaN of nothing.
pub fn quantile(numbers: &[f64], share: f64) -> f64 {
    let sorted = sorted(numbers);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (at - at.floor()) * (above - below)
}

/// The mean without the ⌊n/4⌋ smallest and as many largest numbers: scipy's `trim_mean(0.25)`. Of fewer than four numbers
/// it is the mean. NaN of nothing.
pub fn interquartile_mean(numbers: &[f64]) -> f64 {
    let cut = numbers.len() / 4;
    mean(&sorted(numbers)[cut..numbers.len() - cut])
}

fn sorted(numbers: &[f64]) -> Vec<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interquartile_mean_cuts_whole_numbers_at_each_end() {
        assert_eq!(interquartile_mean(&[100.0, 1.0, 2.0, -50.0]), 1.5);
        assert_eq!(interquartile_mean(&[7.0]), 7.0);
        assert_eq!(interquartile_mean(&[0.0, 0.0, 9.0]), 3.0, "of three numbers none is cut");
        // Of five to seven numbers one is cut at each end.
        assert_eq!(interquartile_mean(&[9.0, 1.0, 2.0, 3.0, -4.0]), 2.0);
        assert_eq!(interquartile_mean(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 99.0]), 3.0);
        assert!(interquartile_mean(&[]).is_nan());
    }

    #[test]
    fn tasks_count_alike_in_mean_and_median_and_runs_in_the_others() {
        let scores = Scores::new(vec![vec![0.0, 2.0], vec![0.5], vec![6.0]]).unwrap();
        let of = |aggregate: Aggregate| aggregate.of(&scores);
        assert_eq!((of(Aggregate::Median), of(Aggregate::Mean)), (1.0, 2.5));
        assert_eq!(of(Aggregate::InterquartileMean), 1.25);
        assert_eq!(of(Aggregate::OptimalityGap), (1.0 + 0.0 + 0.5 + 0.0) / 4.0);
    }

    #[test]
    fn quantiles_are_linear_between_numbers() {
        let numbers = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.5, 1.0].map(|share| quantile(&numbers, share)), [1.0, 2.5, 4.0]);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
