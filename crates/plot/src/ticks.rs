//! Chooses the ticks of an axis.
//!
//! As many as there is room for, at numbers that people count in: 1, 2 or 5 times a power of ten. A log axis has powers
//! of ten; with little more than one of them in sight, 2 and 5 as well; and if its range is so narrow that these are not
//! enough, what a linear axis would have.

use std::ops::Range;

use crate::number::{number, numbers, powers};

/// Never more than so many, however long the axis is.
const TICKS_MAX: usize = 9;

/// A log axis that spans fewer decades than this also has 2 and 5.
const DECADES_FEW: f64 = 2.0;

/// A log axis that spans more decades than this has no small ticks.
const DECADES_MANY: f64 = 8.0;

/// How many decades may lie between two ticks.
const STRIDES: [i32; 11] = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300];

/// A value and how it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub value: f64,
    pub words: String,
}

/// The labels of an axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ticks {
    pub written: Vec<Tick>,
    /// Marked but not written: the other numbers of a log axis.
    pub small: Vec<f64>,
}

impl Ticks {
    /// The densest ticks that fit, or else the sparsest there are.
    pub fn choose(values: &Range<f64>, is_log: bool, fits: impl Fn(&[Tick]) -> bool) -> Self {
        let mut options = if is_log { log_options(values) } else { linear_options(values) };
        let last = options.len().saturating_sub(1);
        let chosen = options.iter().position(|option| fits(&option.written)).unwrap_or(last);
        if options.is_empty() { Self::default() } else { options.swap_remove(chosen) }
    }
}

/// The densest first.
fn linear_options(values: &Range<f64>) -> Vec<Ticks> {
    let mut options: Vec<Ticks> = Vec::new();
    for count_max in (1..=TICKS_MAX).rev() {
        let written = linear(values, count_max);
        if !written.is_empty() && options.last().is_none_or(|option| option.written != written) {
            options.push(Ticks { written, small: Vec::new() });
        }
    }
    options
}

/// The densest first.
fn log_options(values: &Range<f64>) -> Vec<Ticks> {
    let decades = values.end.log10() - values.start.log10();
    let mut options = Vec::new();
    if decades < DECADES_FEW {
        let written: Vec<Tick> = log_values(values, &[1.0, 2.0, 5.0])
            .into_iter()
            .map(|value| Tick { value, words: number(value) })
            .collect();
        if written.len() < 3 {
            options = linear_options(values);
        }
        options.push(Ticks { written, small: small(values) });
    }
    let exponents: Vec<i32> =
        exponents(values).filter(|exponent| holds(values, 10f64.powi(*exponent))).collect();
    for stride in STRIDES {
        // Multiples of the stride, so that 1 is among them if it is in sight.
        let shown: Vec<i32> =
            exponents.iter().copied().filter(|exponent| exponent.rem_euclid(stride) == 0).collect();
        if shown.len() > TICKS_MAX {
            continue;
        }
        let words = powers(&shown);
        let written =
            shown.iter().zip(words).map(|(exponent, words)| Tick { value: 10f64.powi(*exponent), words });
        let small = if stride == 1 && decades <= DECADES_MANY { small(values) } else { Vec::new() };
        options.push(Ticks { written: written.collect(), small });
    }
    options.retain(|option| !option.written.is_empty());
    options
}

/// Multiples of 1, 2 or 5 times a power of ten, about as many as `count`.
fn linear(values: &Range<f64>, count: usize) -> Vec<Tick> {
    let rough = (values.end - values.start) / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough * 0.999);
    // A range next to the smallest number there is has no steps.
    let Some(step) = step.filter(|step| step.is_normal()) else { return Vec::new() };
    const SLACK: f64 = 1e-9;
    let first = (values.start / step - SLACK).ceil();
    let last = (values.end / step + SLACK).floor();
    let found: Vec<f64> = (0..=2 * TICKS_MAX)
        .map(|index| first + index as f64)
        .take_while(|at| *at <= last)
        .map(|at| at * step)
        .collect();
    let words = numbers(&found, step);
    found.into_iter().zip(words).map(|(value, words)| Tick { value, words }).collect()
}

/// The powers of ten in and just around a range.
fn exponents(values: &Range<f64>) -> impl Iterator<Item = i32> {
    values.start.log10().floor() as i32..=values.end.log10().ceil() as i32
}

/// Powers of ten times the factors, as far as they are in the range.
fn log_values(values: &Range<f64>, factors: &[f64]) -> Vec<f64> {
    let all = exponents(values)
        .flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)));
    all.filter(|value| holds(values, *value)).collect()
}

fn small(values: &Range<f64>) -> Vec<f64> {
    log_values(values, &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
}

/// Whether a value is in a range of a log axis, or misses it by a rounding.
fn holds(values: &Range<f64>, value: f64) -> bool {
    const SLACK: f64 = 1e-9;
    (values.start * (1.0 - SLACK)..=values.end * (1.0 + SLACK)).contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: Range<f64>, is_log: bool, count_max: usize) -> Vec<String> {
        let ticks = Ticks::choose(&values, is_log, |ticks| ticks.len() <= count_max);
        ticks.written.into_iter().map(|tick| tick.words).collect()
    }

    #[test]
    fn a_linear_axis_counts_in_ones_twos_or_fives() {
        assert_eq!(words(0.0..1.0, false, 6), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(words(0.0..1.0, false, 3), ["0", "0.5", "1"]);
        assert_eq!(words(-21.0..21.0, false, 5), ["−20", "−10", "0", "10", "20"]);
        assert_eq!(words(0.0..24_800.0, false, 6), ["0", "5,000", "10,000", "15,000", "20,000"]);
        assert_eq!(words(0.0..3e-7, false, 4), ["0", "10⁻⁷", "2×10⁻⁷", "3×10⁻⁷"]);
    }

    #[test]
    fn a_log_axis_has_powers_of_ten() {
        assert_eq!(words(0.9..1100.0, true, 9), ["1", "10", "100", "1,000"]);
        assert_eq!(words(1e-12..1.0, true, 5), ["10⁻¹²", "10⁻⁹", "10⁻⁶", "10⁻³", "10⁰"]);
        assert_eq!(words(1e-12..1.0, true, 7), ["10⁻¹²", "10⁻¹⁰", "10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "10⁰"]);
    }

    #[test]
    fn a_short_log_axis_also_has_twos_and_fives() {
        assert_eq!(words(1.0..60.0, true, 9), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(words(1.0..60.0, true, 4), ["1", "10"]);
        assert_eq!(words(60.0..85.0, true, 6), ["60", "65", "70", "75", "80", "85"]);
    }

    #[test]
    fn small_ticks_fill_the_decades_in_between() {
        let ticks = Ticks::choose(&(1.0..1000.0), true, |_| true);
        assert_eq!(ticks.small.len(), 24);
        assert!(Ticks::choose(&(1e-20..1.0), true, |_| true).small.is_empty());
    }

    #[test]
    fn the_sparsest_ticks_are_written_where_none_fit_and_extremes_have_a_few() {
        assert_eq!(words(0.0..1.0, false, 0), ["0", "1"]);
        for (values, is_log) in [
            (-1e300..1e300, false),
            (1e-300..1e300, true),
            (1.0..1.0 + 1e-8, false),
            (0.0..1e-300, false),
            (2e9..2e9 + 3.0, true),
        ] {
            let count = words(values.clone(), is_log, 9).len();
            assert!((1..=9).contains(&count), "{values:?}: {count}");
        }
        assert!(words(0.0..f64::MIN_POSITIVE, false, 9).len() <= 1);
    }
}
