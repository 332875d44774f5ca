//! A batch spread over several shards.
//!
//! All shards together are one interval, each as long as its mass. Points are drawn on the whole, so that the draws of a
//! stratified batch lie in equal shares of everything, and how many fall to a shard is what it must be: multinomial
//! without strata, as even as can be with them. A point then goes to its shard as a share of that shard's own mass. The
//! masses may be old: a shard that has changed since still draws in proportion to its own weights, and the probability
//! of each item is the known share of its shard times the exact probability inside.

use rand::Rng;

/// No shard weighs more: an item weighs 1e280 at most, and a table has 2³² of them at most. So masses add up to a
/// number.
const MASS_MAX: f64 = 1e300;

/// What the shards of a run weigh, as last heard. An unreachable or empty one weighs 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Masses(Vec<f64>);

/// Where one draw falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Index of the shard.
    pub shard: usize,
    /// Share of that shard's mass, from 0 up to but not including 1.
    pub within: f64,
}

impl Masses {
    /// Masses by shard; what is not a positive number, or more than a shard can weigh, counts as 0.
    pub fn new(masses: impl IntoIterator<Item = f64>) -> Self {
        let sound = |mass: f64| if mass > 0.0 && mass <= MASS_MAX { mass } else { 0.0 };
        Self(masses.into_iter().map(sound).collect())
    }

    /// Forgets a shard from which nothing came: what was asked of it is drawn elsewhere.
    pub fn lose(&mut self, shard: usize) {
        self.0[shard] = 0.0;
    }

    /// The probability with which one draw falls to a shard.
    pub fn share(&self, shard: usize) -> f64 {
        self.0[shard] / self.total()
    }

    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.total() <= 0.0
    }

    /// Draws `count` points, one from each of `count` equal shares of the whole if `stratified`.
    ///
    /// # Panics
    /// If there is nothing to draw from.
    pub fn draw(&self, count: usize, stratified: bool, rng: &mut impl Rng) -> Vec<Point> {
        assert!(!self.is_empty(), "nothing to draw from");
        let total = self.total();
        replay::points(count, stratified, rng).map(|fraction| self.find(fraction * total)).collect()
    }

    fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    fn find(&self, at: f64) -> Point {
        let mut before = 0.0;
        let mut last = None;
        for (shard, &mass) in self.0.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
            let within = (at - before) / mass;
            if within < 1.0 {
                return Point { shard, within: within.max(0.0) };
            }
            before += mass;
            last = Some(shard);
        }
        // Rounding can leave the point a hair beyond the end.
        Point { shard: last.expect("there is some mass"), within: 1.0 - f64::EPSILON }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn strata_are_spread_over_all_shards() {
        let masses = Masses::new([1.0, 0.0, 2.0, 5.0]);
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
        let masses = Masses::new([1.0, 3.0]);
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
    fn a_lost_shard_gets_nothing_and_weighs_nothing() {
        let mut masses = Masses::new([1.0, f64::NAN, 3.0]);
        assert_eq!([0, 1, 2].map(|shard| masses.share(shard)), [0.25, 0.0, 0.75]);
        masses.lose(2);
        assert_eq!(masses.share(0), 1.0);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        assert!(masses.draw(50, false, &mut rng).iter().all(|point| point.shard == 0));
        masses.lose(0);
        assert!(masses.is_empty());
        // Two of these would add up to infinity.
        let masses = Masses::new([f64::MAX, f64::MAX, 2.0]);
        assert_eq!([0, 1, 2].map(|shard| masses.share(shard)), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn the_very_end_is_still_a_point() {
        let masses = Masses::new([0.1, 0.2, 0.0]);
        let end = masses.find(masses.total());
        assert_eq!(end.shard, 1);
        assert!(end.within < 1.0);
    }
}
