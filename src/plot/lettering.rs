//! Letters and numbers of the picture: fonts, inks, and how scores and frames are written.

use std::ops::Range;

use anyhow::{Context, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use run::units::grouped;

use super::figure::px;

/// What an SVG viewer is asked for, and under which name the font is registered for measuring and for the bitmap.
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";

pub const INK: RGBColor = RGBColor(34, 34, 34);
pub const QUIET_INK: RGBColor = RGBColor(96, 96, 96);

/// At most this many scores are written on the axis.
pub const Y_LABELS: usize = 9;

/// Letters of a size on the page.
pub fn text(size: f64, colour: RGBColor) -> TextStyle<'static> {
    styled_text(size, colour, FontStyle::Normal)
}

/// Letters of the title.
pub fn title_text() -> TextStyle<'static> {
    styled_text(19.0, INK, FontStyle::Bold)
}

fn styled_text(size: f64, colour: RGBColor, style: FontStyle) -> TextStyle<'static> {
    // Plotters' sizes are of the line, these are of the letters.
    let font = FontDesc::new(FontFamily::Name(FONT), f64::from(px(size * 1.24)), style);
    TextStyle { font, color: colour.to_backend_color(), pos: Pos::new(HPos::Left, VPos::Top) }
}

/// Makes the font known to Plotters; doing it again does no harm.
pub fn register_fonts() -> anyhow::Result<()> {
    for (style, bytes) in
        [(FontStyle::Normal, dejavu::sans::regular()), (FontStyle::Bold, dejavu::sans::bold())]
    {
        plotters::style::register_font(FONT, style, bytes)
            .map_err(|_| anyhow!("the font is damaged"))
            .context("can't draw")?;
    }
    Ok(())
}

/// What the axis counts in, and how many frames that is.
pub fn frame_unit(frames_max: f64) -> (&'static str, f64) {
    match frames_max {
        large if large >= 1e6 => ("frames (millions)", 1e6),
        medium if medium >= 1e4 => ("frames (thousands)", 1e3),
        _ => ("frames", 1.0),
    }
}

/// A number as people read it: a real minus, thousands apart, no tail of rounding.
pub fn tick(value: f64) -> String {
    let rounded = (value.abs() * 1e6).round() / 1e6;
    let sign = if value < 0.0 && rounded > 0.0 { "−" } else { "" };
    let whole = grouped(rounded.trunc() as u64);
    let rest = (rounded.fract() * 1e6).round() as u64;
    let rest = if rest == 0 { String::new() } else { format!(".{rest:06}").trim_end_matches('0').to_owned() };
    format!("{sign}{whole}{rest}")
}

/// About as wide as the widest number on the axis.
pub fn widest_tick(range: &Range<f64>) -> String {
    let step = (range.end - range.start) / Y_LABELS as f64;
    let digits = (-step.log10()).ceil().clamp(0.0, 6.0) as usize;
    let wide =
        |value: f64| format!("{}{}", tick(value.trunc()), ".00000000".get(..digits + 1).unwrap_or_default());
    let low = if range.start < 0.0 { wide(range.start.min(-1.0)) } else { wide(range.start) };
    [low, wide(range.end)].into_iter().max_by_key(|text| text.chars().count()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let check = |value: f64, expected: &str| assert_eq!(tick(value), expected);
        check(0.0, "0");
        check(-0.0, "0");
        check(0.1 + 0.2, "0.3");
        check(-20.5, "−20.5");
        check(25_000.0, "25,000");
        check(0.000_000_1, "0");
        check(0.999_999_99, "1");
    }

    #[test]
    fn the_axis_counts_in_a_fitting_unit() {
        assert_eq!(frame_unit(4e7).0, "frames (millions)");
        assert_eq!(frame_unit(30_000.0).0, "frames (thousands)");
        assert_eq!(frame_unit(200.0).0, "frames");
    }
}
