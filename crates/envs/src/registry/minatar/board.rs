//! The board as agents and people see it.

use crate::{Element, Image, Observation};

/// Cells on a side of the board.
pub(super) const SIDE: usize = 10;
/// The last row or column.
pub(super) const LAST: i8 = SIDE as i8 - 1;
/// Cells of a channel.
const CELLS: usize = SIDE * SIDE;
/// The byte of a cell that holds an object; see [`Element::U8`].
const PRESENT: u8 = 255;

/// The shape of an observation.
pub(super) fn observation(channels: usize) -> Observation {
    Observation { element: Element::U8, shape: vec![channels, SIDE, SIDE] }
}

/// Whether a row or a column is on the board.
pub(super) fn is_inside(index: i8) -> bool {
    (0..=LAST).contains(&index)
}

/// An observation that is being made.
pub(super) struct Board<'a>(&'a mut [u8]);

impl<'a> Board<'a> {
    /// An empty board on the bytes of an observation.
    pub(super) fn empty(observation: &'a mut [u8]) -> Self {
        observation.fill(0);
        Self(observation)
    }

    /// Shows an object. Objects outside the board are not visible.
    pub(super) fn show(&mut self, channel: usize, row: i8, column: i8) {
        if is_inside(row) && is_inside(column) {
            self.0[channel * CELLS + row as usize * SIDE + column as usize] = PRESENT;
        }
    }
}

/// An observation in colour. Each channel covers those behind it.
pub(super) fn draw(observation: &[u8], colours: &[[u8; 3]]) -> Image {
    const PIXELS_PER_CELL: usize = 20;
    const BACKGROUND: [u8; 3] = [15, 15, 20];
    let side = SIDE * PIXELS_PER_CELL;
    let mut rgb = Vec::with_capacity(3 * side * side);
    for pixel in 0..side * side {
        let cell = pixel / side / PIXELS_PER_CELL * SIDE + pixel % side / PIXELS_PER_CELL;
        let on_top = observation.chunks(CELLS).zip(colours).find(|(channel, _)| channel[cell] != 0);
        rgb.extend_from_slice(on_top.map_or(&BACKGROUND, |(_, colour)| colour));
    }
    Image { width: side, height: side, rgb }
}
