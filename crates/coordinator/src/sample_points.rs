//! Distributes the draws of a batch over several shards.
//!
//! A shard's *mass* is the sum of the sampling weights of its items. All shards together form one interval, in which each
//! shard has a part as long as its mass. Points are drawn on the
//! whole interval, so that the draws of a stratified batch lie in equal shares of the total mass. The number of draws
//! per shard is then multinomial without strata, and as even as possible with them. Each point is sent to its shard as
//! a fraction of the shard's own mass. The masses may be out of date: a shard that has changed since still draws in
//! proportion to its own weights, and the probability of an item is the share of its shard times its exact probability
//! within the shard.

use rand::Rng;

/// Upper bound of a shard's mass: an item weighs at most 1e280, and a table has at most 2³² items. The bound keeps the
/// total finite.
const MASS_MAX: f64 = 1e300;

/// The masses of a run's shards, as last reported; 0 for an unreachable or empty shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardMasses(Vec<f64>);

/// The position of one draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplePoint {
    pub shard: usize,
    /// Fraction of the shard's mass, in [0, 1).
    pub within: f64,
}

impl ShardMasses {
    /// ShardMasses by shard. A mass that is not positive, or more than a shard can have, counts as 0.
    pub fn new(masses: impl IntoIterator<Item = f64>) -> Self {
        let sound = |mass: f64| if mass > 0.0 && mass <= MASS_MAX { mass } else { 0.0 };
        Self(masses.into_iter().map(sound).collect())
    }

    /// Sets the mass of a shard that did not answer to 0: its draws are repeated on the other shards.
    pub fn exclude(&mut self, shard: usize) {
        self.0[shard] = 0.0;
    }

    /// The probability with which one draw falls on a shard.
    pub fn share(&self, shard: usize) -> f64 {
        self.0[shard] / self.total()
    }

    /// Whether the total mass is 0: then nothing can be drawn.
    pub fn is_empty(&self) -> bool {
        self.total() <= 0.0
    }

    /// Draws `count` points; if `stratified`, one from each of `count` equal shares of the total mass.
    ///
    /// # Panics
    /// If the total mass is 0.
    pub fn draw(&self, count: usize, stratified: bool, rng: &mut impl Rng) -> Vec<SamplePoint> {
        assert!(!self.is_empty(), "nothing to draw from");
        let total = self.total();
        replay::random_points(count, stratified, rng).map(|fraction| self.find(fraction * total)).collect()
    }

    fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    fn find(&self, at: f64) -> SamplePoint {
        let mut before = 0.0;
        let mut last = None;
        for (shard, &mass) in self.0.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
            let within = (at - before) / mass;
            if within < 1.0 {
                return SamplePoint { shard, within: within.max(0.0) };
            }
            before += mass;
            last = Some(shard);
        }
        // Rounding can put the point slightly beyond the end.
        SamplePoint { shard: last.expect("there is some mass"), within: 1.0 - f64::EPSILON }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn strata_are_spread_over_all_shards() {
        let masses = ShardMasses::new([1.0, 0.0, 2.0, 5.0]);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..100 {
            let points = masses.draw(80, true, &mut rng);
            let counts = [0, 1, 2, 3].map(|shard| points.iter().filter(|point| point.shard == shard).count());
            assert_eq!(counts, [10, 0, 20, 50]);
            assert!(points.iter().all(|point| (0.0..1.0).contains(&point.within)));
        }
    }

    #[test]
    fn without_strata_the_counts_are_multinomial() {
        let masses = ShardMasses::new([1.0, 3.0]);
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let (rounds, count) = (2000, 40);
        let drawn: Vec<f64> = (0..rounds)
            .map(|_| {
                masses.draw(count, false, &mut rng).iter().filter(|point| point.shard == 0).count() as f64
            })
            .collect();
        let mean = drawn.iter().sum::<f64>() / f64::from(rounds);
        let variance = drawn.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / f64::from(rounds);
        // 40 draws at 1/4: mean 10, variance 7.5. Tolerances are five standard errors.
        assert!((mean - 10.0).abs() < 5.0 * (7.5f64 / 2000.0).sqrt(), "{mean}");
        assert!((variance - 7.5).abs() < 5.0 * 7.5 * (2.0f64 / 2000.0).sqrt(), "{variance}");
    }

    #[test]
    fn an_excluded_shard_gets_no_draws_and_has_no_mass() {
        let mut masses = ShardMasses::new([1.0, f64::NAN, 3.0]);
        assert_eq!([0, 1, 2].map(|shard| masses.share(shard)), [0.25, 0.0, 0.75]);
        masses.exclude(2);
        assert_eq!(masses.share(0), 1.0);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        assert!(masses.draw(50, false, &mut rng).iter().all(|point| point.shard == 0));
        masses.exclude(0);
        assert!(masses.is_empty());
        // The sum of two of these would be infinite.
        let masses = ShardMasses::new([f64::MAX, f64::MAX, 2.0]);
        assert_eq!([0, 1, 2].map(|shard| masses.share(shard)), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn the_very_end_is_still_a_point() {
        let masses = ShardMasses::new([0.1, 0.2, 0.0]);
        let end = masses.find(masses.total());
        assert_eq!(end.shard, 1);
        assert!(end.within < 1.0);
    }
}
