//! Which mark means what: rows of names above the panels, where they hide no data. One for the whole page.

use crate::colour::Ink;
use crate::layer::Layer;
use crate::lettering::{Fonts, Lettering};
use crate::mark::{Anchor, Area, Mark, Point, Stroke};

const ROW: f64 = 20.0;
const KEY_WIDTH: f64 = 26.0;
const GAP: f64 = 8.0;
const BETWEEN: f64 = 22.0;
const DISC_RADIUS: f64 = 4.0;

/// The symbol next to a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LegendKey {
    Line(Stroke),
    Disc(Ink),
    Square(Ink),
}

/// Names and what they mean.
#[derive(Clone, Debug, Default)]
pub struct Legend {
    entries: Vec<(String, LegendKey)>,
}

impl Legend {
    /// Of all layers that have a name. The same name with the same look is one entry.
    pub fn of<'a>(layers: impl Iterator<Item = &'a Layer>) -> Self {
        let mut entries: Vec<(String, LegendKey)> = Vec::new();
        for layer in layers.filter(|layer| !layer.name.is_empty()) {
            let entry = (layer.name.clone(), layer.legend_key());
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        Self { entries }
    }

    /// How much room it needs at that width.
    pub fn height(&self, width: f64, fonts: &Fonts) -> f64 {
        self.place(width, fonts).last().map_or(0.0, |placed| f64::from(placed.row + 1) * ROW)
    }

    /// Draws the entries from left to right, in as many rows as they need.
    pub fn draw(&self, (left, top): Point, width: f64, fonts: &Fonts) -> Vec<Mark> {
        let mut marks = Vec::new();
        for (placed, (_, sample)) in self.place(width, fonts).into_iter().zip(&self.entries) {
            let (x, y) = (left + placed.x, top + (f64::from(placed.row) + 0.5) * ROW);
            marks.push(draw_key(*sample, (x, y)));
            let at = (x + KEY_WIDTH + GAP, y + Lettering::SMALL.below_middle());
            marks.push(Mark::words(placed.name, at, (Lettering::SMALL, Ink::QUIET), Anchor::Start));
        }
        marks
    }

    fn place(&self, width: f64, fonts: &Fonts) -> Vec<Placed> {
        let measure = |name: &str| KEY_WIDTH + GAP + fonts.width(name, Lettering::SMALL);
        let (mut x, mut row) = (0.0, 0u32);
        let mut placed = Vec::with_capacity(self.entries.len());
        for (name, _) in &self.entries {
            let mut name = name.clone();
            let mut wide = measure(&name);
            // The end of a long path tells more than its beginning.
            while wide > width && name.chars().count() > 8 {
                name = std::iter::once('…').chain(name.chars().skip(4)).collect();
                wide = measure(&name);
            }
            if x > 0.0 && x + wide > width {
                (x, row) = (0.0, row + 1);
            }
            placed.push(Placed { x, row, name });
            x += wide + BETWEEN;
        }
        placed
    }
}

struct Placed {
    x: f64,
    row: u32,
    name: String,
}

fn draw_key(sample: LegendKey, (x, y): Point) -> Mark {
    let middle = x + KEY_WIDTH / 2.0;
    match sample {
        LegendKey::Line(stroke) => Mark::Line { points: vec![(x, y), (x + KEY_WIDTH, y)], stroke },
        LegendKey::Disc(ink) => Mark::Disc { centre: (middle, y), radius: DISC_RADIUS, ink, opacity: 1.0 },
        LegendKey::Square(ink) => {
            let half = DISC_RADIUS + 1.0;
            let square = Area { left: middle - half, top: y - half, right: middle + half, bottom: y + half };
            Mark::Area { corners: square.corners(), ink, opacity: 1.0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::Colour;

    fn names(layers: &[Layer]) -> Vec<String> {
        Legend::of(layers.iter()).entries.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_same_name_with_the_same_look_is_listed_once() {
        let curve = |name: &str, colour| Layer::curve(name, colour, Vec::new());
        assert_eq!(
            names(&[curve("a", Colour::Blue), curve("b", Colour::Green), curve("a", Colour::Blue)]),
            ["a", "b"]
        );
        assert_eq!(names(&[curve("a", Colour::Blue), curve("a", Colour::Green)]), ["a", "a"]);
        assert_eq!(names(&[curve("a", Colour::Blue), curve("a", Colour::Blue).dashes(6.0, 3.0)]), ["a", "a"]);
        assert_eq!(names(&[Layer::dashed("a", Colour::Blue, Vec::new()), Layer::identity("")]), ["a"]);
    }

    #[test]
    fn a_sample_line_stays_within_its_room() {
        for dash in [(7.0, 4.0), (2.0, 3.0), (12.0, 3.0)] {
            let stroke = Stroke { ink: Ink::QUIET, width: 1.5, dashes: Some(dash) };
            let drawn = draw_key(LegendKey::Line(stroke), (10.0, 5.0));
            let Mark::Line { points, stroke: Stroke { dashes, .. } } = drawn else { panic!("{drawn:?}") };
            assert!(points.into_iter().all(|(x, _)| (10.0..=10.0 + KEY_WIDTH + 1e-9).contains(&x)));
            // At least one gap is visible.
            assert!(dashes == Some(dash) && dash.0 + dash.1 < KEY_WIDTH);
        }
    }

    #[test]
    fn long_names_go_to_a_row_of_their_own_and_longer_ones_are_cut() {
        let fonts = Fonts::new().unwrap();
        let names = ["short", "a name of some length", &"long ".repeat(100)];
        let layers: Vec<_> = names.iter().map(|name| Layer::curve(*name, Colour::Blue, Vec::new())).collect();
        let legend = Legend::of(layers.iter());
        assert_eq!(legend.height(200.0, &fonts), 3.0 * ROW);
        for placed in legend.place(200.0, &fonts) {
            assert!(
                KEY_WIDTH + GAP + fonts.width(&placed.name, Lettering::SMALL) <= 200.0,
                "{}",
                placed.name
            );
        }
        assert_eq!(Legend::default().height(200.0, &fonts), 0.0);
    }
}
