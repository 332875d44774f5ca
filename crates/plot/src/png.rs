//! Rasterises the SVG file to a PNG, with the built-in font: the same pixels on every machine.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Source};
use resvg::usvg::{Options, Tree};

use crate::mark::Sheet;
use crate::page::PlotError;
use crate::svg;

/// Pixels for one of the page, so that letters are sharp on dense screens.
const SCALE: u32 = 2;

/// The sheet as a PNG file.
pub fn png(sheet: &Sheet) -> Result<Vec<u8>, PlotError> {
    raster(sheet)?.encode_png().map_err(|error| PlotError::Png(error.into()))
}

fn raster(sheet: &Sheet) -> Result<Pixmap, PlotError> {
    let mut fonts = Database::new();
    for font in [dejavu::sans::regular(), dejavu::sans::bold()] {
        fonts.load_font_source(Source::Binary(Arc::new(font)));
    }
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(&svg::file(sheet), &options).map_err(|error| PlotError::Png(error.into()))?;
    let [width, height] = [sheet.size.0, sheet.size.1].map(|pixels| pixels.saturating_mul(SCALE));
    let mut pixels =
        Pixmap::new(width, height).ok_or_else(|| PlotError::Png("the page is too large".into()))?;
    resvg::render(&tree, Transform::from_scale(SCALE as f32, SCALE as f32), &mut pixels.as_mut());
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::{Colour, Ink};
    use crate::lettering::{Fonts, Lettering};
    use crate::mark::{Anchor, Mark, Point, Stroke};

    const BLACK: Ink = Ink(0, 0, 0);
    const WHITE: Ink = Ink(255, 255, 255);

    fn sheet(marks: Vec<Mark>) -> Sheet {
        Sheet { size: (50, 50), magnification: 1.0, marks }
    }

    fn painted(marks: Vec<Mark>) -> Pixmap {
        raster(&sheet(marks)).unwrap()
    }

    /// The colour to the lower right of a place on the page.
    fn ink(pixels: &Pixmap, (x, y): Point) -> Ink {
        let scale = f64::from(SCALE);
        let pixel = pixels.pixel((x * scale) as u32, (y * scale) as u32).unwrap();
        assert_eq!(pixel.alpha(), 255);
        Ink(pixel.red(), pixel.green(), pixel.blue())
    }

    /// The first and the last row, or column, that is more dark than white.
    fn dark(mark: Mark, coordinate: fn(usize, usize) -> usize) -> (usize, usize) {
        let pixels = painted(vec![mark]);
        let width = pixels.width() as usize;
        let dark = pixels.pixels().iter().enumerate().filter(|(_, pixel)| pixel.red() < 127);
        let places = dark.map(|(at, _)| coordinate(at, width));
        places.fold((usize::MAX, 0), |(first, last), at| (first.min(at), last.max(at)))
    }

    fn rows(mark: Mark) -> (usize, usize) {
        dark(mark, |at, width| at / width)
    }

    fn columns(mark: Mark) -> (usize, usize) {
        dark(mark, |at, width| at % width)
    }

    #[test]
    fn a_png_has_two_pixels_for_one_of_the_page() {
        let file = png(&Sheet { size: (60, 45), magnification: 1.0, marks: Vec::new() }).unwrap();
        assert!(file.starts_with(b"\x89PNG\r\n\x1a\n"));
        assert_eq!(file[16..24], [0, 0, 0, 120, 0, 0, 0, 90]);
    }

    #[test]
    fn letters_stand_on_their_baseline() {
        let mark = Mark::words("H", (10.0, 30.0), (Lettering::TITLE, BLACK), Anchor::Start);
        let (top, bottom) = rows(mark);
        assert!((30 * 2 - 2..=30 * 2).contains(&bottom), "{bottom}");
        let height = (bottom - top + 1) as f64 / 2.0;
        assert!((height - 0.73 * Lettering::TITLE.size).abs() < 1.0, "{height}");
    }

    #[test]
    fn letters_are_as_wide_as_they_were_measured() {
        for lettering in [Lettering::SMALL, Lettering::HEADING] {
            let words = |anchor| Mark::words("0123", (25.0, 30.0), (lettering, BLACK), anchor);
            let width = 2.0 * Fonts::new().unwrap().width("0123", lettering);
            let (left, right) = columns(words(Anchor::Middle));
            // A digit has a little air on both sides.
            let drawn = (right - left + 1) as f64;
            assert!(width - 6.0 < drawn && drawn < width, "{drawn} of {width}");
            assert!((left + right).abs_diff(2 * 50) <= 3, "{left} to {right}");
        }
    }

    #[test]
    fn words_upwards_end_above_their_place() {
        let mark = Mark::Words {
            words: "HH".into(),
            at: (30.0, 40.0),
            lettering: Lettering::SMALL,
            ink: BLACK,
            anchor: Anchor::Start,
            upwards: true,
        };
        let ((top, bottom), (left, right)) = (rows(mark.clone()), columns(mark));
        assert!(bottom < 2 * 40 && top < bottom - 2 * 15, "rows {top} to {bottom}");
        assert!(right <= 2 * 30 && left > 2 * 15, "columns {left} to {right}");
    }

    #[test]
    fn a_line_is_as_thick_as_it_is_said_to_be() {
        let (top, bottom) = rows(Mark::stroke((10.0, 20.0), (40.0, 20.0), BLACK, 2.0));
        assert_eq!(bottom - top + 1, 4);
    }

    #[test]
    fn a_sharp_turn_leaves_no_hole() {
        let points = vec![(10.0, 40.0), (25.0, 10.0), (26.0, 40.0)];
        let stroke = Stroke { ink: BLACK, width: 3.0, dashes: None };
        let pixels = painted(vec![Mark::Line { points, stroke }]);
        assert!(ink(&pixels, (25.0, 10.0)).0 < 55);
    }

    #[test]
    fn dashes_go_round_corners_and_keep_their_rhythm() {
        let points = vec![(10.0, 10.0), (14.0, 10.0), (14.0, 30.0)];
        let stroke = Stroke { ink: BLACK, width: 2.0, dashes: Some((6.0, 3.0)) };
        let pixels = painted(vec![Mark::Line { points, stroke }]);
        // From the corner on: 2 left of the first dash, a gap of 3, a dash of 6, and so on.
        for (below, expected) in
            [(1.0, BLACK), (2.5, WHITE), (4.0, WHITE), (6.0, BLACK), (10.0, BLACK), (12.0, WHITE)]
        {
            assert_eq!(ink(&pixels, (14.0, 10.0 + below)), expected, "{below}");
        }
    }

    #[test]
    fn marks_have_their_colours_and_later_ones_cover_earlier_ones() {
        let square = |left: f64, ink, opacity| {
            let right = left + 20.0;
            Mark::Area { corners: vec![(left, 5.0), (right, 5.0), (right, 25.0), (left, 25.0)], ink, opacity }
        };
        let disc = Mark::Disc { centre: (15.0, 15.0), radius: 4.0, ink: Colour::Orange.ink(), opacity: 1.0 };
        let pixels = painted(vec![square(5.0, Colour::Blue.ink(), 1.0), square(25.0, BLACK, 0.2), disc]);
        assert_eq!(ink(&pixels, (7.0, 7.0)), Colour::Blue.ink());
        assert_eq!(ink(&pixels, (15.0, 15.0)), Colour::Orange.ink());
        assert_eq!(ink(&pixels, (30.0, 15.0)), Ink(204, 204, 204));
        assert_eq!(ink(&pixels, (40.0, 40.0)), WHITE);
    }

    #[test]
    fn a_page_beyond_all_memory_is_an_error() {
        assert!(matches!(
            png(&Sheet { size: (u32::MAX, u32::MAX), ..sheet(Vec::new()) }),
            Err(PlotError::Png(_))
        ));
    }
}
