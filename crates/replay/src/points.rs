//! The random points at which a batch is sampled.

use rand::{Rng, RngExt};

/// `count` random points in [0, 1): independent or, if `stratified`, one from each of `count` equal strata.
/// Stratification lowers the variance of a batch and does not change the expected count of an item.
///
/// Lazily takes one number from `rng` per point.
pub fn random_points(count: usize, stratified: bool, rng: &mut impl Rng) -> impl Iterator<Item = f64> {
    (0..count).map(move |share| {
        let uniform: f64 = rng.random();
        let point = if stratified { (share as f64 + uniform) / count as f64 } else { uniform };
        // Rounding can give 1, which is outside of the interval.
        point.min(1.0 - f64::EPSILON / 2.0)
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn each_stratum_has_one_point_and_none_reaches_1() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let drawn: Vec<f64> = random_points(7, true, &mut rng).collect();
        let shares: Vec<usize> = drawn.iter().map(|point| (point * 7.0) as usize).collect();
        assert_eq!(shares, [0, 1, 2, 3, 4, 5, 6]);
        assert!(random_points(1_000, false, &mut rng).all(|point| (0.0..1.0).contains(&point)));
        assert_eq!(random_points(256, true, &mut Ones).last(), Some(1.0 - f64::EPSILON / 2.0));
    }

    /// A generator that always returns the largest number.
    struct Ones;

    impl rand::TryRng for Ones {
        type Error = std::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(u32::MAX)
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(u64::MAX)
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            bytes.fill(u8::MAX);
            Ok(())
        }
    }
}
