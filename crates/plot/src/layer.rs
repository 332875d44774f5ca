//! The layers of a panel: curves, points, bars, patches, text.
//!
//! A layer holds values as they were measured. Which of them have a place is for the axes to say, and how they look
//! is in `shape`.

use crate::axis::{Axis, DataExtent};
use crate::colour::{Colour, Ink, PALE};
use crate::legend::LegendKey;
use crate::mark::{Point, Stroke};

/// Dash and gap of a reference, on the page.
const REFERENCE_DASHES: (f64, f64) = (7.0, 4.0);

/// Something in a panel. A layer with a name is in the page's legend.
#[derive(Clone, Debug)]
pub struct Layer {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    colour: Colour,
    dashes: Option<(f64, f64)>,
    is_thin: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Points, each with the ends of its interval.
    Curve(Vec<(Point, Point)>),
    Reference(Vec<Point>),
    Identity,
    Points(Vec<Point>),
    /// (x, height), how wide each is, and how far to the right of its x.
    Bars(Vec<Point>, f64, f64),
    /// (polygon, strength).
    Patches(Vec<(Vec<Point>, f64)>),
    Words(Point, String),
}

impl Layer {
    fn new(name: impl Into<String>, colour: Colour, shape: Shape) -> Self {
        Self { name: name.into(), shape, colour, dashes: None, is_thin: false }
    }

    /// A curve through (x, mean, error) with a band of mean ± error; with marks while there is room for them.
    pub fn curve(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64, f64)>) -> Self {
        let around = |(x, mean, error): (f64, f64, f64)| (x, mean, mean - error.abs(), mean + error.abs());
        Self::intervals(name, colour, points.into_iter().map(around).collect())
    }

    /// A curve through (x, value, low, high) with a band from low to high; a single point has a bar instead. An end that is
    /// not a number is the value itself.
    pub fn intervals(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64, f64, f64)>) -> Self {
        let end = |value: f64, end: f64| if end.is_finite() { end } else { value };
        let point = |(x, value, low, high)| ((x, value), (end(value, low), end(value, high)));
        Self::new(name, colour, Shape::Curve(points.into_iter().map(point).collect()))
    }

    /// A dashed line behind the curves: a reference or a baseline.
    pub fn dashed(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Reference(points)).dashes(REFERENCE_DASHES.0, REFERENCE_DASHES.1)
    }

    /// Many small translucent points.
    pub fn points(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Points(points))
    }

    /// The line y = x, above the points.
    pub fn identity(name: impl Into<String>) -> Self {
        Self::new(name, Colour::Black, Shape::Identity)
    }

    /// Bars of (x, height), `width` wide and `offset` to the right of their x, both in units of x.
    pub fn bars(
        name: impl Into<String>,
        colour: Colour,
        bars: Vec<(f64, f64)>,
        width: f64,
        offset: f64,
    ) -> Self {
        Self::new(name, colour, Shape::Bars(bars, width, offset))
    }

    /// Outlined polygons with a strength of colour each, from 0 for white to 1.
    pub fn patches(colour: Colour, patches: Vec<(Vec<(f64, f64)>, f64)>) -> Self {
        Self::new("", colour, Shape::Patches(patches))
    }

    /// Words around a point.
    pub fn words(at: (f64, f64), words: impl Into<String>) -> Self {
        Self::new("", Colour::Grey, Shape::Words(at, words.into()))
    }

    /// The line in dashes of that length on an 800 pixel page.
    pub fn dashes(self, dash: f64, gap: f64) -> Self {
        Self { dashes: Some((dash, gap)), ..self }
    }

    /// The line thin and pale and without marks, behind the others.
    pub fn thin(self) -> Self {
        Self { is_thin: true, ..self }
    }

    pub(crate) fn is_thin(&self) -> bool {
        self.is_thin
    }

    pub(crate) fn ink(&self) -> Ink {
        if self.is_thin { self.colour.ink().thinned(PALE) } else { self.colour.ink() }
    }

    /// How lines of this layer are drawn.
    pub(crate) fn stroke(&self) -> Stroke {
        let width = match self.shape {
            _ if self.is_thin => 1.0,
            Shape::Identity => 1.2,
            Shape::Reference(_) => 1.5,
            _ => 2.2,
        };
        // SVG would take a dash of no length for no line at all.
        let dashes = self.dashes.filter(|(dash, gap)| *dash > 0.0 && *gap > 0.0);
        Stroke { ink: self.ink(), width, dashes }
    }

    /// Its symbol in the legend.
    pub(crate) fn legend_key(&self) -> LegendKey {
        match self.shape {
            Shape::Curve(_) | Shape::Reference(_) | Shape::Identity => LegendKey::Line(self.stroke()),
            Shape::Points(_) => LegendKey::Disc(self.ink()),
            Shape::Bars(..) | Shape::Patches(_) | Shape::Words(..) => LegendKey::Square(self.ink()),
        }
    }

    /// Widens the extents to hold all that has a place on both axes.
    pub(crate) fn extend(
        &self,
        (x_axis, x): (&Axis, &mut DataExtent),
        (y_axis, y): (&Axis, &mut DataExtent),
    ) {
        let mut take = |at: f64, values: &[f64]| {
            let mut values = values.iter().filter(|value| y_axis.has(**value)).peekable();
            if x_axis.has(at) && values.peek().is_some() {
                x.take(at);
                values.for_each(|value| y.take(*value));
            }
        };
        match &self.shape {
            Shape::Curve(points) => {
                let shown = points.iter().filter(|((_, value), _)| y_axis.has(*value));
                shown.for_each(|((at, value), (low, high))| take(*at, &[*value, *low, *high]));
            }
            Shape::Reference(points) | Shape::Points(points) => {
                points.iter().for_each(|(at, value)| take(*at, &[*value]));
            }
            Shape::Bars(bars, width, offset) => {
                for (at, height) in bars.iter().filter(|(_, height)| y_axis.has(*height)) {
                    take(at + offset - width / 2.0, &[0.0, *height]);
                    take(at + offset + width / 2.0, &[0.0, *height]);
                }
            }
            Shape::Patches(patches) => {
                patches.iter().flat_map(|(corners, _)| corners).for_each(|(at, value)| take(*at, &[*value]));
            }
            Shape::Words((at, value), _) => take(*at, &[*value]),
            Shape::Identity => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(layer: &Layer, axis: &Axis) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
        let (mut x, mut y) = (DataExtent::default(), DataExtent::default());
        layer.extend((axis, &mut x), (axis, &mut y));
        (axis.shown(&x), axis.shown(&y))
    }

    #[test]
    fn a_band_is_within_sight_and_values_without_a_place_are_not_looked_at() {
        let points =
            vec![(10.0, 5.0, 2.0), (f64::NAN, 900.0, 0.0), (20.0, f64::INFINITY, 0.0), (30.0, 6.0, f64::NAN)];
        let (x, y) = shown(&Layer::curve("", Colour::Blue, points), &Axis::linear(""));
        assert!(x.contains(&10.0) && x.contains(&30.0) && x.end < 40.0, "{x:?}");
        assert!(y.contains(&3.0) && y.contains(&7.0) && y.end < 10.0, "{y:?}");
    }

    #[test]
    fn a_log_axis_passes_over_what_is_not_positive() {
        let points = vec![(0.0, 1e6), (1.0, -5.0), (2.0, 100.0), (3.0, 200.0)];
        let (x, y) = shown(&Layer::points("", Colour::Blue, points), &Axis::log(""));
        assert!(x.start > 1.5 && y.end < 300.0, "{x:?} {y:?}");
    }

    #[test]
    fn bars_stand_on_zero() {
        let bars = Layer::bars("", Colour::Blue, vec![(1.0, 10.0), (2.0, 12.0)], 0.8, 0.0);
        let (x, y) = shown(&bars, &Axis::linear(""));
        assert_eq!(y.start, 0.0);
        assert!(x.contains(&0.6) && x.contains(&2.4));
    }

    #[test]
    fn dashes_or_gaps_of_no_length_are_a_solid_line() {
        let dashes = |dash, gap| Layer::identity("").dashes(dash, gap).stroke().dashes;
        assert_eq!(dashes(6.0, 3.0), Some((6.0, 3.0)));
        for (dash, gap) in [(0.0, 3.0), (6.0, 0.0), (-1.0, 3.0), (f64::NAN, 3.0)] {
            assert_eq!(dashes(dash, gap), None);
        }
    }
}
