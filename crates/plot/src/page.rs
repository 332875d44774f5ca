//! A page: title, legend, and panels in rows and columns.
//!
//! The data areas of all panels have the same size and are aligned, independent of the width of their axis labels.
//! Lengths and font sizes are those of a page 800 pixels wide; a wider page is the same page magnified, since it is shown
//! in the same column.

use std::error::Error;

use crate::colour::Ink;
use crate::legend::Legend;
use crate::lettering::{Fonts, Lettering};
use crate::mark::{Anchor, Area, Mark, Sheet};
use crate::panel::Panel;
use crate::svg;

/// Width of the page for which all lengths are given.
const WIDTH: f64 = 800.0;

const MARGIN_LEFT: f64 = 16.0;
const MARGIN_TOP: f64 = 14.0;
const MARGIN_RIGHT: f64 = 20.0;
const MARGIN_BOTTOM: f64 = 10.0;
const TITLE_LINE: f64 = 25.0;
const SUBTITLE_LINE: f64 = 18.0;
/// Between the words and the legend, the legend and the panels, and panels.
const BELOW_WORDS: f64 = 6.0;
const BELOW_LEGEND: f64 = 8.0;
const BETWEEN_COLUMNS: f64 = 20.0;
const BETWEEN_ROWS: f64 = 14.0;

/// Data areas are never smaller than this, even if they do not fit.
const PANEL_MIN: f64 = 10.0;

/// A picture that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The font that is built in cannot be read.
    #[error("can't read the font")]
    Font(#[from] read_fonts::ReadError),
    /// The SVG cannot be rasterised, or the pixels cannot be packed.
    #[error("can't make a PNG")]
    Png(#[source] Box<dyn Error + Send + Sync>),
}

#[derive(Clone, Debug)]
pub struct Page {
    /// In bold above everything.
    pub title: String,
    /// Below it: how the numbers came about.
    pub subtitle: String,
    /// Panels per row.
    pub columns: usize,
    /// Width and height in pixels. A page wider than 800 is magnified, letters and all.
    pub size: (u32, u32),
    /// From left to right, row by row.
    pub panels: Vec<Panel>,
}

impl Page {
    /// A page of 800 by 500 pixels with one column and no panels yet.
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>) -> Self {
        let (title, subtitle) = (title.into(), subtitle.into());
        Self { title, subtitle, columns: 1, size: (800, 500), panels: Vec::new() }
    }

    /// The picture as a PNG file, with two pixels for one of the page's. Needs the crate's feature `png`.
    #[cfg(feature = "png")]
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        crate::png::png(&self.sheet()?)
    }

    /// The picture as an SVG file.
    pub fn svg(&self) -> Result<String, PlotError> {
        Ok(svg::file(&self.sheet()?))
    }

    /// The picture as an element of an HTML page, as wide as its place there. Its colours have the classes `ink-blue`,
    /// `ink-grid` and so on, so that the page's style can change them, and its letters are the page's. `id` is its own
    /// on the page; `title` and `description` are for those who do not see it.
    pub fn element(&self, id: &str, title: &str, description: &str) -> Result<String, PlotError> {
        Ok(svg::element(&self.sheet()?, id, title, description))
    }

    fn sheet(&self) -> Result<Sheet, PlotError> {
        let fonts = Fonts::new()?;
        let size = (self.size.0.max(1), self.size.1.max(1));
        let magnification = (f64::from(size.0) / WIDTH).max(1.0);
        let (width, height) = (f64::from(size.0) / magnification, f64::from(size.1) / magnification);
        let room = Area {
            left: MARGIN_LEFT,
            top: MARGIN_TOP,
            right: width - MARGIN_RIGHT,
            bottom: height - MARGIN_BOTTOM,
        };
        let (mut marks, top) = self.head(room, &fonts);
        marks.extend(self.grid(Area { top, ..room }, &fonts));
        Ok(Sheet { size, magnification, marks })
    }

    /// Title, subtitle and legend, and where they end.
    fn head(&self, room: Area, fonts: &Fonts) -> (Vec<Mark>, f64) {
        let mut marks = Vec::new();
        let mut top = room.top;
        let styles = [
            (&self.title, Lettering::TITLE, Ink::DARK, TITLE_LINE),
            (&self.subtitle, Lettering::SUBTITLE, Ink::QUIET, SUBTITLE_LINE),
        ];
        for (words, lettering, ink, line) in styles {
            for words in fonts.wrapped(words, lettering, room.width()) {
                let baseline = top + 0.76 * lettering.size;
                marks.push(Mark::words(words, (room.left, baseline), (lettering, ink), Anchor::Start));
                top += line;
            }
        }
        if !marks.is_empty() {
            top += BELOW_WORDS;
        }
        let legend = Legend::of(self.panels.iter().flat_map(Panel::layers));
        let height = legend.height(room.width(), fonts);
        if height > 0.0 {
            marks.extend(legend.draw((room.left, top), room.width(), fonts));
            top += height + BELOW_LEGEND;
        }
        (marks, top)
    }

    /// The panels, with data areas of one size.
    fn grid(&self, room: Area, fonts: &Fonts) -> Vec<Mark> {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows: Vec<&[Panel]> = self.panels.chunks(columns).collect();
        let heads: Vec<f64> = rows.iter().map(|row| largest(row.iter().map(Panel::head))).collect();
        let feet: Vec<f64> = rows.iter().map(|row| largest(row.iter().map(Panel::foot))).collect();
        let around: f64 = heads.iter().chain(&feet).sum();
        let height = share(room.height() - around, BETWEEN_ROWS, rows.len());
        let column = |index: usize| self.panels.iter().skip(index).step_by(columns);
        let gutters: Vec<f64> = (0..columns)
            .map(|index| largest(column(index).map(|panel| panel.gutter(height, fonts))))
            .collect();
        let width = share(room.width() - gutters.iter().sum::<f64>(), BETWEEN_COLUMNS, columns);

        let mut marks = Vec::new();
        let mut top = room.top;
        for (row, (head, foot)) in rows.iter().zip(heads.iter().zip(&feet)) {
            top += head;
            let mut left = room.left;
            for (panel, gutter) in row.iter().zip(&gutters) {
                left += gutter;
                let area = Area { left, top, right: left + width, bottom: top + height };
                marks.extend(panel.draw(area, *gutter, fonts));
                left += width + BETWEEN_COLUMNS;
            }
            top += height + foot + BETWEEN_ROWS;
        }
        marks
    }
}

fn largest(lengths: impl Iterator<Item = f64>) -> f64 {
    lengths.fold(0.0, f64::max)
}

/// What each of `count` gets of a length, with gaps in between.
fn share(length: f64, gap: f64, count: usize) -> f64 {
    let count = count.max(1) as f64;
    ((length - gap * (count - 1.0)) / count).max(PANEL_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Axis;
    use crate::colour::Colour;
    use crate::layer::Layer;

    fn panel(points: Vec<(f64, f64, f64)>) -> Panel {
        Panel::new("panel", Axis::linear("x"), Axis::linear("y")).with(Layer::curve(
            "a",
            Colour::Blue,
            points,
        ))
    }

    fn page(panels: Vec<Panel>) -> Page {
        Page { panels, size: (200, 150), ..Page::new("title", "subtitle") }
    }

    /// The page as SVG; with the feature `png`, that it can be rasterised is checked as well.
    fn drawn(page: &Page) -> String {
        #[cfg(feature = "png")]
        assert!(page.png().unwrap().starts_with(b"\x89PNG"));
        page.svg().unwrap()
    }

    #[test]
    fn empty_pages_single_points_and_extremes_are_drawn() {
        let cases = [
            vec![],
            vec![(0.0, 0.0, 0.0)],
            vec![(1.0, 1e12, 0.0), (2.0, -1e12, 1e11)],
            vec![(1.0, 1e-9, 1e-9), (2.0, 2e-9, 0.0)],
            vec![(f64::MIN, f64::MAX, f64::NAN), (0.0, f64::MIN_POSITIVE, 0.0)],
            vec![(f64::NAN, f64::NAN, f64::NAN); 3],
        ];
        for points in cases {
            for axis in [Axis::linear, Axis::log] {
                let layer = Layer::curve("a", Colour::Blue, points.clone());
                let page = page(vec![Panel::new("", axis("x"), axis("y")).with(layer)]);
                let svg = drawn(&page);
                assert!(svg.ends_with("</svg>\n"), "{points:?}");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}");
            }
        }
        assert!(drawn(&page(Vec::new())).ends_with("</svg>\n"));
    }

    #[test]
    fn one_legend_lists_what_all_panels_show() {
        let page = Page { columns: 2, ..page(vec![panel(vec![(0.0, 1.0, 0.0)]); 4]) };
        let sheet = page.sheet().unwrap();
        let named = |mark: &&Mark| matches!(mark, Mark::Words { words, .. } if words == "a");
        assert_eq!(sheet.marks.iter().filter(named).count(), 1);
    }

    #[test]
    fn data_areas_are_of_one_size_and_stand_in_line() {
        let tall = |largest: f64| panel(vec![(0.0, 0.0, 0.0), (1.0, largest, 0.0)]);
        let panels = vec![tall(1.0), tall(1e6), tall(1.0), tall(10.0)];
        let page = Page { columns: 2, size: (800, 600), ..page(panels) };
        let axes = page.sheet().unwrap().marks.into_iter().filter_map(|mark| match mark {
            Mark::Line { points, stroke }
                if stroke.ink == Ink::AXIS && (points[0].1 - points[1].1).abs() > 50.0 =>
            {
                Some(points)
            }
            _ => None,
        });
        let axes: Vec<_> = axes.collect();
        assert_eq!(axes.len(), 4);
        assert_eq!((axes[0][0].0, axes[1][0].0), (axes[2][0].0, axes[3][0].0));
        assert_eq!((axes[0][0].1, axes[2][0].1), (axes[1][0].1, axes[3][0].1));
        assert!(axes.iter().all(|axis| (axis[1].1 - axis[0].1 - (axes[0][1].1 - axes[0][0].1)).abs() < 1e-9));
    }

    #[test]
    fn all_stays_on_the_page_and_a_wide_page_is_magnified() {
        let panels = vec![panel((0..100).map(|x| (f64::from(x), f64::from(x * x), 1.0)).collect()); 6];
        let page = Page { columns: 3, size: (1200, 900), ..page(panels) };
        let sheet = page.sheet().unwrap();
        assert_eq!(sheet.magnification, 1.5);
        let places = sheet.marks.iter().flat_map(|mark| match mark {
            Mark::Line { points, .. } | Mark::Area { corners: points, .. } => points.clone(),
            Mark::Disc { centre, .. } => vec![*centre],
            Mark::Words { at, .. } => vec![*at],
        });
        for (x, y) in places {
            assert!((0.0..=800.0).contains(&x) && (0.0..=600.0).contains(&y), "({x}, {y})");
        }
    }

    #[test]
    fn a_page_of_no_size_and_no_columns_is_drawn_as_well() {
        let page = Page { columns: 0, size: (0, 0), ..page(vec![panel(vec![(0.0, 1.0, 0.0)])]) };
        assert!(drawn(&page).ends_with("</svg>\n"));
    }
}
