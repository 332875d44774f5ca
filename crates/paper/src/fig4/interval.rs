//! Confidence intervals over few seeds: Student's t.
//!
//! A bootstrap over five seeds covers the mean too rarely, because it draws from five values only; a test measures the
//! coverage of this interval.

use std::fmt;

use stats::student;

/// A mean over seeds with its 95% interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeedInterval {
    pub mean: f64,
    /// Half the width; `None` with a single seed.
    pub half: Option<f64>,
}

impl SeedInterval {
    /// The interval of the mean of independent numbers, one per seed.
    pub fn over(numbers: &[f64]) -> Self {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let half = (numbers.len() > 1).then(|| {
            let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / (count - 1.0);
            student::upper_point(numbers.len() - 1) * (variance / count).sqrt()
        });
        Self { mean, half }
    }

    /// Both ends; without a width they are the mean.
    pub fn ends(self) -> (f64, f64) {
        let half = self.half.unwrap_or_default();
        (self.mean - half, self.mean + half)
    }

    /// With so many digits after the point.
    pub fn text(self, digits: usize) -> String {
        match self.half {
            Some(half) => format!("{:.digits$} ± {half:.digits$}", self.mean),
            None => format!("{:.digits$}", self.mean),
        }
    }
}

impl fmt::Display for SeedInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn an_interval_has_the_width_of_the_formula() {
        let interval = SeedInterval::over(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        // Variance 2.5, so the standard error is √0.5.
        assert_eq!(interval.mean, 3.0);
        assert!((interval.half.unwrap() - 2.776 * 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(SeedInterval::over(&[7.0]), SeedInterval { mean: 7.0, half: None });
        assert_eq!(SeedInterval::over(&[7.0]).ends(), (7.0, 7.0));
    }

    #[test]
    fn an_interval_over_five_normal_numbers_covers_the_mean_in_95_of_100_cases() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut normal = || {
            let (radius, angle): (f64, f64) = (rng.random(), rng.random());
            (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        };
        let rounds = 20_000;
        let covers = |numbers: [f64; 5]| {
            let (low, high) = SeedInterval::over(&numbers).ends();
            low < 0.0 && 0.0 < high
        };
        let covered = (0..rounds).filter(|_| covers(std::array::from_fn(|_| normal()))).count();
        // Four standard deviations of the binomial share are 0.0062.
        let share = covered as f64 / f64::from(rounds);
        assert!((share - 0.95).abs() < 0.0062, "{share}");
    }
}
