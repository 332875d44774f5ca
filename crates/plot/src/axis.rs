//! Axes: linear or logarithmic, with a range that is given or found in the data.

use std::ops::Range;

use crate::number::raised;

/// Values beyond this are taken for infinite: the distance of two others is then a number.
const LARGEST: f64 = 1e300;

/// A log axis ends here: a little air further there are no more numbers.
const LARGEST_EXPONENT: f64 = 302.0;

/// A range is at least this part of its own size, so that its ticks differ.
const NARROWEST: f64 = 1e-9;

/// Margin around the data, as a part of its range.
const AIR: f64 = 0.04;

/// What a direction of a panel means.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) is_log: bool,
    pub(crate) is_bare: bool,
    range: Option<Range<f64>>,
}

impl Axis {
    /// Equal distances are equal differences. The label says what is shown and in which unit; `^` raises what follows.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: raised(&label.into()), is_log: false, is_bare: false, range: None }
    }

    /// Equal distances are equal factors. What is not positive is not shown.
    pub fn log(label: impl Into<String>) -> Self {
        Self { is_log: true, ..Self::linear(label) }
    }

    /// Shows exactly these values and not all that there are. A range that cannot be shown is ignored.
    pub fn range(self, range: Range<f64>) -> Self {
        Self { range: Some(range), ..self }
    }

    /// Without line, ticks, numbers and label.
    pub fn bare(self) -> Self {
        Self { is_bare: true, ..self }
    }

    /// Whether a value has a place on such an axis.
    pub(crate) fn has(&self, value: f64) -> bool {
        value.abs() <= LARGEST && (!self.is_log || value >= 1.0 / LARGEST)
    }

    /// What is shown, given what there is. Never empty.
    pub(crate) fn shown(&self, data: &DataExtent) -> Range<f64> {
        let given = self.range.clone().map(|range| range.start.min(range.end)..range.start.max(range.end));
        if let Some(range) = given
            && self.has(range.start)
            && self.has(range.end)
            && self.is_wide_enough(&range)
        {
            return range;
        }
        match data.0.clone() {
            None if self.is_log => 1.0..10.0,
            None => 0.0..1.0,
            Some(data) if self.is_log => {
                let shown = around(&(data.start.log10()..data.end.log10()), NARROWEST, 0.5);
                let power = |exponent: f64| 10f64.powf(exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT));
                power(shown.start)..power(shown.end)
            }
            Some(data) => {
                let largest = data.start.abs().max(data.end.abs());
                let half = if largest > 0.0 { 0.1 * largest } else { 0.5 };
                let shown = around(&data, NARROWEST * largest, half);
                // If all data is on one side of zero, the axis ends at zero.
                let low = if data.start >= 0.0 { shown.start.max(0.0) } else { shown.start };
                let high = if data.start < 0.0 && data.end <= 0.0 { shown.end.min(0.0) } else { shown.end };
                low..high
            }
        }
    }

    fn is_wide_enough(&self, range: &Range<f64>) -> bool {
        if self.is_log {
            range.end.ln() - range.start.ln() > NARROWEST
        } else {
            range.end - range.start > NARROWEST * range.start.abs().max(range.end.abs())
        }
    }
}

/// A range with air on both sides; one that is hardly wider than a point gets `half` on each.
fn around(data: &Range<f64>, narrow: f64, half: f64) -> Range<f64> {
    let span = data.end - data.start;
    let air = if span <= narrow { half } else { AIR * span };
    data.start - air..data.end + air
}

/// The least and the largest of some values.
#[derive(Clone, Debug, Default)]
pub struct DataExtent(Option<Range<f64>>);

impl DataExtent {
    /// Also holds that value.
    pub fn take(&mut self, value: f64) {
        let known = self.0.take().unwrap_or(value..value);
        self.0 = Some(known.start.min(value)..known.end.max(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(axis: &Axis, values: &[f64]) -> Range<f64> {
        let mut data = DataExtent::default();
        values.iter().filter(|value| axis.has(**value)).for_each(|value| data.take(*value));
        axis.shown(&data)
    }

    #[test]
    fn all_values_fit_and_no_range_is_empty() {
        let (linear, log) = (Axis::linear(""), Axis::log(""));
        let cases: [&[f64]; 9] = [
            &[],
            &[0.0],
            &[5.0],
            &[-3.0],
            &[1.0, 1.0 + 1e-15],
            &[1e-300, 2e-300],
            &[-1e300, 1e-300, 1e300],
            &[f64::MIN_POSITIVE],
            &[f64::NAN, f64::INFINITY, 2.0],
        ];
        for values in cases {
            for axis in [&linear, &log] {
                let range = shown(axis, values);
                assert!(
                    range.start < range.end && (range.end - range.start).is_finite(),
                    "{values:?}: {range:?}"
                );
                assert!(!axis.is_log || range.start > 0.0, "{values:?}: {range:?}");
                assert!(values.iter().filter(|value| axis.has(**value)).all(|value| range.contains(value)));
            }
        }
    }

    #[test]
    fn air_does_not_reach_beyond_zero() {
        assert_eq!(shown(&Axis::linear(""), &[0.0, 100.0]), 0.0..104.0);
        assert_eq!(shown(&Axis::linear(""), &[-100.0, 0.0]), -104.0..0.0);
        assert_eq!(shown(&Axis::linear(""), &[0.01, 100.0]).start, 0.0);
        assert_eq!(shown(&Axis::linear(""), &[-100.0, 100.0]), -108.0..108.0);
    }

    #[test]
    fn a_given_range_is_kept_unless_it_cannot_be_shown() {
        assert_eq!(shown(&Axis::linear("").range(2.0..8.0), &[0.0, 100.0]), 2.0..8.0);
        let reversed = Range { start: 8.0, end: 2.0 };
        assert_eq!(shown(&Axis::linear("").range(reversed), &[]), 2.0..8.0);
        assert_eq!(shown(&Axis::linear("").range(f64::NAN..1.0), &[0.0, 100.0]), 0.0..104.0);
        assert_eq!(shown(&Axis::linear("").range(3.0..3.0), &[]), 0.0..1.0);
        assert!(shown(&Axis::log("").range(0.0..10.0), &[5.0]).start > 0.0);
    }
}
