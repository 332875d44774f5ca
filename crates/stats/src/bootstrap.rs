//! Percentile intervals of a statistic over resampled runs.

use rand::Rng;

use crate::Scores;
use crate::aggregate::quantile;

/// The ends of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Whether a value lies in it, ends included.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The stratified percentile bootstrap: in each round, the runs of each task are drawn with replacement among the runs of
/// that task; the interval is the middle `confidence` of the statistic over all rounds.
///
/// There is no interval if a task has a single run, which says nothing of the spread of runs, or if the statistic is not a
/// finite number in so many rounds that an end is none. With few runs the interval is too narrow: see `tests/coverage.rs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    pub rounds: usize,
    /// Share of the rounds inside the interval.
    pub confidence: f64,
}

impl Bootstrap {
    /// 95% intervals.
    pub fn new(rounds: usize) -> Self {
        Self { rounds: rounds.max(1), confidence: 0.95 }
    }

    /// The interval of one algorithm's statistic.
    pub fn interval(
        &self,
        scores: &Scores,
        rng: &mut impl Rng,
        statistic: impl Fn(&Scores) -> f64,
    ) -> Option<Interval> {
        self.bands(scores, rng, |scores| vec![statistic(scores)]).map(|bands| bands[0])
    }

    /// The interval of a statistic of two algorithms, whose runs are drawn independently.
    pub fn interval_of_pair(
        &self,
        (a, b): (&Scores, &Scores),
        rng: &mut impl Rng,
        statistic: impl Fn(&Scores, &Scores) -> f64,
    ) -> Option<Interval> {
        let several = a.runs_min() > 1 && b.runs_min() > 1;
        several.then(|| {
            let draw = |_| statistic(&a.resampled(rng), &b.resampled(rng));
            self.middle(&(0..self.rounds).map(draw).collect::<Vec<f64>>())
        })?
    }

    /// Pointwise intervals of a statistic of several numbers, always as many. None if one of them has none.
    pub fn bands(
        &self,
        scores: &Scores,
        rng: &mut impl Rng,
        statistic: impl Fn(&Scores) -> Vec<f64>,
    ) -> Option<Vec<Interval>> {
        if scores.runs_min() < 2 {
            return None;
        }
        let drawn: Vec<Vec<f64>> = (0..self.rounds).map(|_| statistic(&scores.resampled(rng))).collect();
        let column = |index: usize| drawn.iter().map(|numbers| numbers[index]).collect::<Vec<f64>>();
        (0..drawn[0].len()).map(|index| self.middle(&column(index))).collect()
    }

    /// NaN is sorted above all numbers.
    fn middle(&self, drawn: &[f64]) -> Option<Interval> {
        let tail = (1.0 - self.confidence) / 2.0;
        let interval = Interval { low: quantile(drawn, tail), high: quantile(drawn, 1.0 - tail) };
        (interval.low.is_finite() && interval.high.is_finite()).then_some(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Aggregate;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn interval(runs: Vec<f64>, statistic: impl Fn(&Scores) -> f64) -> Option<Interval> {
        let scores = Scores::new(vec![runs]).unwrap();
        Bootstrap::new(1_000).interval(&scores, &mut ChaCha8Rng::seed_from_u64(1), statistic)
    }

    #[test]
    fn an_interval_holds_the_mean_and_shrinks_with_runs() {
        let of = |count: usize| {
            let runs = (0..count).map(|index| (index % 10) as f64).collect();
            interval(runs, |scores| Aggregate::Mean.of(scores)).unwrap()
        };
        let (few, many) = (of(10), of(1_000));
        assert!(few.holds(4.5) && many.holds(4.5));
        assert!(many.high - many.low < (few.high - few.low) / 5.0);
    }

    #[test]
    fn a_single_run_has_no_interval() {
        assert_eq!(interval(vec![1.0], |scores| Aggregate::Mean.of(scores)), None);
        let (one, two) = (Scores::new(vec![vec![1.0]]).unwrap(), Scores::new(vec![vec![1.0, 2.0]]).unwrap());
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(Bootstrap::new(10).interval_of_pair((&two, &one), &mut rng, |_, _| 0.5), None);
    }

    #[test]
    fn a_statistic_that_is_rarely_undefined_has_an_interval() {
        // The largest of 4 runs is not among the drawn ones in (3/4)^4 = 32% of the rounds, the 5 largest of 10 in 0.1%.
        let undefined = |bound: f64| {
            move |scores: &Scores| {
                let kept: Vec<f64> = scores.values().filter(|score| *score > bound).collect();
                kept.iter().sum::<f64>() / kept.len() as f64
            }
        };
        assert_eq!(interval(vec![1.0, 2.0, 3.0, 4.0], undefined(3.5)), None);
        assert!(interval((0..10).map(f64::from).collect(), undefined(4.5)).is_some());
    }

    #[test]
    fn the_same_generator_gives_the_same_interval() {
        let of = || interval(vec![1.0, 5.0, 2.0, 8.0, 3.0], |scores| Aggregate::Mean.of(scores));
        assert_eq!(of(), of());
    }
}
