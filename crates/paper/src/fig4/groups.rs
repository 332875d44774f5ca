//! Runs that differ in nothing but their seed, taken together: their transitions, their scores, their rows.

use settings::algorithms::Algorithm;
use settings::choices::EvaluationPolicy;
use settings::units::grouped;

use super::real::{Line, Real};
use super::runs::{Job, JobOutcome, Part, Score};
use crate::experience::Tally;
use crate::statistics::mean_and_error;

/// Runs of one kind.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they are for.
    pub part: Part,
    /// What is learned.
    pub algorithm: Algorithm,
    /// Adam's step size.
    pub learning_rate: f64,
    /// How many runs.
    pub seeds: usize,
    /// The theorems, over all runs.
    pub tally: Tally,
    /// What steps really did, over all runs.
    pub real: Real,
    /// Evaluations of each seed; none if these runs are not for their curve.
    pub scores: Vec<(u64, Vec<Score>)>,
}

/// A point of a curve over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// After so many frames.
    pub frames: u64,
    /// Mean over seeds.
    pub mean: f64,
    /// Standard error over seeds; over games if there is one seed.
    pub stderr: f64,
}

impl Group {
    /// Columns of [`Group::score_rows`].
    pub const SCORE_HEADER: [&'static str; 7] =
        ["settings", "algorithm", "policy", "seed", "frames", "mean", "stderr"];

    /// Columns of [`Group::real_rows`].
    pub const REAL_HEADER: [&'static str; 9] =
        ["algorithm", "learning_rate", "seeds", "metric", "transitions", "above", "below", "median", "p95"];

    /// Puts runs of one kind together, in the order in which kinds first come.
    pub fn collect(jobs: &[Job], outcomes: Vec<JobOutcome>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let same = |group: &Self| group.part == job.part && group.algorithm == job.algorithm();
            let place = groups.iter().position(same).unwrap_or_else(|| {
                groups.push(Self::of(job));
                groups.len() - 1
            });
            groups[place].add(job.seed(), outcome);
        }
        groups
    }

    fn of(job: &Job) -> Self {
        Self {
            part: job.part,
            algorithm: job.algorithm(),
            learning_rate: job.resolved.settings.learning_rate,
            seeds: 0,
            tally: Tally::new(),
            real: Real::default(),
            scores: Vec::new(),
        }
    }

    fn add(&mut self, seed: u64, outcome: JobOutcome) {
        self.seeds += 1;
        self.tally.merge(outcome.tally);
        self.real.merge(outcome.real);
        if !outcome.curve.is_empty() {
            self.scores.push((seed, outcome.curve));
        }
    }

    /// Whose settings, as in files.
    pub fn settings(&self) -> &'static str {
        match self.part {
            Part::Appendix => "appendix",
            Part::Ours => "ours",
            Part::LearningRate(_) => "appendix, other learning rate",
        }
    }

    /// The mean over seeds, evaluation by evaluation.
    pub fn curve(&self, policy: EvaluationPolicy) -> Vec<Point> {
        let of_policy = |scores: &[Score]| -> Vec<Score> {
            scores.iter().filter(|score| score.policy == policy).copied().collect()
        };
        let runs: Vec<Vec<Score>> = self.scores.iter().map(|(_, scores)| of_policy(scores)).collect();
        let length = runs.iter().map(Vec::len).min().unwrap_or_default();
        let point = |index: usize| {
            let scores: Vec<Score> = runs.iter().map(|run| run[index]).collect();
            let means: Vec<f64> = scores.iter().map(|score| score.mean).collect();
            let (mean, stderr) = match scores.as_slice() {
                [one] => (one.mean, one.stderr),
                _ => mean_and_error(&means),
            };
            Point { frames: scores[0].frames, mean, stderr }
        };
        (0..length).map(point).collect()
    }

    /// Every evaluation by a policy, of every seed.
    pub fn evaluations(&self, policy: EvaluationPolicy) -> impl Iterator<Item = &Score> {
        self.scores.iter().flat_map(|(_, scores)| scores).filter(move |score| score.policy == policy)
    }

    /// Every evaluation of every seed, for a file.
    pub fn score_rows(&self) -> Vec<Vec<String>> {
        let rows =
            self.scores.iter().flat_map(|(seed, scores)| scores.iter().map(move |score| (seed, score)));
        rows.map(|(seed, score)| {
            let Score { frames, policy, mean, stderr } = score;
            cells![self.settings(), self.algorithm, policy, seed, frames, mean, stderr]
        })
        .collect()
    }

    /// What steps really did, for a file.
    pub fn real_rows(&self) -> Vec<Vec<String>> {
        let (algorithm, rate, seeds) = (self.algorithm, self.learning_rate, self.seeds);
        let row = |line: Line| {
            let Line { metric, transitions, above, below, median, p95 } = line;
            cells![algorithm, rate, seeds, metric, transitions, above, below, median, p95]
        };
        self.real.lines().into_iter().map(row).collect()
    }

    /// The same for people. Plain DQN has no lower bound but 0, and PIV has none at all.
    pub fn real_table(&self) -> Vec<Vec<String>> {
        let percent = |share: f64| format!("{:.2}%", 100.0 * share);
        let row = |line: Line| {
            let has_lower = self.algorithm.has_soft_policy && line.metric != "piv";
            cells![
                self.algorithm,
                self.learning_rate,
                line.metric.to_uppercase(),
                percent(line.above),
                if has_lower { percent(line.below) } else { "–".to_owned() },
                format!("{:.3}", line.median),
                format!("{:.3}", line.p95),
            ]
        };
        self.real.lines().into_iter().map(row).collect()
    }

    /// Transitions as a row of a table.
    pub fn tally_row(&self) -> Vec<String> {
        let settings = match self.part {
            Part::LearningRate(rate) => format!("appendix, learning rate {rate}"),
            _ => self.settings().to_owned(),
        };
        let mut counted = self.tally.cells();
        // Plain DQN has no lower bound that |PIV| could be below.
        if !self.algorithm.has_soft_policy {
            counted[5] = "–".to_owned();
        }
        [cells![self.algorithm, settings], counted.to_vec()].concat()
    }

    /// The last evaluation as a row of a table; `solved` is the score that counts.
    pub fn last_row(&self, policy: EvaluationPolicy, solved: f64) -> Vec<String> {
        let last = self.curve(policy).last().copied().unwrap_or_default();
        let of_seed = |scores: &[Score]| {
            scores.iter().rev().find(|score| score.policy == policy).map_or(0.0, |score| score.mean)
        };
        let reached = self.scores.iter().filter(|(_, scores)| of_seed(scores) >= solved).count();
        cells![
            self.algorithm,
            self.settings(),
            policy,
            grouped(last.frames),
            format!("{:.1}", last.mean),
            format!("{:.1}", last.stderr),
            format!("{reached} of {}", self.scores.len()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::choices::EvaluationPolicy::{Greedy, Stochastic};

    fn group(means: &[f64]) -> Group {
        let score = |policy, mean| Score { frames: 100, policy, mean, stderr: 7.0 };
        let curve = |mean: f64| vec![score(Stochastic, mean / 2.0), score(Greedy, mean)];
        Group {
            part: Part::Appendix,
            algorithm: settings::algorithms::SOFT_DQN,
            learning_rate: 0.005,
            seeds: means.len(),
            tally: Tally::new(),
            real: Real::default(),
            scores: means.iter().enumerate().map(|(seed, mean)| (seed as u64, curve(*mean))).collect(),
        }
    }

    #[test]
    fn the_error_is_over_seeds_and_over_games_if_there_is_one() {
        let point = |means: &[f64]| group(means).curve(Greedy)[0];
        assert_eq!(point(&[100.0]), Point { frames: 100, mean: 100.0, stderr: 7.0 });
        assert_eq!(point(&[100.0, 200.0]), Point { frames: 100, mean: 150.0, stderr: 50.0 });
    }

    #[test]
    fn seeds_that_reached_the_score_are_counted() {
        assert_eq!(group(&[100.0, 200.0, 195.0]).last_row(Greedy, 195.0)[6], "2 of 3");
        assert_eq!(group(&[100.0, 200.0, 195.0]).last_row(Stochastic, 195.0)[6], "0 of 3");
    }
}
