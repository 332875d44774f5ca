//! How a layer looks: its values become marks on the page.

use std::collections::BTreeMap;

use crate::colour::Ink;
use crate::frame::Frame;
use crate::layer::{Layer, Shape};
use crate::lettering::Lettering;
use crate::mark::{Anchor, Mark, Point, Stroke};

/// Points of a curve are marked while they are so far apart on average.
const MARK_DISTANCE: f64 = 16.0;
const MARK_RADIUS: f64 = 3.0;

const POINT_RADIUS: f64 = 1.8;
const POINT_OPACITY: f64 = 0.35;

/// Maximum points drawn at one position: more would be invisible, and values from a table repeat often.
const POINTS_IN_PLACE_MAX: usize = 8;

/// Positions per pixel: points closer than a tenth of a pixel count as the same position.
const PLACES_PER_PIXEL: f64 = 10.0;

const BAND_OPACITY: f64 = 0.18;

/// Panels narrower than this have finer curves.
const NARROW: f64 = 400.0;
const FINER: f64 = 0.77;

/// The identity is sampled so finely if only one of the axes is logarithmic, since it is a curve then.
const IDENTITY_POINTS: u32 = 100;

/// What covers what. Bands are all below the first line, so that no curve is hidden by another's band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    Ground,
    Reference,
    Band,
    Thin,
    Cloud,
    Line,
    Dot,
    Words,
}

/// A layer's marks in its panel.
pub fn marks(layer: &Layer, frame: &Frame) -> Vec<(Depth, Mark)> {
    match &layer.shape {
        Shape::Curve(points) => curve(layer, points, frame),
        Shape::Reference(points) => {
            let places = frame.places(points.iter().copied());
            line(&places, layer.stroke(), frame).map(|mark| (Depth::Reference, mark)).collect()
        }
        Shape::Identity => {
            let places = identity(frame);
            line(&places, layer.stroke(), frame).map(|mark| (Depth::Line, mark)).collect()
        }
        Shape::Points(points) => cloud(&frame.places(points.iter().copied()), layer.ink(), frame),
        Shape::Bars(bars, width, offset) => bars
            .iter()
            .filter_map(|(x, height)| {
                bar((x + offset - width / 2.0, x + offset + width / 2.0), *height, frame)
            })
            .map(|corners| (Depth::Ground, Mark::Area { corners, ink: layer.ink(), opacity: 1.0 }))
            .collect(),
        Shape::Patches(patches) => patches
            .iter()
            .flat_map(|(corners, strength)| patch(corners, *strength, layer.ink(), frame))
            .collect(),
        Shape::Words(at, words) => frame
            .at(*at)
            .filter(|at| frame.area.holds(*at))
            .map(|(x, y)| {
                let style = (Lettering::SMALL, layer.ink());
                let at = (x, y + Lettering::SMALL.below_middle());
                (Depth::Words, Mark::words(words.as_str(), at, style, Anchor::Middle))
            })
            .into_iter()
            .collect(),
    }
}

fn curve(layer: &Layer, points: &[(Point, Point)], frame: &Frame) -> Vec<(Depth, Mark)> {
    let ink = layer.ink();
    let shown: Vec<_> = points.iter().filter(|(point, _)| frame.at(*point).is_some()).collect();
    let places = frame.places(shown.iter().map(|(point, _)| *point));
    let depth = if layer.is_thin() { Depth::Thin } else { Depth::Line };
    let fine = if frame.area.width() < NARROW { FINER } else { 1.0 };
    let stroke = Stroke { width: fine * layer.stroke().width, ..layer.stroke() };
    let mut marks: Vec<_> = line(&places, stroke, frame).map(|mark| (depth, mark)).collect();

    let lower = shown.iter().filter_map(|((x, _), (low, _))| frame.edge((*x, *low)));
    let upper = shown.iter().filter_map(|((x, _), (_, high))| frame.edge((*x, *high)));
    if shown.len() == 1 {
        // A band of no width is invisible.
        let bar: Vec<Point> = lower.chain(upper).collect();
        let stroke = Stroke { ink, width: 1.5, dashes: None };
        marks.extend(line(&bar, stroke, frame).map(|mark| (depth, mark)));
    } else if shown.iter().any(|(_, (low, high))| low < high) {
        let lower: Vec<Point> = lower.collect();
        let band: Vec<Point> = upper.chain(lower.into_iter().rev()).collect();
        let corners = frame.inside_polygon(&band);
        marks.push((Depth::Band, Mark::Area { corners, ink, opacity: BAND_OPACITY }));
    }
    if !layer.is_thin() && places.len() as f64 * MARK_DISTANCE <= frame.area.width().max(MARK_DISTANCE) {
        let dots = places.into_iter().filter(|place| frame.area.holds(*place));
        let dot = |centre: Point| {
            (Depth::Dot, Mark::Disc { centre, radius: fine * MARK_RADIUS, ink, opacity: 1.0 })
        };
        marks.extend(dots.map(dot));
    }
    marks
}

/// A line as far as it is inside.
fn line(places: &[Point], stroke: Stroke, frame: &Frame) -> impl Iterator<Item = Mark> {
    frame.inside_line(places).into_iter().map(move |points| Mark::Line { points, stroke })
}

fn identity(frame: &Frame) -> Vec<Point> {
    let (x, y) = (frame.x.values(), frame.y.values());
    let (from, to) = (x.start.max(y.start), x.end.min(y.end));
    if from >= to {
        return Vec::new();
    }
    if frame.x.is_log() == frame.y.is_log() {
        return frame.places([from, to].map(|value| (value, value)));
    }
    let share = |index: u32| f64::from(index) / f64::from(IDENTITY_POINTS);
    // One of the axes is logarithmic, so both are positive.
    let value = |index: u32| from * (to / from).powf(share(index));
    frame.places((0..=IDENTITY_POINTS).map(value).map(|value| (value, value)))
}

fn cloud(places: &[Point], ink: Ink, frame: &Frame) -> Vec<(Depth, Mark)> {
    let mut taken: BTreeMap<(i64, i64), usize> = BTreeMap::new();
    let mut marks = Vec::new();
    for centre in places.iter().copied().filter(|place| frame.area.holds(*place)) {
        let place =
            ((centre.0 * PLACES_PER_PIXEL).round() as i64, (centre.1 * PLACES_PER_PIXEL).round() as i64);
        let here = taken.entry(place).or_default();
        *here += 1;
        if *here <= POINTS_IN_PLACE_MAX {
            marks.push((
                Depth::Cloud,
                Mark::Disc { centre, radius: POINT_RADIUS, ink, opacity: POINT_OPACITY },
            ));
        }
    }
    marks
}

/// From the axis, or from zero, to its height.
fn bar((left, right): (f64, f64), height: f64, frame: &Frame) -> Option<Vec<Point>> {
    let (left, right, top) = (frame.x.at(left)?, frame.x.at(right)?, frame.y.at(height)?);
    let ground = frame.y.at(0.0).unwrap_or(frame.y.start());
    Some(frame.inside_polygon(&[(left, ground), (left, top), (right, top), (right, ground)]))
}

fn patch(corners: &[Point], strength: f64, ink: Ink, frame: &Frame) -> Vec<(Depth, Mark)> {
    let places = frame.places(corners.iter().copied());
    if places.len() < corners.len() || places.len() < 3 {
        return Vec::new();
    }
    let mut marks = Vec::new();
    // Strength that is not a number is none; the outline is there all the same.
    if strength > 0.0 {
        let corners = frame.inside_polygon(&places);
        marks.push((Depth::Ground, Mark::Area { corners, ink: ink.thinned(strength), opacity: 1.0 }));
    }
    let outline: Vec<Point> = places.iter().chain(&places[..1]).copied().collect();
    let stroke = Stroke { ink: Ink::AXIS, width: 0.75, dashes: None };
    marks.extend(line(&outline, stroke, frame).map(|mark| (Depth::Reference, mark)));
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Axis;
    use crate::colour::Colour;
    use crate::frame::AxisScale;
    use crate::mark::Area;

    fn frame(x: &Axis, y: &Axis) -> Frame {
        let area = Area { left: 0.0, top: 0.0, right: 100.0, bottom: 100.0 };
        Frame {
            area,
            x: AxisScale::new(x, 1.0..11.0, (0.0, 100.0)),
            y: AxisScale::new(y, 1.0..11.0, (100.0, 0.0)),
        }
    }

    fn linear() -> Frame {
        frame(&Axis::linear(""), &Axis::linear(""))
    }

    fn count(marks: &[(Depth, Mark)], depth: Depth) -> usize {
        marks.iter().filter(|(at, _)| *at == depth).count()
    }

    #[test]
    fn values_without_a_place_are_skipped_and_the_others_joined() {
        let points =
            vec![(1.0, 1.0, 0.1), (2.0, f64::NAN, 0.1), (3.0, 3.0, f64::INFINITY), (f64::INFINITY, 3.0, 0.1)];
        let marks = marks(&Layer::curve("", Colour::Blue, points), &linear());
        let (_, Mark::Line { points, .. }) = &marks[0] else { panic!("{marks:?}") };
        assert_eq!(points, &[(0.0, 100.0), (20.0, 80.0)]);
        assert_eq!((count(&marks, Depth::Band), count(&marks, Depth::Dot)), (1, 2));
    }

    #[test]
    fn a_single_point_shows_its_error_and_none_shows_nothing() {
        let one = marks(&Layer::curve("", Colour::Blue, vec![(5.0, 5.0, 2.0)]), &linear());
        assert_eq!((count(&one, Depth::Line), count(&one, Depth::Dot), count(&one, Depth::Band)), (1, 1, 0));
        for layer in [
            Layer::curve("", Colour::Blue, Vec::new()),
            Layer::dashed("", Colour::Blue, Vec::new()),
            Layer::points("", Colour::Blue, vec![(f64::NAN, 1.0)]),
            Layer::bars("", Colour::Blue, Vec::new(), 1.0, 0.0),
            Layer::patches(Colour::Blue, vec![(Vec::new(), 1.0), (vec![(f64::NAN, 0.0); 3], 1.0)]),
            Layer::words((50.0, 50.0), "outside"),
        ] {
            assert!(marks(&layer, &linear()).is_empty(), "{layer:?}");
        }
    }

    #[test]
    fn an_interval_reaches_from_low_to_high_around_no_middle() {
        let points = vec![(1.0, 2.0, 1.0, 6.0), (11.0, 3.0, f64::NAN, 3.0)];
        let marks = marks(&Layer::intervals("", Colour::Blue, points), &linear());
        let band = marks.iter().find_map(|(_, mark)| match mark {
            Mark::Area { corners, .. } => Some(corners),
            _ => None,
        });
        let expected = [(0.0, 50.0), (100.0, 80.0), (0.0, 100.0)];
        assert!(expected.iter().all(|corner| band.unwrap().contains(corner)), "{band:?}");
    }

    #[test]
    fn marks_are_left_out_where_there_is_no_room() {
        let points = (1..11).map(|x| (f64::from(x), 5.0, 0.0)).collect();
        let marks = marks(&Layer::curve("", Colour::Blue, points), &linear());
        assert_eq!(
            (count(&marks, Depth::Line), count(&marks, Depth::Dot), count(&marks, Depth::Band)),
            (1, 0, 0)
        );
    }

    #[test]
    fn a_band_that_reaches_zero_is_cut_at_the_end_of_a_log_axis() {
        let log = frame(&Axis::linear(""), &Axis::log(""));
        let marks = marks(&Layer::curve("", Colour::Blue, vec![(1.0, 5.0, 9.0), (11.0, 5.0, 1.0)]), &log);
        let band = marks.iter().find_map(|(_, mark)| match mark {
            Mark::Area { corners, .. } => Some(corners),
            _ => None,
        });
        let band = band.unwrap();
        assert!(
            band.contains(&(0.0, 100.0)) && band.iter().all(|corner| log.area.holds(*corner)),
            "{band:?}"
        );
    }

    #[test]
    fn the_identity_is_straight_between_equal_axes_and_bent_between_others() {
        let (log, linear_axis) = (Axis::log(""), Axis::linear(""));
        for (frame, is_straight) in
            [(linear(), true), (frame(&log, &log), true), (frame(&log, &linear_axis), false)]
        {
            let straight = identity(&frame).iter().all(|(x, y)| (x + y - 100.0).abs() < 1e-6);
            assert_eq!(straight, is_straight);
        }
    }

    #[test]
    fn many_points_in_one_place_are_drawn_a_few_times() {
        let layer = Layer::points("", Colour::Blue, vec![(5.0, 5.0); 1000]);
        assert_eq!(marks(&layer, &linear()).len(), POINTS_IN_PLACE_MAX);
    }
}
