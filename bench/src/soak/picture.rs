//! Three curves below one another: rates, times, memory.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Seen;

const SIZE: (u32, u32) = (800, 660);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);

type Figure = fn(&Seen) -> f64;

/// Draws what was seen as an SVG file.
pub fn draw(file: &Path, seen: &[Seen]) -> Result<()> {
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let panels: [(&str, &[(&str, Figure)]); 3] = [
        (
            "transitions per second, thousands",
            &[
                ("inserted", |seen| seen.inserts_per_second / 1e3),
                ("sampled", |seen| seen.samples_per_second / 1e3),
            ],
        ),
        ("a batch of 32, milliseconds", &[("p99", |seen| seen.p99_ms), ("p50", |seen| seen.p50_ms)]),
        ("resident memory of the shard, MB", &[("", |seen| seen.resident_mb)]),
    ];
    for (area, (title, curves)) in area.split_evenly((3, 1)).iter().zip(panels) {
        panel(area, title, seen, curves)
            .map_err(|error| anyhow!("can't draw {}: {error}", file.display()))?;
    }
    area.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    seen: &[Seen],
    curves: &[(&str, Figure)],
) -> Result<(), Box<dyn std::error::Error>> {
    let most = curves.iter().flat_map(|(_, figure)| seen.iter().map(figure)).fold(0.0, f64::max);
    let end = seen.last().map_or(1.0, |seen| seen.minutes);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..end, 0.0..1.15 * most)?;
    chart.configure_mesh().disable_x_mesh().light_line_style(WHITE).x_desc("minutes").y_labels(5).draw()?;
    for ((name, figure), colour) in curves.iter().zip([BLUE, ORANGE]) {
        let points = seen.iter().map(|seen| (seen.minutes, figure(seen)));
        let line = chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        if !name.is_empty() {
            line.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        }
    }
    if curves.len() > 1 {
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .position(SeriesLabelPosition::LowerRight)
            .draw()?;
    }
    Ok(())
}
