//! Shrinking a gray picture by area interpolation: each output pixel is the mean of the input that it covers.
//!
//! Along one axis, `input` pixels become `output`. Divide both by their greatest common divisor, to `n` and `m`, and cut
//! every input pixel into `m` parts: then an output pixel covers exactly `n` of them, and its weights are whole numbers
//! with the sum `n`. So the mean is computed exactly, in integers, and rounded once. Rows are summed first, since that
//! runs along memory, 160 columns at a time.
//!
//! From one frame of a game to the next little changes, so [`AreaScaler::update`] computes only the output pixels that
//! cover a change.

use std::ops::Range;

/// Scales pictures of one size to another; it keeps the weights and a row of sums.
#[derive(Debug, Clone)]
pub struct AreaScaler {
    rows: Axis,
    columns: Axis,
    sums: Vec<u16>,
    reciprocal: u64,
    half: u32,
}

/// The weights along one axis.
#[derive(Debug, Clone)]
struct Axis {
    input: usize,
    output: usize,
    /// Input pixels that an output pixel touches at most; shorter ones have weights of 0.
    taps: usize,
    /// For each output pixel, the first input pixel that it is computed from.
    starts: Vec<usize>,
    /// `taps` weights for each output pixel.
    weights: Vec<u16>,
    /// The sum of the weights of one output pixel.
    total: usize,
    /// The parts that an input pixel is cut into. An output pixel covers `total` of them.
    parts: usize,
}

/// Reciprocals have this many bits after the point: sums below 2^25 divided by at most 2^16 come out exact.
const RECIPROCAL_BITS: u32 = 48;

impl AreaScaler {
    /// From `input` to `output`, both as (height, width).
    ///
    /// # Panics
    ///
    /// If a side is 0, grows, or is longer than 256 (what sixteen bits of row sums hold).
    pub fn new(input: (usize, usize), output: (usize, usize)) -> AreaScaler {
        let rows = Axis::new(input.0, output.0);
        let columns = Axis::new(input.1, output.1);
        let total = (rows.total * columns.total) as u64;
        AreaScaler {
            sums: vec![0; input.1],
            reciprocal: (1 << RECIPROCAL_BITS) / total + 1,
            half: (total / 2) as u32,
            rows,
            columns,
        }
    }

    /// Scales `input` into `output`.
    ///
    /// # Panics
    ///
    /// If either has not the length that its size says.
    pub fn scale(&mut self, input: &[u8], output: &mut [u8]) {
        let width = self.columns.input;
        self.update_where(input, |_| 0..width, output);
    }

    /// Scales `input` into `output`, which holds the result for an input that differed from this one at most in the
    /// columns that `changed` gives for each row of the input. An unchanged row has an empty range.
    ///
    /// # Panics
    ///
    /// If a picture has not the length that its size says, `changed` has not one range per row, or a range exceeds a row.
    pub fn update(&mut self, input: &[u8], changed: &[Range<usize>], output: &mut [u8]) {
        assert_eq!(changed.len(), self.rows.input, "one range for each row");
        self.update_where(input, |row| changed[row].clone(), output);
    }

    fn update_where(&mut self, input: &[u8], changed: impl Fn(usize) -> Range<usize>, output: &mut [u8]) {
        let AreaScaler { rows, columns, sums, .. } = self;
        assert_eq!(input.len(), rows.input * columns.input, "the input's size");
        assert_eq!(output.len(), rows.output * columns.output, "the output's size");
        for (y, output) in output.chunks_exact_mut(columns.output).enumerate() {
            let lines = || rows.weights(y).iter().zip(rows.starts[y]..).filter(|(weight, _)| **weight > 0);
            let Some(changed) =
                lines().map(|(_, row)| changed(row)).reduce(join).filter(|all| !all.is_empty())
            else {
                continue;
            };
            let pixels = columns.outputs(&changed);
            let covered = columns.starts[pixels.start]..columns.starts[pixels.end - 1] + columns.taps;
            let sums = &mut sums[..covered.len()];
            sums.fill(0);
            for (&weight, row) in lines() {
                add(sums, &input[row * columns.input..][covered.clone()], weight);
            }
            let weights = columns.weights[pixels.start * columns.taps..].chunks_exact(columns.taps);
            let weights = columns.starts[pixels.clone()].iter().zip(weights);
            for (pixel, (&start, weights)) in output[pixels].iter_mut().zip(weights) {
                let sum = dot(weights, &sums[start - covered.start..][..weights.len()]);
                *pixel = ((u64::from(sum + self.half) * self.reciprocal) >> RECIPROCAL_BITS) as u8;
            }
        }
    }
}

/// The smallest range with all of `a` and `b`.
pub(crate) fn join(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    if a.is_empty() {
        b
    } else if b.is_empty() {
        a
    } else {
        a.start.min(b.start)..a.end.max(b.end)
    }
}

/// Adds `weight` times a line to the sums. A function of its own, so that the compiler sees that the two do not overlap.
fn add(sums: &mut [u16], line: &[u8], weight: u16) {
    for (sum, &pixel) in sums.iter_mut().zip(line) {
        *sum += weight * u16::from(pixel);
    }
}

fn dot(weights: &[u16], sums: &[u16]) -> u32 {
    let product = |weight: u16, sum: u16| u32::from(weight) * u32::from(sum);
    match (weights, sums) {
        // The Atari's 160 columns to 84, without a loop.
        (&[a, b, c], &[x, y, z]) => product(a, x) + product(b, y) + product(c, z),
        _ => weights.iter().zip(sums).map(|(&weight, &sum)| product(weight, sum)).sum(),
    }
}

impl Axis {
    fn new(input: usize, output: usize) -> Axis {
        assert!(0 < output && output <= input && input <= 256, "cannot scale {input} pixels to {output}");
        let divisor = greatest_common_divisor(input, output);
        let (covers, parts) = (input / divisor, output / divisor);
        let taps = (covers.div_ceil(parts) + 1).min(input);
        let (starts, weights) = (Vec::new(), Vec::new());
        let mut axis = Axis { input, output, taps, starts, weights, total: covers, parts };
        for index in 0..output {
            let (from, to) = (index * covers, (index + 1) * covers);
            let start = (from / parts).min(input - taps);
            axis.starts.push(start);
            for pixel in start..start + taps {
                let overlap = to.min((pixel + 1) * parts).saturating_sub(from.max(pixel * parts));
                axis.weights.push(overlap as u16);
            }
        }
        axis
    }

    /// The output pixels that cover one of these input pixels, of which there is at least one.
    fn outputs(&self, pixels: &Range<usize>) -> Range<usize> {
        pixels.start * self.parts / self.total..(pixels.end * self.parts).div_ceil(self.total)
    }

    fn weights(&self, index: usize) -> &[u16] {
        &self.weights[index * self.taps..][..self.taps]
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, in floating point.
    fn slow(input: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<f64> {
        let overlap = |index: usize, scale: f64, pixel: usize| {
            let (start, end) = (index as f64 * scale, (index + 1) as f64 * scale);
            (end.min((pixel + 1) as f64) - start.max(pixel as f64)).max(0.0)
        };
        let (sy, sx) = (from.0 as f64 / to.0 as f64, from.1 as f64 / to.1 as f64);
        let mut output = Vec::new();
        for y in 0..to.0 {
            for x in 0..to.1 {
                let mut sum = 0.0;
                for r in (y as f64 * sy) as usize..from.0.min(((y + 1) as f64 * sy) as usize + 1) {
                    for c in (x as f64 * sx) as usize..from.1.min(((x + 1) as f64 * sx) as usize + 1) {
                        sum += overlap(y, sy, r) * overlap(x, sx, c) * f64::from(input[r * from.1 + c]);
                    }
                }
                output.push(sum / (sy * sx));
            }
        }
        output
    }

    fn check(input: &[u8], from: (usize, usize), to: (usize, usize)) {
        let mut output = vec![0; to.0 * to.1];
        AreaScaler::new(from, to).scale(input, &mut output);
        for (fast, exact) in output.iter().zip(slow(input, from, to)) {
            assert!(
                (f64::from(*fast) - exact).abs() <= 0.5 + 1e-6,
                "{fast} for {exact} from {from:?} to {to:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn rounds_the_exact_mean_for_every_height_of_screen(
            height in prop::sample::select(vec![210usize, 230, 250, 211, 256]),
            pixels in prop::collection::vec(any::<u8>(), 256 * 160),
        ) {
            check(&pixels[..height * 160], (height, 160), (84, 84));
        }

        #[test]
        fn rounds_the_exact_mean_for_any_size(
            (h, w) in (1usize..40, 1usize..40),
            (a, b) in (0.01f64..1.0, 0.01f64..1.0),
            pixels in prop::collection::vec(any::<u8>(), 40 * 40),
        ) {
            let to = ((h as f64 * a).ceil() as usize, (w as f64 * b).ceil() as usize);
            check(&pixels[..h * w], (h, w), to);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_updated_picture_is_the_one_scaled_anew(
            (h, w) in (1usize..40, 1usize..40),
            (a, b) in (0.01f64..1.0, 0.01f64..1.0),
            before in prop::collection::vec(any::<u8>(), 40 * 40),
            changes in prop::collection::vec((0usize..40, 0usize..40, 0usize..40, any::<u8>()), 0..9),
        ) {
            let to = ((h as f64 * a).ceil() as usize, (w as f64 * b).ceil() as usize);
            let mut scaler = AreaScaler::new((h, w), to);
            let (mut input, mut output) = (before[..h * w].to_vec(), vec![0; to.0 * to.1]);
            scaler.scale(&input, &mut output);
            let mut changed = vec![0..0; h];
            for (row, from, to, pixel) in changes {
                let (row, columns) = (row % h, from % w..to % w + 1);
                changed[row] = join(changed[row].clone(), columns.clone());
                columns.for_each(|column| input[row * w + column] = pixel);
            }
            scaler.update(&input, &changed, &mut output);
            let mut anew = vec![0; output.len()];
            scaler.scale(&input, &mut anew);
            prop_assert_eq!(output, anew);
        }
    }

    #[test]
    fn a_flat_picture_stays_flat() {
        for shade in 0..=255 {
            let mut output = [0; 84 * 84];
            AreaScaler::new((210, 160), (84, 84)).scale(&[shade; 210 * 160], &mut output);
            assert!(output.iter().all(|&pixel| pixel == shade), "{shade}");
        }
    }
}
