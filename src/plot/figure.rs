//! The figure of one or more runs: curves with error bands, and baselines. The `plot` crate draws it.

use std::ops::Range;

use ::plot::{Axis, Colour, Layer, Page, Panel, PlotError, number};
use run::curve::CurvePoint;

use super::curve::{Baseline, RunCurve};

/// Dashes of the baselines, as (dash, gap): one colour, different patterns.
const DASHES: [(f64, f64); 3] = [(7.0, 4.0), (2.0, 3.0), (12.0, 3.0)];

/// Dash and gap of the curves that reuse a colour.
const CURVE_DASHES: (f64, f64) = (6.0, 3.0);

/// The contents of a figure.
#[derive(Debug)]
pub struct CurveFigure {
    pub title: String,
    pub subtitle: String,
    pub curves: Vec<RunCurve>,
    pub baselines: Vec<Baseline>,
}

impl CurveFigure {
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        self.page().png()
    }

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
        for (curve, (colour, is_dashed)) in self.curves.iter().zip(styles()) {
            let points = curve
                .points
                .iter()
                .map(|CurvePoint { frames, mean, error }| (frames / per_unit, *mean, *error));
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

    /// The range of all scores, with a margin; never empty.
    fn score_range(&self) -> Range<f64> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let scores = points
            .flat_map(|point| [point.mean - point.error, point.mean + point.error])
            .chain(self.curves.iter().flat_map(|curve| &curve.training).map(|(_, score)| *score))
            .chain(self.baselines.iter().map(|baseline| baseline.mean));
        let (low, high) =
            scores.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
        // A minimum span, so that noise of a few percent around a constant score looks like noise.
        let span_min = 0.1 * low.abs().max(high.abs()).max(1.0);
        let (middle, half) = ((low + high) / 2.0, (high - low).max(span_min) * 0.56);
        middle - half..middle + half
    }
}

/// The style of each curve, as (colour, is dashed): seven colours, then the same seven dashed.
fn styles() -> impl Iterator<Item = (Colour, bool)> {
    let solid = Colour::DATA.map(|colour| (colour, false));
    let dashed = Colour::DATA.map(|colour| (colour, true));
    solid.into_iter().chain(dashed).cycle()
}

/// The unit of the axis, and the frames per unit.
pub fn frame_unit(frames_max: f64) -> (&'static str, f64) {
    match frames_max {
        large if large >= 1e6 => ("frames (millions)", 1e6),
        medium if medium >= 1e4 => ("frames (thousands)", 1e3),
        _ => ("frames", 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(scores: &[f64]) -> CurveFigure {
        let point =
            |(index, mean): (usize, &f64)| CurvePoint { frames: index as f64, mean: *mean, error: 0.0 };
        let points = scores.iter().enumerate().map(point).collect();
        let curves = vec![RunCurve { name: "a".into(), points, training: Vec::new() }];
        CurveFigure { title: "t".into(), subtitle: "s".into(), curves, baselines: Vec::new() }
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
    fn fourteen_runs_differ_in_colour_or_dashes() {
        let styles: Vec<_> = styles().take(15).collect();
        assert!((0..14).all(|index| !styles[..index].contains(&styles[index])));
        assert_eq!(styles[14], styles[0]);
    }

    #[test]
    fn the_axis_counts_in_a_fitting_unit() {
        assert_eq!(frame_unit(4e7).0, "frames (millions)");
        assert_eq!(frame_unit(30_000.0).0, "frames (thousands)");
        assert_eq!(frame_unit(200.0).0, "frames");
    }
}
