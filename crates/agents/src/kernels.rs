//! Loops over a tensor's memory, compiled for the widest vectors that the processor has.
//!
//! The release binaries are built for any x86-64 processor. Each loop here exists three times (AVX-512, AVX2, portable) and the
//! first that the processor supports runs. All three give the same bits: nothing is reordered and no multiply and add is fused.

#![allow(
    unsafe_code,
    reason = "calling a function compiled for a processor feature is unsafe without a check"
)]

/// Defines a function that runs the widest version of its body that this processor supports.
macro_rules! widest {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident $([$($generics:tt)*])? ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $visibility fn $name $(<$($generics)*>)? ($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body $(<$($generics)*>)? ($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512 $(<$($generics)*>)? ($($argument: $type),*) $(-> $result)? {
                    body($($argument),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$($generics)*>)? ($($argument: $type),*) $(-> $result)? {
                    body($($argument),*)
                }
                let has_avx512 = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl");
                if has_avx512 {
                    // SAFETY: the processor has these features.
                    return unsafe { avx512($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has this feature.
                    return unsafe { avx2($($argument),*) };
                }
            }
            body($($argument),*)
        }
    };
}

/// A bf16 number: the upper half of an f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Bf16 {
    /// The nearest bf16 number, ties to even, as libtorch rounds. NaN stays NaN only if its upper half is; callers check for NaN.
    #[inline(always)]
    pub fn round(value: f32) -> Self {
        let bits = value.to_bits();
        Self((bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
}

/// An element of a gradient.
pub trait Element: Copy {
    fn value(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
}

impl Element for Bf16 {
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// An element of a state as the network reads it.
pub trait Pixel: Copy {
    fn of(byte: u8) -> Self;
}

impl Pixel for u8 {
    #[inline(always)]
    fn of(byte: u8) -> Self {
        byte
    }
}

impl Pixel for f32 {
    #[inline(always)]
    fn of(byte: u8) -> Self {
        byte.into()
    }
}

impl Pixel for Bf16 {
    /// Exact: a byte has no more digits than a bf16 number.
    #[inline(always)]
    fn of(byte: u8) -> Self {
        Self((f32::from(byte).to_bits() >> 16) as u16)
    }
}

/// One step of Adam, with bias corrections and learning rate folded into the denominator's line.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Gradient elements are clamped to ± this.
    pub clamp: f32,
    /// 1 − β of the two moments.
    pub rates: [f32; 2],
    /// The value changes by m / (√v · slope + offset).
    pub slope: f32,
    pub offset: f32,
}

/// Moments below this are taken as zero: they change nothing, and arithmetic on denormal numbers is slow.
const TINY: f32 = 1e-30;

widest! {
    /// Updates values and both moments by a gradient.
    pub fn adam[G: Element](step: AdamStep, gradient: &[G], values: &mut [f32], first: &mut [f32], second: &mut [f32]) {
        let AdamStep { clamp, rates: [rate1, rate2], slope, offset } = step;
        for (((g, value), m), v) in gradient.iter().zip(values).zip(first).zip(second) {
            let g = g.value().max(-clamp).min(clamp);
            let next = *m + (g - *m) * rate1;
            *m = if next.abs() < TINY { 0.0 } else { next };
            let next = *v + (g * g - *v) * rate2;
            *v = if next < TINY { 0.0 } else { next };
            *value += *m / (v.sqrt() * slope + offset);
        }
    }
}

widest! {
    /// Rounds to bf16, element by element.
    pub fn round(values: &[f32], rounded: &mut [Bf16]) {
        for (value, rounded) in values.iter().zip(rounded) {
            *rounded = Bf16::round(*value);
        }
    }
}

/// Sums that run side by side, so that the additions are independent.
const LANES: usize = 32;

widest! {
    /// The sum of squares. NaN or infinite if an element is.
    pub fn squared_norm[G: Element](gradient: &[G]) -> f64 {
        let mut sums = [0f32; LANES];
        let mut total = 0.0;
        // Short runs in f32, then f64: a long f32 sum would lose digits.
        for run in gradient.chunks(LANES * 64) {
            let (blocks, rest) = run.as_chunks::<LANES>();
            for block in blocks {
                for (sum, element) in sums.iter_mut().zip(block) {
                    let value = element.value();
                    *sum += value * value;
                }
            }
            for (sum, element) in sums.iter_mut().zip(rest) {
                let value = element.value();
                *sum += value * value;
            }
            total += sums.iter().map(|sum| f64::from(*sum)).sum::<f64>();
            sums = [0.0; LANES];
        }
        total
    }
}

widest! {
    /// Interleaves the planes of images: `planes` holds each image channel by channel, `pixels` gets it pixel by pixel.
    pub fn interleave[P: Pixel](planes: &[u8], channels: usize, pixels: &mut [P]) {
        assert_eq!(planes.len(), pixels.len(), "as many bytes as elements");
        let area = pixels.len() / channels;
        if channels == 4 {
            let (first, rest) = planes.split_at(area);
            let (second, rest) = rest.split_at(area);
            let (third, fourth) = rest.split_at(area);
            let planes = first.iter().zip(second).zip(third).zip(fourth);
            for (pixel, (((a, b), c), d)) in pixels.as_chunks_mut::<4>().0.iter_mut().zip(planes) {
                *pixel = [P::of(*a), P::of(*b), P::of(*c), P::of(*d)];
            }
            return;
        }
        for (channel, plane) in planes.chunks_exact(area).enumerate() {
            for (pixel, byte) in pixels[channel..].iter_mut().step_by(channels).zip(plane) {
                *pixel = P::of(*byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, Tensor};

    #[test]
    fn rounding_agrees_with_libtorch() {
        let values: Vec<f32> = (0..20_000u32)
            .map(|i| f32::from_bits(i.wrapping_mul(214_013).wrapping_add(2_531_011)))
            .filter(|value| value.is_finite())
            .chain([0.0, -0.0, 1.0 + f32::EPSILON, 1.003_906_2, 1.011_718_8, f32::MAX])
            .collect();
        let mut rounded = vec![Bf16(0); values.len()];
        round(&values, &mut rounded);
        let expected = Tensor::from_slice(&values).to_kind(Kind::BFloat16).to_kind(Kind::Float);
        let expected = Vec::<f32>::try_from(&expected).unwrap();
        for ((value, rounded), expected) in values.iter().zip(&rounded).zip(expected) {
            assert_eq!(rounded.value().to_bits(), expected.to_bits(), "{value}");
        }
    }

    #[test]
    fn the_squared_norm_is_the_sum_of_squares_and_shows_what_is_not_finite() {
        for count in [0, 1, 31, 32, 33, 2_049, 5_000] {
            let mut values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin()).collect();
            let expected: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            assert!((squared_norm(&values) - expected).abs() <= 1e-5 * expected, "{count}");
            if let Some(last) = values.last_mut() {
                *last = f32::NAN;
                assert!(squared_norm(&values).is_nan(), "{count}");
            }
        }
    }

    #[test]
    fn images_are_interleaved_pixel_by_pixel_for_every_number_of_channels() {
        for channels in [1, 3, 4, 7] {
            let area = 35;
            let planes: Vec<u8> = (0..channels * area).map(|i| (i * 31 % 251) as u8).collect();
            let (mut bytes, mut floats) = (vec![0u8; planes.len()], vec![0f32; planes.len()]);
            let mut halves = vec![Bf16(0); planes.len()];
            interleave(&planes, channels, &mut bytes);
            interleave(&planes, channels, &mut floats);
            interleave(&planes, channels, &mut halves);
            for channel in 0..channels {
                for pixel in 0..area {
                    let (index, byte) = (pixel * channels + channel, planes[channel * area + pixel]);
                    assert_eq!((bytes[index], floats[index]), (byte, f32::from(byte)));
                    assert_eq!(halves[index].value(), f32::from(byte));
                }
            }
        }
    }
}
