//! From the emulator's screens to an observation: the maximum of the last two frames, in gray, scaled to 84×84.
//!
//! The maximum, because games draw some sprites only every other frame. A screen holds palette indices, and an Atari has 128
//! colours, so the gray of the maximum of two pixels is a table of 128×128 bytes, whichever maximum it is.
//!
//! Most of a screen is like the screen one step earlier, and comparing rows is much faster than computing their pixels.
//! So a view keeps the screens, and computes only what changed. An observation depends on its two screens alone.

use std::ops::Range;

use ale::Ale;

use super::SIDE;
use crate::FrameMaximum;
use crate::scale::{AreaScaler, join};

/// Colours of an Atari. ALE numbers them 0, 2, … 254: the lowest bit of an index carries no colour.
const COLOURS: usize = 128;

/// The gray of the maximum of two colours, by [`at`].
type Shades = [u8; COLOURS * COLOURS];

pub(super) struct View {
    width: usize,
    /// The gray of each palette index.
    palette: [u8; 256],
    shades: Box<Shades>,
    /// Palette indices of the two screens, the last one and the one before.
    new: Vec<u8>,
    old: Vec<u8>,
    /// The columns of each row in which a screen changed since `gray` was computed.
    changed: Vec<Range<usize>>,
    /// The rows that are the same in both screens, as of `gray`.
    alike: Vec<bool>,
    gray: Vec<u8>,
    scaler: AreaScaler,
    scaled: Vec<u8>,
}

impl View {
    pub(super) fn new(ale: &Ale, maximum: FrameMaximum) -> View {
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
        View::of_size(ale.height(), ale.width(), *ale.gray_palette(), shades)
    }

    fn of_size(height: usize, width: usize, palette: [u8; 256], shades: Box<Shades>) -> View {
        let black = vec![0; width * height];
        View {
            width,
            palette,
            shades,
            new: black.clone(),
            old: black.clone(),
            // Nothing is computed yet.
            changed: vec![0..width; height],
            alike: vec![true; height],
            gray: black,
            scaler: AreaScaler::new((height, width), (SIDE, SIDE)),
            scaled: vec![0; SIDE * SIDE],
        }
    }

    /// Keeps the screen, to be maximised with the next one.
    pub(super) fn keep(&mut self, screen: &[u8]) {
        copy_changes(screen, &mut self.old, self.width, &mut self.changed);
    }

    /// The screen in gray, maximised with the kept one if `pooled`, and scaled.
    pub(super) fn observe(&mut self, screen: &[u8], pooled: bool, out: &mut [u8]) {
        if !pooled {
            self.keep(screen);
        }
        copy_changes(screen, &mut self.new, self.width, &mut self.changed);
        self.update_gray();
        self.scaler.update(&self.gray, &self.changed, &mut self.scaled);
        self.changed.fill(0..0);
        out.copy_from_slice(&self.scaled);
    }

    /// Computes the gray of the maximum where a screen changed.
    fn update_gray(&mut self) {
        for (y, changed) in self.changed.iter_mut().enumerate() {
            if Range::is_empty(changed) {
                continue;
            }
            let row = y * self.width..(y + 1) * self.width;
            let (new, old, gray) = (&self.new[row.clone()], &self.old[row.clone()], &mut self.gray[row]);
            let alike = new == old;
            // ALE marks lines of an unfinished frame with odd indices. The table ignores the lowest bit, the palette does
            // not, so such a row changes as a whole when the other one is used.
            if alike != self.alike[y] && new.iter().chain(old).any(|index| index % 2 == 1) {
                *changed = 0..self.width;
            }
            self.alike[y] = alike;
            let pixels = gray[changed.clone()].iter_mut().zip(&new[changed.clone()]);
            if alike {
                pixels.for_each(|(pixel, new)| *pixel = self.palette[usize::from(*new)]);
            } else {
                pixels
                    .zip(&old[changed.clone()])
                    .for_each(|((pixel, new), old)| *pixel = self.shades[at(*new, *old)]);
            }
        }
    }
}

/// Copies `screen` to `kept` and adds the columns that differ to those of each row in `changed`.
fn copy_changes(screen: &[u8], kept: &mut [u8], width: usize, changed: &mut [Range<usize>]) {
    let rows = screen.chunks_exact(width).zip(kept.chunks_exact_mut(width));
    for ((new, kept), changed) in rows.zip(changed) {
        if new != kept {
            *changed = join(changed.clone(), difference(new, kept));
            kept.copy_from_slice(new);
        }
    }
}

/// A range outside of which two rows are equal, to within the size of a word.
fn difference(a: &[u8], b: &[u8]) -> Range<usize> {
    const WORD: usize = size_of::<u64>();
    let mut words = a.chunks(WORD).zip(b.chunks(WORD));
    let count = words.len();
    let start = words.position(|(a, b)| a != b).unwrap_or(count);
    let end = words.rposition(|(a, b)| a != b).map_or(start + 1, |last| start + last + 2);
    start * WORD..(end * WORD).min(a.len())
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What [`View`] computes, without memory: in a row that is the same in both screens the palette's gray, otherwise
    /// that of the table.
    fn plain(new: &[u8], old: &[u8], height: usize, palette: &[u8; 256], shades: &Shades) -> Vec<u8> {
        let width = new.len() / height;
        let mut gray = Vec::new();
        for (new, old) in new.chunks_exact(width).zip(old.chunks_exact(width)) {
            let shade =
                |(a, b): (&u8, &u8)| if new == old { palette[usize::from(*a)] } else { shades[at(*a, *b)] };
            gray.extend(new.iter().zip(old).map(shade));
        }
        let mut scaled = vec![0; SIDE * SIDE];
        AreaScaler::new((height, width), (SIDE, SIDE)).scale(&gray, &mut scaled);
        scaled
    }

    /// A screen from the one before: some rectangles are filled.
    fn draw(screen: &mut [u8], width: usize, rectangles: &[(usize, usize, usize, usize, u8)]) {
        let height = screen.len() / width;
        for &(top, left, rows, columns, colour) in rectangles {
            for y in top % height..(top % height + rows).min(height) {
                let left = left % width;
                screen[y * width + left..y * width + (left + columns).min(width)].fill(colour);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_seen_depends_on_the_two_screens_alone(
            (height, width) in (84usize..220, 84usize..180),
            palette in prop::collection::vec(any::<u8>(), 256),
            steps in prop::collection::vec(
                (
                    prop::bool::ANY,
                    // Odd indices too. No colour, few, or many rectangles from one screen to the next.
                    prop::collection::vec((0usize..220, 0usize..180, 0usize..220, 1usize..180, any::<u8>()), 0..3),
                    prop::collection::vec((0usize..220, 0usize..180, 0usize..9, 1usize..9, 0u8..4), 0..9),
                ),
                1..12,
            ),
        ) {
            let palette: [u8; 256] = palette.try_into().unwrap();
            let shades = shades(|a, b| palette[a].max(palette[b]));
            let mut view = View::of_size(height, width, palette, shades.clone());
            let (mut screen, mut out) = (vec![0; height * width], vec![0; SIDE * SIDE]);
            for (pooled, large, small) in steps {
                let old = screen.clone();
                if pooled {
                    view.keep(&old);
                }
                draw(&mut screen, width, &large);
                draw(&mut screen, width, &small);
                view.observe(&screen, pooled, &mut out);
                let old = if pooled { &old } else { &screen };
                prop_assert_eq!(&out, &plain(&screen, old, height, &palette, &shades));
            }
        }

        #[test]
        fn the_difference_of_two_rows_has_all_that_differs_and_little_more(
            a in prop::collection::vec(0u8..3, 1..70),
            b in prop::collection::vec(0u8..3, 70),
        ) {
            let b = &b[..a.len()];
            let differs: Vec<usize> = (0..a.len()).filter(|&i| a[i] != b[i]).collect();
            prop_assume!(!differs.is_empty());
            let range = difference(&a, b);
            prop_assert!(range.end <= a.len());
            prop_assert!((range.start..range.start + 8).contains(&differs[0]));
            let last = differs[differs.len() - 1];
            prop_assert!(last < range.end && range.end <= last + 8);
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
