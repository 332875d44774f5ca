//! Which line is which: a row of names above the chart, where it hides no data.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::figure::px;
use super::lettering::{QUIET_INK, text};

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Stroke {
    pub colour: RGBColor,
    pub width: f64,
    pub dash: Option<(f64, f64)>,
}

/// A line and its name.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub stroke: Stroke,
}

const ROW: f64 = 20.0;
const SAMPLE: f64 = 26.0;
const GAP: f64 = 8.0;
const BETWEEN: f64 = 22.0;
const FONT_SIZE: f64 = 13.0;

/// How much room the legend needs.
pub fn legend_height<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    entries: &[Entry],
) -> anyhow::Result<i32>
where
    B::ErrorType: 'static,
{
    let rows = place(area, entries)?.last().map_or(0, |placed| placed.row + 1);
    Ok(rows * px(ROW))
}

/// Draws the entries from left to right, in as many rows as they need; letters `drop` lower.
pub fn draw_legend<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    entries: &[Entry],
    drop: i32,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    for (placed, entry) in place(area, entries)?.into_iter().zip(entries) {
        let (x, y) = (placed.x, placed.row * px(ROW) + px(ROW / 2.0));
        let style = entry.stroke.colour.stroke_width(px(entry.stroke.width) as u32);
        for (from, to) in dashes(entry.stroke.dash) {
            area.draw(&PathElement::new([(x + px(from), y), (x + px(to), y)], style))?;
        }
        let words = text(FONT_SIZE, QUIET_INK);
        area.draw_text(&placed.name, &words, (x + px(SAMPLE + GAP), y - px(FONT_SIZE * 0.5) + drop))?;
    }
    Ok(())
}

/// The pieces of a sample line.
fn dashes(dash: Option<(f64, f64)>) -> Vec<(f64, f64)> {
    let Some((dash, gap)) = dash else { return vec![(0.0, SAMPLE)] };
    let count = (SAMPLE / (dash + gap)).ceil() as usize;
    let starts = (0..count).map(|index| index as f64 * (dash + gap));
    starts.map(|start| (start, (start + dash).min(SAMPLE))).collect()
}

struct Placed {
    x: i32,
    row: i32,
    name: String,
}

fn place<B: DrawingBackend>(area: &DrawingArea<B, Shift>, entries: &[Entry]) -> anyhow::Result<Vec<Placed>>
where
    B::ErrorType: 'static,
{
    let width = area.dim_in_pixel().0 as i32;
    let words = text(FONT_SIZE, QUIET_INK);
    let measure = |name: &str| -> anyhow::Result<i32> {
        Ok(px(SAMPLE + GAP) + area.estimate_text_size(name, &words)?.0 as i32)
    };
    let (mut x, mut row) = (0, 0);
    let mut placed = Vec::with_capacity(entries.len());
    for entry in entries {
        let mut name = entry.name.clone();
        let mut wide = measure(&name)?;
        // The end of a long path tells more than its beginning.
        while wide > width && name.chars().count() > 8 {
            name = std::iter::once('…').chain(name.chars().skip(4)).collect();
            wide = measure(&name)?;
        }
        if x > 0 && x + wide > width {
            (x, row) = (0, row + 1);
        }
        placed.push(Placed { x, row, name });
        x += wide + px(BETWEEN);
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_line_stays_within_its_room() {
        assert_eq!(dashes(None), [(0.0, SAMPLE)]);
        for dash in [(7.0, 4.0), (2.0, 3.0), (12.0, 3.0)] {
            let pieces = dashes(Some(dash));
            assert!(
                pieces.len() > 1 && pieces.iter().all(|(from, to)| from < to && *to <= SAMPLE),
                "{pieces:?}"
            );
        }
    }
}
