//! The picture of some runs: curves with their bands, scores to beat. Colours and letters are the `plot` crate's.

use std::ops::Range;

use ::plot::{Axis, Colour, Layer, Page, Panel, PlotError, number};
use run::curve::Point;

use super::curve::{Baseline, Curve};

/// Dashes of the scores to beat, as (dash, gap): alike in colour, different in rhythm.
const DASHES: [(f64, f64); 3] = [(7.0, 4.0), (2.0, 3.0), (12.0, 3.0)];

/// Dash and gap of curves for which no colour is left.
const CURVE_DASHES: (f64, f64) = (6.0, 3.0);

/// What is drawn.
#[derive(Debug)]
pub struct Figure {
    pub title: String,
    pub subtitle: String,
    pub curves: Vec<Curve>,
    pub baselines: Vec<Baseline>,
}

impl Figure {
    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        self.page().png()
    }

    /// The picture as an SVG file.
    pub fn svg(&self) -> Result<String, PlotError> {
        self.page().svg()
    }

    fn page(&self) -> Page {
        let (unit, per_unit) = frame_unit(self.frames_max());
        let frames = 0.0..self.frames_max() / per_unit * 1.015;
        let axes = (
            Axis::linear(unit).range(frames.clone()),
            Axis::linear("score per game").range(self.score_range()),
        );
        let mut panel = Panel::new("", axes.0, axes.1);
        for (curve, (colour, is_dashed)) in self.curves.iter().zip(looks()) {
            let points =
                curve.points.iter().map(|Point { frames, mean, error }| (frames / per_unit, *mean, *error));
            let line = Layer::curve(curve.name.as_str(), colour, points.collect());
            let line = if is_dashed { line.dashes(CURVE_DASHES.0, CURVE_DASHES.1) } else { line };
            let training = curve.training.iter().map(|(frames, score)| (frames / per_unit, *score, 0.0));
            panel = panel.with(line).with(Layer::curve("", colour, training.collect()).thin());
        }
        for (Baseline { name, mean }, (dash, gap)) in self.baselines.iter().zip(DASHES.into_iter().cycle()) {
            let name = format!("{name} {}", number((mean * 10.0).round() / 10.0));
            let level = vec![(frames.start, *mean), (frames.end, *mean)];
            panel = panel.with(Layer::dashed(name, Colour::Grey, level).dashes(dash, gap));
        }
        let mut page = Page::new(self.title.as_str(), self.subtitle.as_str());
        page.panels.push(panel);
        page
    }

    fn frames_max(&self) -> f64 {
        let points = self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.frames);
        points.fold(1.0, f64::max)
    }

    /// All that is shown and a little air; never empty.
    fn score_range(&self) -> Range<f64> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let scores = points
            .flat_map(|point| [point.mean - point.error, point.mean + point.error])
            .chain(self.curves.iter().flat_map(|curve| &curve.training).map(|(_, score)| *score))
            .chain(self.baselines.iter().map(|baseline| baseline.mean));
        let (low, high) =
            scores.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
        // Noise of a few percent around a level score should look like noise.
        let span_min = 0.1 * low.abs().max(high.abs()).max(1.0);
        let (middle, half) = ((low + high) / 2.0, (high - low).max(span_min) * 0.56);
        middle - half..middle + half
    }
}

/// How each curve is drawn: in seven colours, then in the same dashed.
fn looks() -> impl Iterator<Item = (Colour, bool)> {
    let solid = Colour::DATA.map(|colour| (colour, false));
    let dashed = Colour::DATA.map(|colour| (colour, true));
    solid.into_iter().chain(dashed).cycle()
}

/// What the axis counts in, and how many frames that is.
fn frame_unit(frames_max: f64) -> (&'static str, f64) {
    match frames_max {
        large if large >= 1e6 => ("frames (millions)", 1e6),
        medium if medium >= 1e4 => ("frames (thousands)", 1e3),
        _ => ("frames", 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(scores: &[f64]) -> Figure {
        let point = |(index, mean): (usize, &f64)| Point { frames: index as f64, mean: *mean, error: 0.0 };
        let points = scores.iter().enumerate().map(point).collect();
        let curves = vec![Curve { name: "a".into(), points, training: Vec::new() }];
        Figure { title: "t".into(), subtitle: "s".into(), curves, baselines: Vec::new() }
    }

    #[test]
    fn the_scores_fit_and_a_level_curve_has_room() {
        for scores in [&[-21.0, 15.0][..], &[0.0], &[0.0, 1e-9], &[199.0, 200.0], &[-1e7, 1e7], &[5.0; 3]] {
            let range = figure(scores).score_range();
            assert!(scores.iter().all(|score| range.contains(score)), "{range:?}");
            assert!(range.end - range.start >= 0.1 * range.end.abs(), "{range:?}");
        }
    }

    #[test]
    fn extreme_scores_are_drawn_too() {
        for scores in [&[0.0][..], &[1e12, -1e12], &[1e-9, 2e-9]] {
            assert!(figure(scores).svg().unwrap().ends_with("</svg>\n"), "{scores:?}");
        }
    }

    #[test]
    fn fifteen_runs_are_told_apart_by_colour_and_dashes_as_far_as_they_go() {
        let looks: Vec<_> = looks().take(15).collect();
        assert!((0..14).all(|index| !looks[..index].contains(&looks[index])));
        assert_eq!(looks[14], looks[0]);
    }

    #[test]
    fn the_axis_counts_in_a_fitting_unit() {
        assert_eq!(frame_unit(4e7).0, "frames (millions)");
        assert_eq!(frame_unit(30_000.0).0, "frames (thousands)");
        assert_eq!(frame_unit(200.0).0, "frames");
    }
}
