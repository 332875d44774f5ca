//! Runs that differ only in their seed, taken together: their transitions, scores and rows.

use std::collections::HashMap;

use settings::units::grouped;

use super::SOLVED;
use super::examiner::{Successor, TransitionName};
use super::interval::SeedInterval;
use super::real::{Line, LineOverSeeds};
use super::runs::{Job, JobOutcome, Part, Played, Score};
use super::settings::FigureLearner;
use crate::experience::{Experience, Tally};

/// Rows of a group in `fig4.csv`, at most.
const ROWS_MAX: usize = 4_000;

/// Runs of one kind.
#[derive(Clone, Debug)]
pub struct Group {
    pub part: Part,
    pub learner: FigureLearner,
    /// Step size of Adam.
    pub learning_rate: f64,
    /// Number of runs.
    pub seeds: usize,
    /// The bounds, over all runs.
    pub tally: Tally,
    /// Scores of each seed; none for runs at another learning rate.
    pub scores: Vec<(u64, Vec<Score>)>,
    successors: HashMap<TransitionName, Successor>,
    /// The effects of real steps, run by run.
    real: Vec<Vec<Line>>,
}

/// A point of a curve over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CurvePoint {
    pub frames: u64,
    pub score: SeedInterval,
}

impl Group {
    /// Columns of [`Group::score_rows`].
    pub const SCORE_HEADER: [&'static str; 8] =
        ["preset", "algorithm", "double", "policy", "seed", "frames", "mean", "stderr"];

    /// Columns of [`Group::real_rows`].
    pub const REAL_HEADER: [&'static str; 13] = [
        "algorithm",
        "learning_rate",
        "seeds",
        "metric",
        "transitions",
        "above",
        "above_half",
        "below",
        "below_half",
        "median",
        "median_half",
        "p95",
        "p95_half",
    ];

    /// Columns that `fig4.csv` has behind those of [`Experience::header`].
    pub const SUCCESSOR_HEADER: [&'static str; 9] = [
        "preset",
        "algorithm",
        "double",
        "discount",
        "terminated",
        "next_q_0",
        "next_q_1",
        "next_online_q_0",
        "next_online_q_1",
    ];

    /// Groups runs by kind, in the order in which kinds first occur.
    pub fn collect(jobs: &[Job], outcomes: Vec<JobOutcome>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let same = |group: &Self| group.part == job.part && group.learner == job.learner;
            let index = groups.iter().position(same).unwrap_or_else(|| {
                groups.push(Self::of(job));
                groups.len() - 1
            });
            groups[index].add(job.seed(), outcome);
        }
        groups
    }

    fn of(job: &Job) -> Self {
        Self {
            part: job.part,
            learner: job.learner,
            learning_rate: job.resolved.settings.learning_rate,
            seeds: 0,
            tally: Tally::new(),
            scores: Vec::new(),
            successors: HashMap::new(),
            real: Vec::new(),
        }
    }

    fn add(&mut self, seed: u64, outcome: JobOutcome) {
        self.seeds += 1;
        self.tally.merge(outcome.tally);
        self.successors.extend(outcome.successors);
        self.real.push(outcome.real);
        if !outcome.curve.is_empty() {
            self.scores.push((seed, outcome.curve));
        }
    }

    /// Whether the group has the settings of a preset.
    pub fn is_preset(&self) -> bool {
        matches!(self.part, Part::Preset(_))
    }

    /// The settings, for people.
    pub fn settings(&self) -> String {
        match self.part {
            Part::Preset(source) => source.preset().to_owned(),
            Part::LearningRate(rate) => format!("paper-cartpole, learning rate {rate}"),
        }
    }

    /// The mean over seeds, point by point.
    pub fn curve(&self, played: Played) -> Vec<CurvePoint> {
        let of_run = |(_, scores): &(u64, Vec<Score>)| -> Vec<Score> {
            scores.iter().filter(|score| score.played == played).copied().collect()
        };
        let runs: Vec<Vec<Score>> = self.scores.iter().map(of_run).collect();
        let length = runs.iter().map(Vec::len).min().unwrap_or_default();
        let point = |index: usize| {
            let means: Vec<f64> = runs.iter().map(|run| run[index].mean).collect();
            CurvePoint { frames: runs[0][index].frames, score: SeedInterval::over(&means) }
        };
        (0..length).map(point).collect()
    }

    /// The last point of a curve.
    pub fn last(&self, played: Played) -> CurvePoint {
        self.curve(played).last().copied().unwrap_or_default()
    }

    /// How many seeds have a score of a kind for which `holds`.
    pub fn seeds_with(&self, holds: impl Fn(&Score) -> bool) -> usize {
        self.scores.iter().filter(|(_, scores)| scores.iter().any(&holds)).count()
    }

    /// Every score of every seed, for a file.
    pub fn score_rows(&self) -> Vec<Vec<String>> {
        let rows =
            self.scores.iter().flat_map(|(seed, scores)| scores.iter().map(move |score| (seed, score)));
        let FigureLearner { algorithm, double } = self.learner;
        rows.map(|(seed, score)| {
            let Score { frames, played, mean, stderr } = score;
            cells![self.settings(), algorithm, u8::from(double), played, seed, frames, mean, stderr]
        })
        .collect()
    }

    /// An even sample of the kept transitions, for a file.
    pub fn transition_rows(&self) -> impl Iterator<Item = Vec<String>> {
        let kept = self.tally.kept();
        kept.iter()
            .step_by(kept.len().div_ceil(ROWS_MAX).max(1))
            .map(|experience| self.transition(experience))
    }

    fn transition(&self, experience: &Experience) -> Vec<String> {
        let FigureLearner { algorithm, double } = self.learner;
        let Successor { discount, terminated, q, online_q } =
            &self.successors[&(experience.trial, experience.step)];
        let mut row = experience.row();
        row.extend(cells![self.settings(), algorithm, u8::from(double), discount, u8::from(*terminated)]);
        row.extend(q.iter().chain(online_q).map(f64::to_string));
        row
    }

    /// The effects of real steps, metric by metric.
    pub fn real(&self) -> Vec<LineOverSeeds> {
        LineOverSeeds::collect(&self.real)
    }

    /// The same for a file. A width is empty with one seed.
    pub fn real_rows(&self) -> Vec<Vec<String>> {
        let row = |line: LineOverSeeds| {
            let LineOverSeeds { metric, transitions, above, below, median, p95 } = line;
            let mut row = cells![self.learner.algorithm, self.learning_rate, self.seeds, metric, transitions];
            for SeedInterval { mean, half } in [above, below, median, p95] {
                row.extend([mean.to_string(), half.map_or(String::new(), |half| half.to_string())]);
            }
            row
        };
        self.real().into_iter().map(row).collect()
    }

    /// The same for people. DQN has no lower bound but 0, and PIV has none at all.
    pub fn real_table(&self) -> Vec<Vec<String>> {
        let percent = |share: SeedInterval| {
            let scaled = SeedInterval { mean: 100.0 * share.mean, half: share.half.map(|half| 100.0 * half) };
            format!("{}%", scaled.text(2))
        };
        let row = |line: LineOverSeeds| {
            let has_lower = self.learner.algorithm.has_soft_policy && line.metric != "piv";
            cells![
                self.learner.title(),
                self.learning_rate,
                line.metric.to_uppercase(),
                percent(line.above),
                if has_lower { percent(line.below) } else { "–".to_owned() },
                line.median.text(3),
                line.p95.text(3),
            ]
        };
        self.real().into_iter().map(row).collect()
    }

    /// Transitions as a row of a table.
    pub fn tally_row(&self) -> Vec<String> {
        let mut counted = self.tally.cells();
        // DQN has no lower bound that |PIV| could be below.
        if !self.learner.algorithm.has_soft_policy {
            counted[5] = "–".to_owned();
        }
        [cells![self.learner.title(), self.settings()], counted.to_vec()].concat()
    }

    /// The last score as a row of a table.
    pub fn last_row(&self, played: Played) -> Vec<String> {
        let last = self.last(played);
        let is_last = |score: &Score| score.played == played && score.frames == last.frames;
        let reached = self.seeds_with(|score| is_last(score) && score.mean >= SOLVED);
        cells![
            self.settings(),
            self.learner.title(),
            played,
            grouped(last.frames),
            last.score,
            format!("{reached} of {}", self.scores.len()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fig4::settings::{SOFT_DQN, Source};
    use settings::choices::EvaluationPolicy::{Greedy, Stochastic};

    fn group(means: &[f64]) -> Group {
        let score =
            |played, frames, mean| Score { frames, played: Played::Evaluation(played), mean, stderr: 7.0 };
        let curve = |mean: f64| {
            vec![score(Stochastic, 100, mean / 2.0), score(Greedy, 50, 200.0), score(Greedy, 100, mean)]
        };
        Group {
            part: Part::Preset(Source::Paper),
            learner: SOFT_DQN,
            learning_rate: 0.005,
            seeds: means.len(),
            tally: Tally::new(),
            scores: means.iter().enumerate().map(|(seed, mean)| (seed as u64, curve(*mean))).collect(),
            successors: HashMap::new(),
            real: Vec::new(),
        }
    }

    #[test]
    fn the_interval_of_a_point_is_over_seeds() {
        let last = |means: &[f64]| group(means).last(Played::Evaluation(Greedy));
        assert_eq!(
            last(&[100.0]),
            CurvePoint { frames: 100, score: SeedInterval { mean: 100.0, half: None } }
        );
        let CurvePoint { score, .. } = last(&[100.0, 200.0]);
        assert_eq!(score.mean, 150.0);
        assert!((score.half.unwrap() - 12.706 * 50.0).abs() < 1e-9);
    }

    #[test]
    fn seeds_that_reached_the_score_at_the_end_are_counted() {
        let reached = |policy| group(&[100.0, 200.0, 195.0]).last_row(Played::Evaluation(policy))[5].clone();
        assert_eq!(reached(Greedy), "2 of 3");
        assert_eq!(reached(Stochastic), "0 of 3");
    }
}
