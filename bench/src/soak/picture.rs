//! Three panels below one another: rates, times, memory.

use std::path::Path;

use anyhow::{Context, Result};
use plot::{Axis, Colour, Layer, Page, Panel};

use super::Seen;

/// Room for three panels.
const SIZE: (u32, u32) = (800, 720);

/// A name for the legend, a colour, and what it shows.
type Figure = (&'static str, Colour, fn(&Seen) -> f64);

const RATES: [Figure; 2] = [
    ("inserted", Colour::Blue, |seen| seen.inserts_per_second / 1e3),
    ("sampled", Colour::Orange, |seen| seen.samples_per_second / 1e3),
];
const TIMES: [Figure; 2] =
    [("batch, p99", Colour::Pink, |seen| seen.p99_ms), ("batch, p50", Colour::Green, |seen| seen.p50_ms)];
const MEMORY: [Figure; 1] = [("memory", Colour::Black, |seen| seen.resident_mb)];

/// Draws the measurements as an SVG file.
pub fn draw(file: &Path, seen: &[Seen]) -> Result<()> {
    let page = page(seen).svg().with_context(|| format!("can't draw {}", file.display()))?;
    std::fs::write(file, page).with_context(|| format!("can't write {}", file.display()))
}

fn page(seen: &[Seen]) -> Page {
    let last = seen.last().map_or(1.0, |seen| seen.minutes);
    let subtitle = format!("{} measurements in {last:.0} minutes", seen.len());
    let mut page = Page::new("A shard under full load", subtitle);
    page.size = SIZE;
    page.panels = vec![
        panel("transitions", "thousands/s", seen, &RATES),
        panel("a batch of 32", "ms", seen, &TIMES),
        panel("resident memory of the shard", "MB", seen, &MEMORY),
    ];
    page
}

/// Curves from zero, so that noise looks like noise.
fn panel(title: &str, unit: &str, seen: &[Seen], figures: &[Figure]) -> Panel {
    let most = figures.iter().flat_map(|(_, _, figure)| seen.iter().map(figure)).fold(0.0, f64::max);
    let axes = (Axis::linear("minutes"), Axis::linear(unit).range(0.0..1.15 * most));
    figures.iter().fold(Panel::new(title, axes.0, axes.1), |panel, (name, colour, figure)| {
        let points = seen.iter().map(|seen| (seen.minutes, figure(seen), 0.0)).collect();
        panel.with(Layer::curve(*name, *colour, points))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_panels_share_a_legend_and_nothing_seen_is_drawn_too() {
        let line = |minutes: f64| Seen {
            minutes,
            inserts_per_second: 2e5,
            samples_per_second: 9e5,
            p50_ms: 0.4,
            p99_ms: 3.0,
            resident_mb: 1200.0,
        };
        let svg = page(&[line(1.0), line(2.0)]).svg().unwrap();
        for words in ["inserted", "sampled", "batch, p99", "batch, p50", "thousands/s", "ms", "MB"] {
            assert!(svg.contains(&format!(">{words}</text>")), "{words}");
        }
        assert!(page(&[]).svg().is_ok());
    }
}
