//! The time axis of most charts.

use plot::{Axis, Colour, Layer};

/// Time since the learner's start, in seconds, minutes or hours.
pub struct TimeAxis {
    /// Its length in seconds.
    pub seconds: f64,
    unit: &'static str,
    per_unit: f64,
}

impl TimeAxis {
    /// The axis of a learner that has run for `seconds`.
    pub fn new(seconds: f64) -> Self {
        let (unit, per_unit) = match seconds {
            short if short < 180.0 => ("seconds", 1.0),
            medium if medium < 3.0 * 3600.0 => ("minutes", 60.0),
            _ => ("hours", 3600.0),
        };
        Self { seconds, unit, per_unit }
    }

    pub fn axis(&self) -> Axis {
        Axis::linear(self.unit).range(0.0..(self.seconds / self.per_unit).max(1.0))
    }

    /// Converts (seconds, value) to the axis' unit.
    pub fn points(&self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        points.iter().map(|(seconds, value)| (seconds / self.per_unit, *value)).collect()
    }

    /// The same for a curve without error bars.
    pub fn curve(&self, points: &[(f64, f64)]) -> Vec<(f64, f64, f64)> {
        self.points(points).into_iter().map(|(at, value)| (at, value, 0.0)).collect()
    }

    /// A dashed horizontal line.
    pub fn level(&self, name: &str, value: f64) -> Layer {
        let end = (self.seconds / self.per_unit).max(1.0);
        Layer::dashed(name, Colour::Grey, vec![(0.0, value), (end, value)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_in_a_fitting_unit() {
        for (seconds, unit) in [(0.0, "seconds"), (60.0, "seconds"), (600.0, "minutes"), (90_000.0, "hours")]
        {
            assert_eq!(TimeAxis::new(seconds).unit, unit);
        }
        assert_eq!(TimeAxis::new(600.0).points(&[(60.0, 5.0)]), [(1.0, 5.0)]);
    }
}
