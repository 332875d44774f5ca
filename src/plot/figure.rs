//! The picture: axes, curves with their bands, scores to beat. Colours that colour-blind people tell apart.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::curve::{Baseline, Curve, Point};
use super::legend::{Entry, Stroke, draw_legend, legend_height};
use super::lettering::{
    INK, QUIET_INK, Y_LABELS, frame_unit, register_fonts, text, tick, title_text, widest_tick,
};

/// Size on a page, in CSS pixels.
const SIZE: (u32, u32) = (800, 500);

/// Both backends place things on whole pixels; four of ours are one on the page.
const SCALE: u32 = 4;

/// The PNG has two pixels for one on the page, each the mean of four drawn ones, which smooths edges.
const PNG_SHRINK: u32 = 2;

const CANVAS: (u32, u32) = (SIZE.0 * SCALE, SIZE.1 * SCALE);

/// Okabe and Ito's palette without its yellow, which is lost on white.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Dashes of the scores to beat, as (dash, gap): alike in colour, different in rhythm.
const DASHES: [(f64, f64); 3] = [(7.0, 4.0), (2.0, 3.0), (12.0, 3.0)];

/// Points are marked while there is room for marks.
const MARKED_POINTS_MAX: usize = 45;

/// What is drawn.
#[derive(Debug)]
pub struct Figure {
    pub title: String,
    pub subtitle: String,
    pub curves: Vec<Curve>,
    pub baselines: Vec<Baseline>,
}

/// A length on the page in pixels of the canvas.
pub fn px(length: f64) -> i32 {
    (length * f64::from(SCALE)).round() as i32
}

impl Figure {
    /// The picture as a PNG file.
    pub fn png(&self) -> anyhow::Result<Vec<u8>> {
        let mut canvas = vec![0; (CANVAS.0 * CANVAS.1 * 3) as usize];
        self.draw(&BitMapBackend::with_buffer(&mut canvas, CANVAS).into_drawing_area(), px(2.5))?;
        let (width, height) = (CANVAS.0 / PNG_SHRINK, CANVAS.1 / PNG_SHRINK);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&shrunk(&canvas))?;
        Ok(file)
    }

    /// The picture as an SVG file.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, CANVAS).into_drawing_area(), 0)?;
        let size = |(width, height): (u32, u32)| format!("width=\"{width}\" height=\"{height}\"");
        Ok(text.replacen(&size(CANVAS), &size(SIZE), 1))
    }

    /// Draws on either backend. The bitmap's puts letters a little higher than a viewer of SVG, hence `drop`.
    fn draw<B: DrawingBackend>(&self, canvas: &DrawingArea<B, Shift>, drop: i32) -> anyhow::Result<()>
    where
        B::ErrorType: 'static,
    {
        register_fonts()?;
        canvas.fill(&WHITE)?;
        let canvas = canvas.margin(px(14.0), px(10.0), px(16.0), px(20.0));
        canvas.draw_text(&self.title, &title_text(), (0, drop))?;
        canvas.draw_text(&self.subtitle, &text(13.0, QUIET_INK), (0, px(25.0) + drop))?;
        let entries = self.entries();
        let legend_top = px(48.0);
        let (_, below) = canvas.split_vertically(legend_top);
        let (legend, chart) = below.split_vertically(legend_height(&canvas, &entries)? + px(8.0));
        draw_legend(&legend, &entries, drop)?;
        self.draw_chart(&chart, drop)?;
        canvas.present()?;
        Ok(())
    }

    fn draw_chart<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, drop: i32) -> anyhow::Result<()>
    where
        B::ErrorType: 'static,
    {
        let (unit, per_unit) = frame_unit(self.frames_max());
        let (x_range, y_range) = (0.0..self.frames_max() / per_unit * 1.015, self.score_range());
        let label = text(13.0, QUIET_INK);
        let widest = area.estimate_text_size(&widest_tick(&y_range), &label)?.0;
        let mut chart = ChartBuilder::on(area)
            .margin_top(px(6.0))
            .x_label_area_size(px(44.0))
            .y_label_area_size(widest as i32 + px(34.0))
            .build_cartesian_2d(x_range.clone(), y_range)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_max_light_lines(0)
            .bold_line_style(BLACK.mix(0.12).stroke_width(SCALE))
            .axis_style(BLACK.mix(0.45).stroke_width(SCALE))
            .set_all_tick_mark_size(px(4.0))
            .x_labels(8)
            .y_labels(Y_LABELS)
            .y_label_offset(drop)
            .x_label_formatter(&|value| tick(*value))
            .y_label_formatter(&|value| tick(*value))
            .label_style(label)
            .axis_desc_style(text(14.0, INK))
            .x_desc(unit)
            .y_desc("score per game")
            .draw()?;

        for (baseline, (dash, gap)) in self.baselines.iter().zip(DASHES.into_iter().cycle()) {
            let line = [(x_range.start, baseline.mean), (x_range.end, baseline.mean)];
            let style = QUIET_INK.stroke_width(px(1.5) as u32);
            chart.draw_series(DashedLineSeries::new(line, px(dash) as u32, px(gap) as u32, style))?;
        }
        // Bands first, so that no curve is hidden by another's band.
        for (curve, stroke) in self.curves.iter().zip(strokes()) {
            let upper = curve.points.iter().map(|point| (point.frames / per_unit, point.mean + point.error));
            let lower =
                curve.points.iter().rev().map(|point| (point.frames / per_unit, point.mean - point.error));
            chart.draw_series([Polygon::new(
                upper.chain(lower).collect::<Vec<_>>(),
                stroke.colour.mix(0.18),
            )])?;
        }
        for (curve, stroke) in self.curves.iter().zip(strokes()) {
            let thin = stroke.colour.mix(0.4).stroke_width(px(1.0) as u32);
            chart
                .draw_series(LineSeries::new(curve.training.iter().map(|(x, y)| (x / per_unit, *y)), thin))?;
        }
        for (curve, stroke) in self.curves.iter().zip(strokes()) {
            let points = curve.points.iter().map(|point| (point.frames / per_unit, point.mean));
            let thick = stroke.colour.stroke_width(px(2.2) as u32);
            match stroke.dash {
                None => chart.draw_series(LineSeries::new(points.clone(), thick))?,
                Some((dash, gap)) => chart.draw_series(DashedLineSeries::new(
                    points.clone(),
                    px(dash) as u32,
                    px(gap) as u32,
                    thick,
                ))?,
            };
            if let [only] = curve.points.as_slice() {
                // A band of no width is not seen.
                chart.draw_series([error_bar(only, per_unit, stroke.colour)])?;
            }
            if curve.points.len() <= MARKED_POINTS_MAX {
                chart.draw_series(points.map(|point| Circle::new(point, px(3.0), stroke.colour.filled())))?;
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<Entry> {
        let curves = self
            .curves
            .iter()
            .zip(strokes())
            .map(|(curve, stroke)| Entry { name: curve.name.clone(), stroke });
        let baselines = self.baselines.iter().zip(DASHES.into_iter().cycle()).map(|(baseline, dash)| {
            let name = format!("{} {}", baseline.name, tick((baseline.mean * 10.0).round() / 10.0));
            Entry { name, stroke: Stroke { colour: QUIET_INK, width: 1.5, dash: Some(dash) } }
        });
        curves.chain(baselines).collect()
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

/// How each curve is drawn: seven colours, then the same dashed.
fn strokes() -> impl Iterator<Item = Stroke> {
    let solid = PALETTE.map(|colour| Stroke { colour, width: 2.2, dash: None });
    let dashed = PALETTE.map(|colour| Stroke { colour, width: 2.2, dash: Some((6.0, 3.0)) });
    solid.into_iter().chain(dashed).cycle()
}

fn error_bar(point: &Point, per_unit: f64, colour: RGBColor) -> PathElement<(f64, f64)> {
    let x = point.frames / per_unit;
    PathElement::new(
        [(x, point.mean - point.error), (x, point.mean + point.error)],
        colour.stroke_width(px(1.5) as u32),
    )
}

/// Halves the picture, averaging squares of pixels.
fn shrunk(canvas: &[u8]) -> Vec<u8> {
    let (width, shrink) = (CANVAS.0 as usize, PNG_SHRINK as usize);
    let pixel = |x: usize, y: usize, channel: usize| u32::from(canvas[(y * width + x) * 3 + channel]);
    let mut out = Vec::with_capacity(canvas.len() / (shrink * shrink));
    for y in (0..CANVAS.1 as usize).step_by(shrink) {
        for x in (0..width).step_by(shrink) {
            for channel in 0..3 {
                let sum: u32 =
                    (0..shrink * shrink).map(|i| pixel(x + i % shrink, y + i / shrink, channel)).sum();
                out.push((sum / (PNG_SHRINK * PNG_SHRINK)) as u8);
            }
        }
    }
    out
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
}
