//! One replayed experience: what it was worth, and its bounds.
//!
//! Every figure from the second on is a collection of these. The theorems are true of each by construction, since Q_new
//! differs from Q in one number; so each is checked as it comes, all of them, as a check of our arithmetic, and a violation
//! is an error. The files keep an even sample, since no one reads a million rows.

use std::fmt;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use settings::units::grouped;
use value::experience_value::{self, Bounds, ExperienceValue};
use value::{hard, soft, target};

/// Which of the paper's two learners.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rule {
    /// Q-learning: the value is the best action's.
    Hard,
    /// Soft Q-learning at a temperature.
    Soft(f64),
}

impl Rule {
    /// V(s).
    pub fn value(self, q: &[f64]) -> f64 {
        match self {
            Rule::Hard => hard::value(q),
            Rule::Soft(temperature) => soft::value(q, temperature),
        }
    }

    /// β; plain Q-learning has none and 0 stands for it.
    pub fn temperature(self) -> f64 {
        match self {
            Rule::Hard => 0.0,
            Rule::Soft(temperature) => temperature,
        }
    }
}

/// A transition at the moment of its replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Experience {
    /// What is learned.
    pub rule: Rule,
    /// Which run or trial it is from.
    pub trial: u64,
    /// Its number there.
    pub step: u64,
    /// Q(s,·) before.
    pub q: Vec<f64>,
    /// The action taken.
    pub action: usize,
    /// The reward that came.
    pub reward: f64,
    /// What Q(s,a) moves towards.
    pub target: f64,
    /// How much of the way it goes: α.
    pub rate: f64,
    /// EVB, PIV and EIV.
    pub metrics: ExperienceValue,
    /// What the theorems say of them.
    pub bounds: Bounds,
    /// Its place in a table of Q-values; a network's experience has none.
    pub table: Option<TableStep>,
}

/// What a tabular experience has and a network's has not: numbered states, and the values of the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStep {
    /// The name of the setup that it was learned with.
    pub variant: &'static str,
    pub episode: u64,
    pub state: usize,
    pub next_state: usize,
    /// Q(s',·) before the update.
    pub next_q: Vec<f64>,
    /// Whether the next state is the goal.
    pub terminated: bool,
    /// Whether V(s') is left out of the target in that case.
    pub terminal_mask: bool,
}

impl Experience {
    /// Computes metrics and bounds.
    pub fn new(
        rule: Rule,
        (trial, step): (u64, u64),
        q: &[f64],
        (action, reward): (usize, f64),
        target: f64,
        rate: f64,
    ) -> Self {
        let change = rate * target::td_error(q[action], target);
        let (metrics, bounds) = match rule {
            Rule::Hard => (experience_value::hard(q, action, change), experience_value::bounds_hard(change)),
            Rule::Soft(temperature) => (
                experience_value::soft(q, action, change, temperature),
                experience_value::bounds_soft(q, action, change, temperature),
            ),
        };
        let q = q.to_vec();
        Self { rule, trial, step, q, action, reward, target, rate, metrics, bounds, table: None }
    }

    /// TD error.
    pub fn td(&self) -> f64 {
        target::td_error(self.q[self.action], self.target)
    }

    /// α·TD: how far Q(s,a) moves.
    pub fn change(&self) -> f64 {
        self.rate * self.td()
    }

    /// V(s) before.
    pub fn value(&self) -> f64 {
        self.rule.value(&self.q)
    }

    /// By how much the nearest bound is violated; at most 0 if none is.
    pub fn violation(&self) -> f64 {
        self.bounds.violation(&self.metrics, self.value())
    }

    /// Whether its bound is more than what rounding may do to it: only then could it be seen to break one.
    pub fn is_telling(&self) -> bool {
        self.bounds.upper > experience_value::tolerance(self.bounds.upper, self.value())
    }

    /// How far the nearest metric lies beyond a bound, as a share of that bound; negative if all keep away from theirs.
    pub fn relative_excess(&self) -> f64 {
        let ExperienceValue { evb, piv, eiv } = self.metrics;
        let Bounds { upper, lower } = self.bounds;
        let above = [evb, piv, eiv].map(|metric| (metric.abs() - upper) / upper);
        let below = [evb, eiv].map(|metric| (lower - metric.abs()) / lower);
        let below = below.into_iter().filter(|_| lower > 0.0);
        above.into_iter().chain(below).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Whether |PIV| lies below the lower bound of the other two.
    pub fn policy_improves_less(&self) -> bool {
        experience_value::shortfall(self.metrics.piv, self.bounds.lower, self.value()) > 0.0
    }

    /// Names of what [`Experience::row`] holds, for states of so many actions.
    pub fn header(actions: usize) -> Vec<String> {
        let first = ["trial", "step", "temperature", "alpha"].map(str::to_owned);
        let q = (0..actions).map(|action| format!("q_{action}"));
        let last = ["action", "reward"].into_iter().chain(Self::METRICS).map(str::to_owned);
        first.into_iter().chain(q).chain(last).collect()
    }

    /// Names of what [`Experience::metric_cells`] holds.
    pub const METRICS: [&'static str; 9] =
        ["target", "td", "change", "evb", "piv", "eiv", "upper", "lower", "value"];

    /// What is computed from Q, the target, α and β, as text, beginning with the target.
    pub fn metric_cells(&self) -> Vec<String> {
        let ExperienceValue { evb, piv, eiv } = self.metrics;
        let Bounds { upper, lower } = self.bounds;
        cells![self.target, self.td(), self.change(), evb, piv, eiv, upper, lower, self.value()]
    }

    /// Itself as text; numbers come back to the last bit.
    pub fn row(&self) -> Vec<String> {
        let mut row = vec![self.trial.to_string(), self.step.to_string()];
        row.extend([self.rule.temperature(), self.rate].map(|number| number.to_string()));
        row.extend(self.q.iter().map(f64::to_string));
        row.extend(cells![self.action, self.reward]);
        row.extend(self.metric_cells());
        row
    }
}

/// Names the transition, for the error that ends a run.
impl fmt::Display for Experience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trial, step, q, action, reward, target, rate, metrics, bounds, rule, table } = self;
        write!(f, "trial {trial}, ")?;
        if let Some(TableStep { variant, episode, state, next_state, .. }) = table {
            write!(f, "{variant}, episode {episode}, state {state} to {next_state}, ")?;
        }
        write!(
            f,
            "step {step}: {rule:?}, Q {q:?}, action {action}, reward {reward}, target {target}, \
             alpha {rate}, {metrics:?}, {bounds:?}"
        )
    }
}

/// How many rows a file keeps, about.
const KEPT_MAX: usize = 10_000;

/// A metric that comes this near to its bound, as a share of it, lies on it.
const ON_BOUND: f64 = 1e-9;

/// All experiences of an experiment: counted and checked one by one, an even sample kept of those that moved a value.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many there were.
    pub count: u64,
    /// How many would show an error of arithmetic: their bound is more than rounding.
    pub telling: u64,
    /// How many violate a bound.
    pub violations: u64,
    /// The largest excess of those that are telling, as a share of the bound; negative if none was reached.
    pub largest_excess: f64,
    /// How many of those that are telling had |EVB| on the upper bound.
    pub on_bound: u64,
    /// How many had |PIV| below the lower bound.
    pub policy_improves_less: u64,
    /// How many had an |EIV| that was neither α·|TD| nor 0.
    pub in_between: u64,
    /// How many moved a value.
    moved: u64,
    /// Every so many of these, one is kept.
    stride: u64,
    kept: Vec<Experience>,
    /// The one that violates a bound by most, and by how much.
    worst: Option<(f64, Experience)>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { largest_excess: f64::NEG_INFINITY, stride: 1, ..Self::default() }
    }

    /// Columns of [`Tally::cells`].
    pub const COLUMNS: [&'static str; 6] = [
        "transitions",
        "telling",
        "violations",
        "largest excess",
        "on the bound",
        "PIV below the lower bound",
    ];

    /// What was counted, for a row of a table.
    pub fn cells(&self) -> [String; 6] {
        let Self { count, telling, violations, on_bound, policy_improves_less: less, .. } = *self;
        let [count, telling, violations, on_bound, less] =
            [count, telling, violations, on_bound, less].map(grouped);
        [count, telling, violations, format!("{:.1e}", self.largest_excess), on_bound, less]
    }

    /// Looks at one.
    pub fn add(&mut self, experience: Experience) {
        let (violation, upper) = (experience.violation(), experience.bounds.upper);
        let on = |metric: f64| (metric.abs() - upper).abs() <= ON_BOUND * upper;
        self.count += 1;
        self.violations += u64::from(violation > 0.0);
        self.policy_improves_less += u64::from(experience.policy_improves_less());
        self.in_between += u64::from(experience.metrics.eiv != 0.0 && !on(experience.metrics.eiv));
        if experience.is_telling() {
            self.telling += 1;
            self.on_bound += u64::from(on(experience.metrics.evb));
            self.largest_excess = self.largest_excess.max(experience.relative_excess());
        }
        if violation > self.worst.as_ref().map_or(0.0, |(worst, _)| *worst) {
            self.worst = Some((violation, experience.clone()));
        }
        if experience.change() == 0.0 {
            return;
        }
        if self.moved.is_multiple_of(self.stride) {
            self.kept.push(experience);
            if self.kept.len() > KEPT_MAX {
                self.thin();
            }
        }
        self.moved += 1;
    }

    /// Takes over what another has seen, as if it had come after: runs side by side have a tally each.
    pub fn merge(&mut self, mut other: Tally) {
        while self.stride < other.stride {
            self.thin();
        }
        while other.stride < self.stride {
            other.thin();
        }
        self.kept.append(&mut other.kept);
        while self.kept.len() > KEPT_MAX {
            self.thin();
        }
        self.largest_excess = self.largest_excess.max(other.largest_excess);
        let by = |worst: &Option<(f64, Experience)>| worst.as_ref().map_or(0.0, |(by, _)| *by);
        if by(&other.worst) > by(&self.worst) {
            self.worst = other.worst;
        }
        self.count += other.count;
        self.telling += other.telling;
        self.moved += other.moved;
        self.violations += other.violations;
        self.on_bound += other.on_bound;
        self.policy_improves_less += other.policy_improves_less;
        self.in_between += other.in_between;
    }

    /// Keeps every other one of those that are kept.
    fn thin(&mut self) {
        let mut index = 0;
        self.kept.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        self.stride *= 2;
    }

    /// Those that were kept: every so many, evenly.
    pub fn kept(&self) -> &[Experience] {
        &self.kept
    }

    /// An error that names the transition, if a bound was violated.
    pub fn check(&self) -> Result<()> {
        match &self.worst {
            Some((_, worst)) => {
                bail!(
                    "{} of {} transitions violate a bound; the worst is {worst}",
                    self.violations,
                    self.count
                )
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experience(step: u64, target: f64) -> Experience {
        Experience::new(Rule::Soft(0.5), (0, step), &[1.0, 2.0], (0, 0.0), target, 1.0)
    }

    #[test]
    fn a_tally_keeps_an_even_sample_and_counts_all() {
        let mut tally = Tally::new();
        for step in 0..100_000 {
            tally.add(experience(step, 3.0 + step as f64 * 1e-6));
        }
        assert_eq!((tally.count, tally.telling, tally.violations), (100_000, 100_000, 0));
        assert!(tally.largest_excess <= 1e-12, "{}", tally.largest_excess);
        assert!(tally.kept().len() <= KEPT_MAX && tally.kept().len() > KEPT_MAX / 4);
        let steps: Vec<u64> = tally.kept().iter().map(|kept| kept.step).collect();
        assert!(steps.windows(2).all(|pair| pair[1] - pair[0] == steps[1] - steps[0]));
        tally.check().unwrap();
    }

    #[test]
    fn what_is_below_rounding_is_not_said_to_lie_on_its_bound() {
        let hard = |target: f64| Experience::new(Rule::Hard, (0, 0), &[1.0, 2.0], (1, 0.0), target, 1.0);
        let mut tally = Tally::new();
        tally.add(hard(3.0));
        tally.add(hard(2.0 + f64::EPSILON * 2.0));
        assert_eq!((tally.count, tally.telling, tally.on_bound), (2, 1, 1));
    }

    #[test]
    fn what_moves_nothing_is_counted_and_not_kept() {
        let mut tally = Tally::new();
        for step in 0..10 {
            tally.add(experience(step, if step % 2 == 0 { 1.0 } else { 3.0 }));
        }
        assert_eq!((tally.count, tally.telling, tally.on_bound), (10, 5, 0));
        assert!(tally.kept().iter().map(|kept| kept.step).eq([1, 3, 5, 7, 9]));
    }

    #[test]
    fn a_violated_bound_is_an_error_that_names_the_transition() {
        let mut tally = Tally::new();
        let mut broken = experience(7, 3.0);
        broken.metrics.evb = 2.0 * broken.bounds.upper;
        tally.add(broken);
        let error = tally.check().unwrap_err().to_string();
        assert!(error.contains("1 of 1 transitions") && error.contains("step 7"), "{error}");
    }

    #[test]
    fn merged_tallies_count_all_and_keep_an_even_sample_of_both() {
        let tally = |steps: std::ops::Range<u64>| {
            let mut tally = Tally::new();
            steps.for_each(|step| tally.add(experience(step, 3.0)));
            tally
        };
        let mut both = tally(0..50_000);
        both.merge(tally(50_000..60_000));
        assert_eq!((both.count, both.violations), (60_000, 0));
        assert!(both.kept().len() <= KEPT_MAX && both.kept().len() > KEPT_MAX / 4);
        let late = both.kept().iter().filter(|kept| kept.step >= 50_000).count();
        assert_eq!(late, both.kept().len() / 6);
        let mut empty = Tally::new();
        empty.merge(tally(0..10));
        assert_eq!((empty.count, empty.kept().len()), (10, 10));
        assert_eq!(empty.largest_excess, tally(0..10).largest_excess);
    }

    #[test]
    fn a_row_comes_back_to_the_last_bit() {
        let experience = experience(1, 0.1 + 0.2);
        let (header, row) = (Experience::header(2), experience.row());
        assert_eq!(header.len(), row.len());
        let column = |name: &str| {
            row[header.iter().position(|column| column == name).unwrap()].parse::<f64>().unwrap()
        };
        assert_eq!(column("target").to_bits(), (0.1f64 + 0.2).to_bits());
        assert_eq!(column("piv").to_bits(), experience.metrics.piv.to_bits());
    }
}
