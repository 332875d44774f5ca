//! Beyond the paper: what a gradient step really did to V(s), beside what the theorems bound.
//!
//! The theorems speak of a Q_new that differs from Q_old in Q(s,a) alone, which has become the target. A gradient step
//! is neither: it goes a part of the way, or too far, and moves the other actions of s along, and every other
//! transition of the batch has its say. Here the same three metrics are taken from whole rows of Q before and after,
//! and laid beside the same bounds. Nothing says that those should hold; how often they do is the finding.

use value::experience_value::{self, ExperienceValue};
use value::{hard, soft};

use super::interval::SeedInterval;
use crate::experience::{Experience, Rule};

/// Names of the metrics in the order in which they are kept.
pub const NAMES: [&str; 3] = ["evb", "piv", "eiv"];

/// EVB = V_new − V_old, EIV = E_{π_old}\[Q_new − Q_old\], PIV what is left: the split of `value::experience_value` for rows of
/// which every entry may have changed. Plain differences: the changes are far above the rounding of f64.
pub fn metrics(rule: Rule, old: &[f64], new: &[f64]) -> ExperienceValue {
    let evb = rule.value(new) - rule.value(old);
    let eiv = match rule {
        Rule::Hard => {
            let best = hard::greedy(old);
            new[best] - old[best]
        }
        Rule::Soft(temperature) => {
            let mut policy = vec![0.0; old.len()];
            soft::policy(old, temperature, &mut policy);
            policy.iter().zip(old.iter().zip(new)).map(|(share, (old, new))| share * (new - old)).sum()
        }
    };
    ExperienceValue { evb, piv: evb - eiv, eiv }
}

/// Real changes of many transitions against their bounds.
#[derive(Clone, Debug, Default)]
pub struct Real {
    kept: [Kept; 3],
}

#[derive(Clone, Debug, Default)]
struct Kept {
    above: u64,
    below: u64,
    ratios: Vec<f64>,
}

/// One metric over all transitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// `evb`, `piv` or `eiv`.
    pub metric: &'static str,
    /// How many transitions.
    pub transitions: usize,
    /// The share with |metric| above the upper bound.
    pub above: f64,
    /// The share with |metric| below the lower bound (which is none for PIV even in theory).
    pub below: f64,
    /// The middle |metric| / upper bound.
    pub median: f64,
    /// What 95% of |metric| / upper bound lie below.
    pub p95: f64,
}

impl Real {
    /// Looks at a transition: `experience` knows Q before and the bounds, `new` is Q(s,·) after the step.
    pub fn add(&mut self, experience: &Experience, new: &[f64]) {
        let ExperienceValue { evb, piv, eiv } = metrics(experience.rule, &experience.q, new);
        let (upper, lower, value) = (experience.bounds.upper, experience.bounds.lower, experience.value());
        // A bound below the rounding of V counts as that rounding, so that a ratio is a number.
        let scale = upper.max(experience_value::tolerance(0.0, value));
        for (kept, metric) in self.kept.iter_mut().zip([evb, piv, eiv]) {
            kept.above += u64::from(experience_value::excess(metric, upper, value) > 0.0);
            kept.below += u64::from(experience_value::shortfall(metric, lower, value) > 0.0);
            kept.ratios.push(metric.abs() / scale);
        }
    }

    /// What came out, metric by metric; nothing if nothing was seen.
    pub fn lines(&self) -> Vec<Line> {
        NAMES.into_iter().zip(&self.kept).filter_map(|(metric, kept)| kept.line(metric)).collect()
    }
}

/// One metric over several runs that differ in their seed: means over seeds with their intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineOverSeeds {
    pub metric: &'static str,
    /// Transitions of all runs together.
    pub transitions: usize,
    pub above: SeedInterval,
    pub below: SeedInterval,
    pub median: SeedInterval,
    pub p95: SeedInterval,
}

impl LineOverSeeds {
    /// Metric by metric. A run has one line for each metric.
    pub fn collect(runs: &[Vec<Line>]) -> Vec<Self> {
        let of_metric = |metric: &'static str| {
            let lines = || runs.iter().flatten().filter(move |line| line.metric == metric);
            let over =
                |number: fn(&Line) -> f64| SeedInterval::over(&lines().map(number).collect::<Vec<_>>());
            lines().next().map(|_| Self {
                metric,
                transitions: lines().map(|line| line.transitions).sum(),
                above: over(|line| line.above),
                below: over(|line| line.below),
                median: over(|line| line.median),
                p95: over(|line| line.p95),
            })
        };
        NAMES.into_iter().filter_map(of_metric).collect()
    }
}

impl Kept {
    fn line(&self, metric: &'static str) -> Option<Line> {
        let mut ratios = self.ratios.clone();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len().checked_sub(1)?;
        let at = |share: f64| ratios[(last as f64 * share).round() as usize];
        let share = |count: u64| count as f64 / ratios.len() as f64;
        Some(Line {
            metric,
            transitions: ratios.len(),
            above: share(self.above),
            below: share(self.below),
            median: at(0.5),
            p95: at(0.95),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_in_which_one_entry_became_its_target_gives_the_papers_metrics() {
        let (old, target) = ([1.0, 1.3, 0.2], 2.1);
        let new = [target, old[1], old[2]];
        for rule in [Rule::Hard, Rule::Soft(0.5)] {
            let experience = Experience::new(rule, (0, 0), &old, (0, 1.0), target, 1.0);
            let (real, paper) = (metrics(rule, &old, &new), experience.metrics);
            for (real, paper) in [(real.evb, paper.evb), (real.piv, paper.piv), (real.eiv, paper.eiv)] {
                assert!((real - paper).abs() < 1e-12, "{rule:?}: {real} and {paper}");
            }
        }
    }

    #[test]
    fn what_lies_outside_the_bounds_is_counted() {
        let old = [0.0, 0.0];
        let experience = || Experience::new(Rule::Soft(0.5), (0, 0), &old, (0, 1.0), 1.0, 1.0);
        let mut real = Real::default();
        real.add(&experience(), &[1.0, 0.0]); // as the theorems have it
        real.add(&experience(), &[10.0, 10.0]); // far too far, and the other action along
        real.add(&experience(), &[0.01, 0.0]); // a small part of the way
        real.add(&experience(), &[0.0, 0.0]); // not at all
        let [evb, piv, eiv] = real.lines().try_into().unwrap();
        assert_eq!((evb.metric, evb.transitions), ("evb", 4));
        assert_eq!((evb.above, evb.below, eiv.above, eiv.below), (0.25, 0.5, 0.25, 0.5));
        assert_eq!(piv.above, 0.0, "a row that moves as a whole leaves the policy alone");
        assert!(evb.p95 > 10.0 && evb.median < 1.0);
        assert!(Real::default().lines().is_empty());
    }

    #[test]
    fn every_seed_counts_alike_whatever_its_number_of_transitions() {
        let line = |metric, transitions, above| Line {
            metric,
            transitions,
            above,
            below: 0.0,
            median: 0.5,
            p95: 2.0,
        };
        let runs = [vec![line("evb", 10, 0.0), line("piv", 10, 0.1)], vec![line("evb", 90, 0.5)]];
        let [evb, piv] = LineOverSeeds::collect(&runs).try_into().unwrap();
        assert_eq!((evb.metric, evb.transitions, evb.above.mean), ("evb", 100, 0.25));
        assert!((evb.above.half.unwrap() - 12.706 * 0.25).abs() < 1e-12);
        assert_eq!((piv.metric, piv.above), ("piv", SeedInterval { mean: 0.1, half: None }));
        assert!(LineOverSeeds::collect(&[]).is_empty());
    }

    #[test]
    fn a_bound_of_zero_gives_a_finite_ratio() {
        let experience = Experience::new(Rule::Soft(0.5), (0, 0), &[1.0, 1.0], (0, 1.0), 1.0, 1.0);
        assert_eq!(experience.bounds.upper, 0.0);
        let mut real = Real::default();
        real.add(&experience, &[1.5, 1.0]);
        assert!(real.lines().iter().all(|line| line.median.is_finite() && line.above == 1.0));
    }
}
