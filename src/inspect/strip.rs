//! A transition's frames side by side, as a PNG.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::Context;
use proto::{BatchItem, StoreSpec};
use replay::codec::Decoder;

/// Side of the square that shows one byte of an observation that is not an image; the squares form one row.
const SQUARE: usize = 8;
const GAP: usize = 2;
const GAP_GRAY: u8 = 128;

/// Writes the picture and returns its number of frames: those of the state, then one per step.
pub fn write(path: &Path, item: &BatchItem<'_>, spec: &StoreSpec) -> anyhow::Result<usize> {
    let (stack, size) = (spec.options.stack, spec.options.frame_bytes);
    let count = stack + item.length();
    let mut frames = vec![0; count * size];
    Decoder::new(spec.codec)
        .decode_item(item.frames(), item.lead(), item.length(), stack, size, &mut frames)
        .context("can't decode the frames of the item: run the same version of quiver on both sides")?;
    let pictures: Vec<Picture> = frames.chunks_exact(size).map(Picture::of).collect();
    let (width, height) = (pictures[0].width, pictures[0].pixels.len() / pictures[0].width);
    let mut rows = Vec::with_capacity((width + GAP) * count * height);
    for row in 0..height {
        for (number, picture) in pictures.iter().enumerate() {
            if number > 0 {
                rows.extend([GAP_GRAY; GAP]);
            }
            rows.extend(&picture.pixels[row * width..(row + 1) * width]);
        }
    }
    let file = File::create(path)
        .with_context(|| format!("can't write {}; choose another --out", path.display()))?;
    let whole = width * count + GAP * (count - 1);
    let mut encoder = png::Encoder::new(BufWriter::new(file), whole as u32, height as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header()?.write_image_data(&rows)?;
    Ok(count)
}

struct Picture {
    width: usize,
    pixels: Vec<u8>,
}

impl Picture {
    /// A square frame is an image of gray pixels; any other frame becomes a row of gray squares.
    fn of(frame: &[u8]) -> Self {
        let side = frame.len().isqrt();
        if side * side == frame.len() && side >= SQUARE {
            return Self { width: side, pixels: frame.to_vec() };
        }
        let row: Vec<u8> = frame.iter().flat_map(|&byte| [byte; SQUARE]).collect();
        Self { width: row.len(), pixels: row.repeat(SQUARE) }
    }
}
