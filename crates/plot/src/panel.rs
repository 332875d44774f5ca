//! One chart: its axes, their ticks, and the layers between them.

use std::ops::Range;

use crate::axis::{Axis, DataExtent};
use crate::colour::Ink;
use crate::frame::{AxisScale, Frame};
use crate::layer::Layer;
use crate::lettering::{Fonts, Lettering};
use crate::mark::{Anchor, Area, Mark};
use crate::number::raised;
use crate::shape::{self, Depth};
use crate::ticks::{Tick, Ticks};

/// Space for the axis label next to the numbers.
const LABEL: f64 = 22.0;
/// From the axis to its numbers, and the length of ticks.
const TO_NUMBERS: f64 = 8.0;
const TICK: f64 = 4.0;
const SMALL_TICK: f64 = 2.5;
/// Between the numbers of an axis, at least.
const BETWEEN: f64 = 14.0;

#[derive(Clone, Debug)]
pub struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    layers: Vec<Layer>,
}

impl Panel {
    /// A chart with nothing in it yet. The title is small and may be empty; `^` raises what follows.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: raised(&title.into()), x, y, layers: Vec::new() }
    }

    /// With another layer. In the panel, lines cover points and points cover bands, whichever came first.
    pub fn with(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Room above the data.
    pub(crate) fn head(&self) -> f64 {
        if self.title.is_empty() { 7.0 } else { 24.0 }
    }

    /// Room below the data.
    pub(crate) fn foot(&self) -> f64 {
        match (self.x.is_bare, self.x.label.is_empty()) {
            (true, _) => 2.0,
            (false, true) => 24.0,
            (false, false) => 24.0 + LABEL,
        }
    }

    /// Room to the left of data that is so high on the page.
    pub(crate) fn gutter(&self, height: f64, fonts: &Fonts) -> f64 {
        if self.y.is_bare {
            return 0.0;
        }
        let scale = AxisScale::new(&self.y, self.ranges().1, (height, 0.0));
        let ticks = self.y_ticks(&scale);
        let widest =
            ticks.written.iter().map(|tick| fonts.width(&tick.words, Lettering::SMALL)).fold(0.0, f64::max);
        widest + TO_NUMBERS + if self.y.label.is_empty() { 0.0 } else { LABEL }
    }

    /// Draws the data into an area, and the rest around it.
    pub(crate) fn draw(&self, area: Area, gutter: f64, fonts: &Fonts) -> Vec<Mark> {
        let (x_range, y_range) = self.ranges();
        let frame = Frame {
            area,
            x: AxisScale::new(&self.x, x_range, (area.left, area.right)),
            y: AxisScale::new(&self.y, y_range, (area.bottom, area.top)),
        };
        let mut marks = self.y_axis(&frame, gutter, fonts);
        marks.extend(self.x_axis(&frame, fonts));
        let mut layers: Vec<(Depth, Mark)> =
            self.layers.iter().flat_map(|layer| shape::marks(layer, &frame)).collect();
        layers.sort_by_key(|(depth, _)| *depth);
        marks.extend(layers.into_iter().map(|(_, mark)| mark));
        if !self.title.is_empty() {
            let (title, lettering) = fonts.fitted(&self.title, Lettering::HEADING, area.width());
            marks.push(Mark::words(
                title,
                (area.left, area.top - 9.0),
                (lettering, Ink::DARK),
                Anchor::Start,
            ));
        }
        marks
    }

    /// What is shown in either direction.
    fn ranges(&self) -> (Range<f64>, Range<f64>) {
        let (mut x, mut y) = (DataExtent::default(), DataExtent::default());
        self.layers.iter().for_each(|layer| layer.extend((&self.x, &mut x), (&self.y, &mut y)));
        (self.x.shown(&x), self.y.shown(&y))
    }

    fn y_ticks(&self, scale: &AxisScale) -> Ticks {
        Ticks::choose(scale.values(), self.y.is_log, |ticks| {
            are_apart(ticks, scale, |_| Lettering::SMALL.size + BETWEEN)
        })
    }

    fn y_axis(&self, frame: &Frame, gutter: f64, fonts: &Fonts) -> Vec<Mark> {
        if self.y.is_bare {
            return Vec::new();
        }
        let Area { left, top, right, bottom } = frame.area;
        let mut marks = Vec::new();
        let ticks = self.y_ticks(&frame.y);
        for (at, words) in placed(&ticks.written, &frame.y) {
            marks.push(Mark::stroke((left, at), (right, at), Ink::GRID, 1.0));
            marks.push(Mark::stroke((left - TICK, at), (left, at), Ink::AXIS, 1.0));
            let place = (left - TO_NUMBERS, at + Lettering::SMALL.below_middle());
            marks.push(Mark::words(words, place, (Lettering::SMALL, Ink::QUIET), Anchor::End));
        }
        for at in ticks.small.iter().filter_map(|value| frame.y.at(*value)) {
            marks.push(Mark::stroke((left - SMALL_TICK, at), (left, at), Ink::AXIS, 1.0));
        }
        marks.push(Mark::stroke((left, top), (left, bottom), Ink::AXIS, 1.0));
        if !self.y.label.is_empty() {
            // A label may be a little longer than its axis.
            let (words, lettering) = fonts.fitted(
                &self.y.label,
                Lettering::AXIS,
                frame.area.height() + self.head() + self.foot() / 2.0,
            );
            let at = (left - gutter + 0.8 * Lettering::AXIS.size, (top + bottom) / 2.0);
            marks.push(Mark::Words {
                words,
                at,
                lettering,
                ink: Ink::DARK,
                anchor: Anchor::Middle,
                upwards: true,
            });
        }
        marks
    }

    fn x_axis(&self, frame: &Frame, fonts: &Fonts) -> Vec<Mark> {
        if self.x.is_bare {
            return Vec::new();
        }
        let Area { left, right, bottom, .. } = frame.area;
        let mut marks = vec![Mark::stroke((left, bottom), (right, bottom), Ink::AXIS, 1.0)];
        let ticks = Ticks::choose(frame.x.values(), self.x.is_log, |ticks| {
            are_apart(ticks, &frame.x, |words| fonts.width(words, Lettering::SMALL) + BETWEEN)
        });
        for (at, words) in placed(&ticks.written, &frame.x) {
            marks.push(Mark::stroke((at, bottom), (at, bottom + TICK), Ink::AXIS, 1.0));
            let place = (at, bottom + TO_NUMBERS + 0.78 * Lettering::SMALL.size);
            marks.push(Mark::words(words, place, (Lettering::SMALL, Ink::QUIET), Anchor::Middle));
        }
        for at in ticks.small.iter().filter_map(|value| frame.x.at(*value)) {
            marks.push(Mark::stroke((at, bottom), (at, bottom + SMALL_TICK), Ink::AXIS, 1.0));
        }
        if !self.x.label.is_empty() {
            let (words, lettering) = fonts.fitted(&self.x.label, Lettering::AXIS, frame.area.width());
            let place = ((left + right) / 2.0, bottom + 24.0 + 0.9 * Lettering::AXIS.size);
            marks.push(Mark::words(words, place, (lettering, Ink::DARK), Anchor::Middle));
        }
        marks
    }
}

/// Whether the numbers have the room that each needs.
fn are_apart(ticks: &[Tick], scale: &AxisScale, room: impl Fn(&str) -> f64) -> bool {
    ticks.windows(2).all(|pair| match (scale.at(pair[0].value), scale.at(pair[1].value)) {
        (Some(one), Some(other)) => {
            (other - one).abs() >= (room(&pair[0].words) + room(&pair[1].words)) / 2.0
        }
        _ => false,
    })
}

/// Ticks where they are.
fn placed<'a>(ticks: &'a [Tick], scale: &'a AxisScale) -> impl Iterator<Item = (f64, &'a str)> {
    ticks.iter().filter_map(move |tick| Some((scale.at(tick.value)?, tick.words.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::Colour;

    const AREA: Area = Area { left: 60.0, top: 30.0, right: 400.0, bottom: 200.0 };

    fn words(panel: &Panel) -> Vec<String> {
        let marks = panel.draw(AREA, 60.0, &Fonts::new().unwrap());
        let words = marks.into_iter().filter_map(|mark| match mark {
            Mark::Words { words, .. } => Some(words),
            _ => None,
        });
        words.collect()
    }

    #[test]
    fn an_empty_panel_has_axes_and_their_names() {
        let words = words(&Panel::new("title", Axis::linear("x, s"), Axis::log("y")));
        for expected in ["title", "x, s", "y", "0", "1", "10"] {
            assert!(words.iter().any(|words| words == expected), "{expected} is not in {words:?}");
        }
    }

    #[test]
    fn a_bare_panel_has_only_its_layers() {
        let bare = || Axis::linear("x").range(0.0..1.0).bare();
        let panel = Panel::new("", bare(), bare()).with(Layer::words((0.5, 0.5), "goal"));
        assert_eq!(words(&panel), ["goal"]);
        assert_eq!(panel.gutter(100.0, &Fonts::new().unwrap()), 0.0);
    }

    #[test]
    fn numbers_do_not_overlap_however_narrow_the_panel_is() {
        let fonts = Fonts::new().unwrap();
        for (axis, values) in [(Axis::linear("x"), [1_000_000.0, 9_000_000.0]), (Axis::log("x"), [1.0, 1e6])]
        {
            for width in [30.0, 80.0, 200.0, 800.0] {
                let points = values.iter().map(|value| (*value, 1.0)).collect();
                let panel = Panel::new("", axis.clone(), Axis::linear("").bare()).with(Layer::points(
                    "",
                    Colour::Blue,
                    points,
                ));
                let area = Area { right: AREA.left + width, ..AREA };
                let mut right = f64::NEG_INFINITY;
                let marks = panel.draw(area, 0.0, &fonts);
                let numbers: Vec<_> = marks
                    .iter()
                    .filter(|mark| matches!(mark, Mark::Words { words, .. } if words != "x"))
                    .collect();
                for mark in &numbers {
                    let Mark::Words { words, at, lettering, .. } = mark else { continue };
                    let half = fonts.width(words, *lettering) / 2.0;
                    // Where there is room for one number only, two may be all there is.
                    assert!(at.0 - half >= right || numbers.len() <= 2, "{words} at {width}");
                    right = at.0 + half;
                }
            }
        }
    }

    #[test]
    fn lines_cover_bands_and_points_whichever_came_first() {
        let panel = Panel::new("", Axis::linear("").bare(), Axis::linear("").bare())
            .with(Layer::curve("", Colour::Blue, vec![(0.0, 1.0, 0.5), (1.0, 2.0, 0.5)]))
            .with(Layer::points("", Colour::Green, vec![(0.5, 1.0)]))
            .with(Layer::curve("", Colour::Orange, vec![(0.0, 2.0, 0.5), (1.0, 1.0, 0.5)]));
        let marks = panel.draw(AREA, 0.0, &Fonts::new().unwrap());
        let place = |wanted: fn(&Mark) -> bool| {
            marks.iter().enumerate().filter(move |(_, mark)| wanted(mark)).map(|(at, _)| at)
        };
        let last_band = place(|mark| matches!(mark, Mark::Area { .. })).max();
        let point = place(|mark| matches!(mark, Mark::Disc { opacity, .. } if *opacity < 1.0)).max();
        let first_line = place(|mark| matches!(mark, Mark::Line { .. })).min();
        assert!(last_band < point && point < first_line, "{last_band:?} {point:?} {first_line:?}");
    }
}
