//! Maps values to positions on the page.

use std::ops::Range;

use crate::axis::Axis;
use crate::clip;
use crate::mark::{Area, Point};

/// One axis on the page.
#[derive(Clone, Debug)]
pub struct AxisScale {
    axis: Axis,
    values: Range<f64>,
    /// Where the range begins and ends; for an axis that points upwards the beginning is the larger.
    ends: (f64, f64),
}

impl AxisScale {
    pub fn new(axis: &Axis, values: Range<f64>, ends: (f64, f64)) -> Self {
        Self { axis: axis.clone(), values, ends }
    }

    /// Where a value is, perhaps far outside of the panel; nowhere if it is not finite, or not positive on a log axis.
    pub fn at(&self, value: f64) -> Option<f64> {
        self.axis.has(value).then(|| self.ends.0 + self.share(value) * (self.ends.1 - self.ends.0))
    }

    /// Like `at`, but what lies below all that has a place is at the beginning.
    fn at_or_below(&self, value: f64) -> Option<f64> {
        let is_below = self.axis.is_log && value < self.values.start;
        if is_below { Some(self.ends.0) } else { self.at(value) }
    }

    pub fn is_log(&self) -> bool {
        self.axis.is_log
    }

    /// Where the range begins.
    pub fn start(&self) -> f64 {
        self.ends.0
    }

    pub fn values(&self) -> &Range<f64> {
        &self.values
    }

    fn share(&self, value: f64) -> f64 {
        // Far outside the visible area, and arithmetic still works.
        const FAR: f64 = 1e6;
        let measure = |value: f64| if self.axis.is_log { value.ln() } else { value };
        let (start, end) = (measure(self.values.start), measure(self.values.end));
        ((measure(value) - start) / (end - start)).clamp(-FAR, FAR)
    }
}

/// A panel's data on the page.
#[derive(Clone, Debug)]
pub struct Frame {
    pub area: Area,
    pub x: AxisScale,
    pub y: AxisScale,
}

impl Frame {
    pub fn at(&self, (x, y): (f64, f64)) -> Option<Point> {
        Some((self.x.at(x)?, self.y.at(y)?))
    }

    /// A place on the edge of a band, which may reach below what a log axis shows.
    pub fn edge(&self, (x, y): (f64, f64)) -> Option<Point> {
        Some((self.x.at(x)?, self.y.at_or_below(y)?))
    }

    /// Those of the points that have a place.
    pub fn places(&self, points: impl IntoIterator<Item = (f64, f64)>) -> Vec<Point> {
        points.into_iter().filter_map(|point| self.at(point)).collect()
    }

    /// The pieces of a line that are inside.
    pub fn inside_line(&self, points: &[Point]) -> Vec<Vec<Point>> {
        clip::line(points, &self.area)
    }

    /// The part of a polygon that is inside.
    pub fn inside_polygon(&self, corners: &[Point]) -> Vec<Point> {
        clip::polygon(corners, &self.area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_has_equal_steps_and_a_log_axis_equal_factors() {
        let linear = AxisScale::new(&Axis::linear(""), 0.0..10.0, (100.0, 200.0));
        assert_eq!([0.0, 5.0, 10.0].map(|value| linear.at(value)), [100.0, 150.0, 200.0].map(Some));
        let log = AxisScale::new(&Axis::log(""), 1.0..100.0, (300.0, 100.0));
        for (value, expected) in [(1.0, 300.0), (10.0, 200.0), (100.0, 100.0)] {
            assert!((log.at(value).unwrap() - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn what_has_no_place_has_none() {
        let linear = AxisScale::new(&Axis::linear(""), 0.0..1.0, (0.0, 1.0));
        let log = AxisScale::new(&Axis::log(""), 1.0..10.0, (0.0, 1.0));
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX] {
            assert_eq!((linear.at(value), log.at(value)), (None, None));
        }
        assert_eq!((log.at(0.0), log.at(-1.0)), (None, None));
        assert_eq!((log.at_or_below(0.0), log.at_or_below(-1.0)), (Some(0.0), Some(0.0)));
        assert_eq!(log.at_or_below(f64::NAN), None);
    }
}
