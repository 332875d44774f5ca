//! What a picture consists of before it is written: lines, areas, discs and words, in units of the page.
//!
//! A page is laid out as a list of these, so that layout is arithmetic that a test can look at. Later marks cover earlier
//! ones.

use crate::colour::Ink;
use crate::lettering::Lettering;

/// A place on the page: to the right and down from its upper left corner.
pub type Point = (f64, f64);

/// A page that is laid out.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// In pixels of the page.
    pub size: (u32, u32),
    /// Pixels of the page for one unit of the marks.
    pub magnification: f64,
    pub marks: Vec<Mark>,
}

/// Something on the page.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A line through points. Always opaque.
    Line {
        points: Vec<Point>,
        stroke: Stroke,
    },
    /// A filled polygon.
    Area {
        corners: Vec<Point>,
        ink: Ink,
        opacity: f64,
    },
    Disc {
        centre: Point,
        radius: f64,
        ink: Ink,
        opacity: f64,
    },
    /// A line of words; `at` is on their baseline.
    Words {
        words: String,
        at: Point,
        lettering: Lettering,
        ink: Ink,
        anchor: Anchor,
        upwards: bool,
    },
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    pub ink: Ink,
    pub width: f64,
    /// Lengths of dashes and of the gaps between them.
    pub dashes: Option<(f64, f64)>,
}

/// Which part of a line of words is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Mark {
    /// Words from left to right.
    pub fn words(
        words: impl Into<String>,
        at: Point,
        (lettering, ink): (Lettering, Ink),
        anchor: Anchor,
    ) -> Self {
        Self::Words { words: words.into(), at, lettering, ink, anchor, upwards: false }
    }

    pub fn stroke(from: Point, to: Point, ink: Ink, width: f64) -> Self {
        Self::Line { points: vec![from, to], stroke: Stroke { ink, width, dashes: None } }
    }
}

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }

    /// Its corners, clockwise from the upper left.
    pub fn corners(&self) -> Vec<Point> {
        let Self { left, top, right, bottom } = *self;
        vec![(left, top), (right, top), (right, bottom), (left, bottom)]
    }

    /// Whether a point is inside or on the edge.
    pub fn holds(&self, (x, y): Point) -> bool {
        // A value at the end of its axis may miss it by a rounding.
        const SLACK: f64 = 1e-6;
        (self.left - SLACK..=self.right + SLACK).contains(&x)
            && (self.top - SLACK..=self.bottom + SLACK).contains(&y)
    }
}
