//! Paints marks into a file. The only part that knows Plotters.
//!
//! Both of its backends place things on whole pixels, so the canvas is larger than the page; an SVG is then shown at
//! the page's size, and a PNG averaged down. The bitmap's joins thick lines badly and
//! spaces letters unevenly, so lines and letters are painted here.

use std::error::Error;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon};
use plotters::prelude::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, TextStyle, WHITE};

use crate::colour::Ink;
use crate::lettering::{FAMILY, Fonts, Lettering};
use crate::mark::{Anchor, Mark, Point};

/// Pixels of the canvas for one of the page.
const SCALE: u32 = 4;

/// The PNG has two pixels for one on the page, each the mean of four painted ones, which smooths edges.
const PNG_SHRINK: u32 = 2;

/// A picture that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The font that is built in cannot be read.
    #[error("can't read the font")]
    Font(#[source] ab_glyph::InvalidFont),
    /// Painting failed.
    #[error("can't draw")]
    Paint(#[source] Box<dyn Error + Send + Sync>),
    /// The pixels could not be packed.
    #[error("can't write a PNG")]
    Png(#[from] png::EncodingError),
}

impl<E: Error + Send + Sync + 'static> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Paint(Box::new(error))
    }
}

/// A page ready to be painted.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// In pixels of the page.
    pub size: (u32, u32),
    /// Pixels of the page for one unit of the marks.
    pub magnification: f64,
    pub marks: Vec<Mark>,
}

/// The sheet as a PNG file.
pub fn png(sheet: &Sheet) -> Result<Vec<u8>, PlotError> {
    let (width, height) = canvas_size(sheet);
    let mut pixels = vec![0; width as usize * height as usize * 3];
    let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    paint(area, sheet, Some(&Fonts::new()?))?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width / PNG_SHRINK, height / PNG_SHRINK);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&shrunk(&pixels, width as usize))?;
    Ok(file)
}

/// The sheet as an SVG file.
pub fn svg(sheet: &Sheet) -> Result<String, PlotError> {
    let canvas = canvas_size(sheet);
    let mut text = String::new();
    paint(SVGBackend::with_string(&mut text, canvas).into_drawing_area(), sheet, None)?;
    let size = |(width, height): (u32, u32)| format!("width=\"{width}\" height=\"{height}\"");
    let head = format!("{} stroke-linejoin=\"round\"", size(sheet.size));
    Ok(text.replacen(&size(canvas), &head, 1))
}

fn canvas_size(sheet: &Sheet) -> (u32, u32) {
    (sheet.size.0 * SCALE, sheet.size.1 * SCALE)
}

/// With fonts it paints letters itself, without it names them.
fn paint<B>(area: DrawingArea<B, Shift>, sheet: &Sheet, fonts: Option<&Fonts>) -> Result<(), PlotError>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let canvas = Canvas { area, per_unit: f64::from(SCALE) * sheet.magnification, fonts };
    sheet.marks.iter().try_for_each(|mark| canvas.paint(mark))?;
    canvas.area.present()?;
    Ok(())
}

struct Canvas<'a, B: DrawingBackend> {
    area: DrawingArea<B, Shift>,
    /// Pixels for one unit of the marks.
    per_unit: f64,
    /// For a bitmap.
    fonts: Option<&'a Fonts>,
}

impl<B> Canvas<'_, B>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    fn paint(&self, mark: &Mark) -> Result<(), PlotError> {
        match mark {
            Mark::Line { points, ink, width } => self.line(points, *ink, *width),
            Mark::Area { corners, ink, opacity } => self.polygon(corners, *ink, *opacity),
            Mark::Disc { centre, radius, ink, opacity } => {
                let style = colour(*ink).mix(*opacity).filled();
                Ok(self.area.draw(&Circle::new(self.pixel(*centre), self.length(*radius), style))?)
            }
            Mark::Words { words, at, lettering, ink, anchor, upwards } => {
                self.words(words, *at, (*lettering, *ink), *anchor, *upwards)
            }
        }
    }

    /// The bitmap's backend leaves holes where a thick line turns sharply, so there every piece is painted by itself
    /// and the joints are rounded.
    fn line(&self, points: &[Point], ink: Ink, width: f64) -> Result<(), PlotError> {
        let width = self.length(width).max(1);
        if self.fonts.is_none() {
            let points: Vec<(i32, i32)> = points.iter().map(|point| self.pixel(*point)).collect();
            self.area.draw(&PathElement::new(points, colour(ink).stroke_width(width as u32)))?;
            return Ok(());
        }
        for pair in points.windows(2) {
            let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
            let distance = dx.hypot(dy);
            if distance > 0.0 {
                // Edges are painted too, hence one pixel less.
                let aside = f64::from(width - 1) / 2.0 / self.per_unit / distance;
                let (x, y) = (-dy * aside, dx * aside);
                let [from, to] = [pair[0], pair[1]];
                let corners = [
                    (from.0 + x, from.1 + y),
                    (to.0 + x, to.1 + y),
                    (to.0 - x, to.1 - y),
                    (from.0 - x, from.1 - y),
                ];
                self.polygon(&corners, ink, 1.0)?;
            }
        }
        for joint in points.iter().skip(1).rev().skip(1) {
            self.area.draw(&Circle::new(self.pixel(*joint), (width - 1) / 2, colour(ink).filled()))?;
        }
        Ok(())
    }

    fn polygon(&self, corners: &[Point], ink: Ink, opacity: f64) -> Result<(), PlotError> {
        if corners.len() > 2 {
            let corners: Vec<(i32, i32)> = corners.iter().map(|corner| self.pixel(*corner)).collect();
            self.area.draw(&Polygon::new(corners, colour(ink).mix(opacity)))?;
        }
        Ok(())
    }

    fn words(
        &self,
        words: &str,
        at: Point,
        (lettering, ink): (Lettering, Ink),
        anchor: Anchor,
        upwards: bool,
    ) -> Result<(), PlotError> {
        let lettering = Lettering { size: lettering.size * self.per_unit, ..lettering };
        let Some(fonts) = self.fonts else {
            return self.named_words(words, self.pixel(at), (lettering, ink), anchor, upwards);
        };
        let (x, y) = self.pixel(at);
        let back = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => fonts.width(words, lettering) / 2.0,
            Anchor::End => fonts.width(words, lettering),
        };
        let back = back.round() as i32;
        let mut painted = Ok(());
        fonts.paint(words, lettering, |across, down, covered| {
            let across = across - back;
            let place = if upwards { (x + down, y - across) } else { (x + across, y + down) };
            if painted.is_ok() {
                painted = self.area.draw_pixel(place, &colour(ink).mix(covered));
            }
        });
        Ok(painted?)
    }

    /// An SVG's words. Plotters takes 1.24 of the size of letters for their size, and puts the baseline 0.76 of it below
    /// the place it is given.
    fn named_words(
        &self,
        words: &str,
        (x, y): (i32, i32),
        (lettering, ink): (Lettering, Ink),
        anchor: Anchor,
        upwards: bool,
    ) -> Result<(), PlotError> {
        let horizontal = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let turn = if upwards { FontTransform::Rotate270 } else { FontTransform::None };
        let weight = if lettering.bold { FontStyle::Bold } else { FontStyle::Normal };
        let style = TextStyle {
            font: FontDesc::new(FontFamily::Name(FAMILY), 1.24 * lettering.size, weight).transform(turn),
            color: colour(ink).to_backend_color(),
            pos: Pos::new(horizontal, VPos::Top),
        };
        let rise = (0.76 * lettering.size).round() as i32;
        let place = if upwards { (x - rise, y) } else { (x, y - rise) };
        Ok(self.area.draw_text(words, &style, place)?)
    }

    fn pixel(&self, (x, y): Point) -> (i32, i32) {
        (self.length(x), self.length(y))
    }

    fn length(&self, length: f64) -> i32 {
        (length * self.per_unit).round() as i32
    }
}

fn colour(Ink(red, green, blue): Ink) -> RGBColor {
    RGBColor(red, green, blue)
}

/// Halves the picture, averaging squares of pixels.
fn shrunk(pixels: &[u8], width: usize) -> Vec<u8> {
    let shrink = PNG_SHRINK as usize;
    let pixel = |x: usize, y: usize, channel: usize| u32::from(pixels[(y * width + x) * 3 + channel]);
    let mut out = Vec::with_capacity(pixels.len() / (shrink * shrink));
    for y in (0..pixels.len() / (width * 3)).step_by(shrink) {
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

    const BLACK: Ink = Ink(0, 0, 0);

    /// The sheet's pixels at the canvas' size, as darkness.
    fn painted(mark: Mark) -> (Vec<u8>, usize) {
        let sheet = Sheet { size: (50, 50), magnification: 1.0, marks: vec![mark] };
        let (width, height) = canvas_size(&sheet);
        let mut pixels = vec![0; (width * height * 3) as usize];
        paint(
            BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area(),
            &sheet,
            Some(&Fonts::new().unwrap()),
        )
        .unwrap();
        (pixels.chunks(3).map(|pixel| 255 - pixel[0]).collect(), width as usize)
    }

    fn dark_rows(mark: Mark) -> (usize, usize) {
        let (pixels, width) = painted(mark);
        let dark = |row: &&[u8]| row.iter().any(|pixel| *pixel > 128);
        let rows: Vec<_> =
            pixels.chunks(width).enumerate().filter(|(_, row)| dark(row)).map(|(at, _)| at).collect();
        (rows[0], rows[rows.len() - 1])
    }

    #[test]
    fn letters_stand_on_their_baseline() {
        let mark = Mark::words("H", (10.0, 30.0), (Lettering::TITLE, BLACK), Anchor::Start);
        let (top, bottom) = dark_rows(mark);
        assert!((30 * 4 - 3..=30 * 4 + 2).contains(&bottom), "{bottom}");
        let height = (bottom - top) as f64 / 4.0;
        assert!((height - 0.73 * Lettering::TITLE.size).abs() < 1.0, "{height}");
    }

    #[test]
    fn a_line_is_as_thick_as_it_is_said_to_be() {
        let (top, bottom) = dark_rows(Mark::stroke((10.0, 20.0), (40.0, 20.0), BLACK, 2.0));
        assert_eq!(bottom - top + 1, 8);
    }

    #[test]
    fn a_sharp_turn_leaves_no_hole() {
        let points = vec![(10.0, 40.0), (25.0, 10.0), (26.0, 40.0)];
        let (pixels, width) = painted(Mark::Line { points, ink: BLACK, width: 3.0 });
        assert!(pixels[10 * 4 * width + 25 * 4] > 200);
    }

    #[test]
    fn an_svg_has_the_size_of_the_page_and_an_end() {
        let sheet = Sheet { size: (50, 40), magnification: 1.0, marks: Vec::new() };
        let svg = svg(&sheet).unwrap();
        assert!(svg.starts_with(
            "<svg width=\"50\" height=\"40\" stroke-linejoin=\"round\" viewBox=\"0 0 200 160\""
        ));
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn what_a_reader_would_take_for_markup_is_escaped() {
        let mark = Mark::words("a < b & c", (0.0, 0.0), (Lettering::SMALL, BLACK), Anchor::Start);
        let sheet = Sheet { size: (50, 40), magnification: 1.0, marks: vec![mark] };
        assert!(svg(&sheet).unwrap().contains("a &lt; b &amp; c"));
    }
}
