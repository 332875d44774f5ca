//! Where a batch is drawn: points of a distribution's mass.

use rand::{Rng, RngExt};

/// `count` points from 0 to below 1, each drawn alone or, if `stratified`, one from each of `count` equal shares. Shares lower
/// the variance of a batch and leave each item's expected count as it is.
///
/// Takes one number from `rng` per point, when the point is asked for.
pub fn points(count: usize, stratified: bool, rng: &mut impl Rng) -> impl Iterator<Item = f64> {
    (0..count).map(move |share| {
        let uniform: f64 = rng.random();
        let point = if stratified { (share as f64 + uniform) / count as f64 } else { uniform };
        // Rounding can reach 1, where nothing lies.
        point.min(1.0 - f64::EPSILON / 2.0)
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn each_share_has_one_point_and_none_reaches_the_end() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let drawn: Vec<f64> = points(7, true, &mut rng).collect();
        let shares: Vec<usize> = drawn.iter().map(|point| (point * 7.0) as usize).collect();
        assert_eq!(shares, [0, 1, 2, 3, 4, 5, 6]);
        assert!(points(1_000, false, &mut rng).all(|point| (0.0..1.0).contains(&point)));
        assert_eq!(points(256, true, &mut Ones).last(), Some(1.0 - f64::EPSILON / 2.0));
    }

    /// The largest number that a generator can give, over and over.
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
