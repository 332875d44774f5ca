//! From the emulator's screens to an observation: the maximum of the last two frames, in gray, scaled to 84×84.
//!
//! The maximum, because games draw some sprites only every other frame. A screen holds palette indices, and an Atari has 128
//! colours, so the gray of the maximum of two pixels is a table of 128×128 bytes, whichever maximum it is.

use ale::Ale;

use super::SIDE;
use crate::FrameMaximum;
use crate::scale::AreaScaler;

/// Colours of an Atari. ALE numbers them 0, 2, … 254: the lowest bit of an index carries no colour.
const COLOURS: usize = 128;

/// The gray of the maximum of two colours, by [`at`].
type Shades = [u8; COLOURS * COLOURS];

pub(super) struct View {
    width: usize,
    /// The palette indices of the frame before the last.
    kept: Vec<u8>,
    gray: Vec<u8>,
    shades: Box<Shades>,
    scaler: AreaScaler,
}

impl View {
    pub(super) fn new(ale: &Ale, maximum: FrameMaximum) -> View {
        let (width, height) = (ale.width(), ale.height());
        let shades = match maximum {
            FrameMaximum::Rgb => {
                let palette = ale.rgb_palette();
                shades(|a, b| {
                    luminance(std::array::from_fn(|channel| palette[a][channel].max(palette[b][channel])))
                })
            }
            FrameMaximum::Gray => {
                let palette = ale.gray_palette();
                shades(|a, b| palette[a].max(palette[b]))
            }
        };
        let scaler = AreaScaler::new((height, width), (SIDE, SIDE));
        View { width, kept: vec![0; width * height], gray: vec![0; width * height], shades, scaler }
    }

    /// Keeps the screen, to be maximised with the next one.
    pub(super) fn keep(&mut self, ale: &Ale) {
        self.kept.copy_from_slice(ale.screen());
    }

    /// The screen in gray, maximised with the kept one if `pooled`, and scaled.
    pub(super) fn observe(&mut self, ale: &Ale, pooled: bool, out: &mut [u8]) {
        let new = ale.screen();
        let old = if pooled { self.kept.as_slice() } else { new };
        maximum(new, old, self.width, ale.gray_palette(), &self.shades, &mut self.gray);
        self.scaler.scale(&self.gray, out);
    }
}

/// The gray of a colour by ALE's formula, which is that of its gray palette.
fn luminance([red, green, blue]: [u8; 3]) -> u8 {
    (f64::from(red) * 0.2989 + f64::from(green) * 0.5870 + f64::from(blue) * 0.1140).round() as u8
}

/// The table whose entry for two palette indices is `shade` of them.
fn shades(shade: impl Fn(usize, usize) -> u8) -> Box<Shades> {
    let table: Vec<u8> =
        (0..COLOURS * COLOURS).map(|entry| shade(entry / COLOURS * 2, entry % COLOURS * 2)).collect();
    table.into_boxed_slice().try_into().expect("the table has one entry for each pair of colours")
}

/// The entry of two palette indices.
fn at(new: u8, old: u8) -> usize {
    usize::from(new >> 1) * COLOURS + usize::from(old >> 1)
}

/// The gray of the maximum of two screens, pixel by pixel. Many rows of an Atari screen are like the row above, and most of a
/// frame is like the frame before; comparing rows is much faster than looking up their pixels.
fn maximum(new: &[u8], old: &[u8], width: usize, palette: &[u8; 256], shades: &Shades, gray: &mut [u8]) {
    let mut above: Option<(&[u8], &[u8])> = None;
    let rows = new.chunks_exact(width).zip(old.chunks_exact(width));
    for (y, (new, old)) in rows.enumerate() {
        if above == Some((new, old)) {
            gray.copy_within((y - 1) * width..y * width, y * width);
            continue;
        }
        above = Some((new, old));
        let row = &mut gray[y * width..][..width];
        if new == old {
            row.iter_mut().zip(new).for_each(|(pixel, new)| *pixel = palette[usize::from(*new)]);
        } else {
            row.iter_mut()
                .zip(new.iter().zip(old))
                .for_each(|(pixel, (new, old))| *pixel = shades[at(*new, *old)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_pixel_has_the_shade_of_its_two_colours(
            rows in prop::collection::vec((prop::sample::select(vec![0u8, 2, 200]), prop::bool::ANY), 1..20),
            palette in prop::collection::vec(any::<u8>(), 256),
        ) {
            // Rows of three kinds, so that repeated rows and rows that differ between the screens are both common.
            let width = 5;
            let palette: [u8; 256] = palette.try_into().unwrap();
            let shades = shades(|a, b| palette[a].max(palette[b]));
            let new: Vec<u8> = rows.iter().flat_map(|(kind, _)| (0..5).map(move |x| kind + 2 * x)).collect();
            let old: Vec<u8> = rows.iter().flat_map(|(kind, same)| (0..5).map(move |x| kind + 2 * x * u8::from(*same))).collect();
            let mut gray = vec![0; new.len()];
            maximum(&new, &old, width, &palette, &shades, &mut gray);
            for i in 0..new.len() {
                prop_assert_eq!(gray[i], palette[usize::from(new[i])].max(palette[usize::from(old[i])]));
            }
        }
    }

    #[test]
    fn the_maximum_of_two_colours_is_taken_in_each_channel() {
        // Red and blue have a common maximum, magenta, that is brighter than both.
        let palette = |index: usize| if index < 128 { [200, 0, 40] } else { [0, 0, 220] };
        let shades = shades(|a, b| {
            luminance(std::array::from_fn(|channel| palette(a)[channel].max(palette(b)[channel])))
        });
        assert_eq!([shades[at(0, 2)], shades[at(128, 254)]], [64, 25]);
        assert_eq!([shades[at(0, 254)], shades[at(254, 0)]], [85, 85]);
    }
}
