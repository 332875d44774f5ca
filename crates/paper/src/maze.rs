//! Q-learning and soft Q-learning in the maze: the learner of figures 2 and 3.
//!
//! A table of Q-values, one update for each step, one experience for each update. The trials are the paper's 50, and
//! end at the goal or by truncation: at a high temperature the maze is never left for good (see the README).

use envs::grid::{ACTIONS, Grid, Move};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use value::{hard, soft, target};

use crate::experience::{Experience, Rule};
use crate::statistics::mean_and_error;

/// γ.
pub const DISCOUNT: f64 = 0.99;
/// Trials of one run.
pub const TRIALS: u64 = 50;
/// Steps after which a trial is cut off where it can be solved.
pub const STEPS_MAX: u64 = 10_000;
/// ε of Q-learning in the last trial; it is 1 in the first and falls by the same factor from trial to trial.
pub const EPSILON_FINAL: f64 = 0.001;

/// One way to learn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// What is learned.
    pub rule: Rule,
    /// α.
    pub rate: f64,
    /// How many trials.
    pub trials: u64,
    /// Steps after which a trial is cut off.
    pub steps_max: u64,
}

impl Way {
    /// Learns, shows each experience, and says how many steps each trial took.
    pub fn learn(&self, grid: &Grid, rng: &mut ChaCha8Rng, mut watch: impl FnMut(Experience)) -> Vec<u64> {
        let mut q = vec![[0.0; ACTIONS.len()]; grid.cells()];
        let mut lengths = Vec::new();
        for trial in 0..self.trials {
            let epsilon = EPSILON_FINAL.powf(trial as f64 / (self.trials - 1).max(1) as f64);
            let mut cell = grid.start();
            let mut steps = 0;
            while steps < self.steps_max {
                let action = self.act(&q[cell], epsilon, rng);
                let Move { next, reward } = grid.step(cell, action);
                let bootstrap = next.map(|next| self.rule.value(&q[next]));
                // One step has no entropy of its own, so the target is the same sum for both rules.
                let target = target::n_step(&[reward], DISCOUNT, bootstrap);
                let experience =
                    Experience::new(self.rule, (trial, steps), &q[cell], (action, reward), target, self.rate);
                q[cell][action] += experience.change();
                watch(experience);
                steps += 1;
                match next {
                    Some(next) => cell = next,
                    None => break,
                }
            }
            lengths.push(steps);
        }
        lengths
    }

    fn act(&self, q: &[f64; ACTIONS.len()], epsilon: f64, rng: &mut ChaCha8Rng) -> usize {
        match self.rule {
            Rule::Hard if rng.random::<f64>() < epsilon => rng.random_range(0..q.len()),
            Rule::Hard => {
                let best: Vec<usize> = (0..q.len()).filter(|&action| q[action] == hard::value(q)).collect();
                best[rng.random_range(0..best.len())]
            }
            Rule::Soft(temperature) => {
                let mut policy = [0.0; ACTIONS.len()];
                soft::policy(q, temperature, &mut policy);
                let mut left: f64 = rng.random();
                policy
                    .iter()
                    .position(|probability| {
                        left -= probability;
                        left < 0.0
                    })
                    .unwrap_or(hard::greedy(q))
            }
        }
    }
}

/// Steps to the goal, trial by trial, over several seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Which way.
    pub way: Way,
    /// Over how many seeds.
    pub seeds: u64,
    /// Mean and standard error of each trial's steps.
    pub steps: Vec<(f64, f64)>,
}

impl Curve {
    /// Learns so many times, each with a seed of its own.
    pub fn learn(way: Way, seeds: u64, seed: u64, mut watch: impl FnMut(Experience)) -> Self {
        let grid = Grid::maze();
        let runs: Vec<Vec<u64>> = (0..seeds)
            .map(|number| {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream(number);
                way.learn(&grid, &mut rng, |mut experience| {
                    // Trials are numbered on from run to run.
                    experience.trial += number * way.trials;
                    watch(experience);
                })
            })
            .collect();
        let of_trial = |trial: usize| runs.iter().map(|run| run[trial] as f64).collect::<Vec<_>>();
        let steps = (0..way.trials as usize).map(|trial| mean_and_error(&of_trial(trial))).collect();
        Self { way, seeds, steps }
    }

    /// Rows of a file of curves: temperature, alpha, trial, seeds, mean_steps, stderr.
    pub fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let Way { rule, rate, .. } = self.way;
        self.steps.iter().enumerate().map(move |(trial, (mean, error))| {
            cells![rule.temperature(), rate, trial, self.seeds, mean, error]
        })
    }

    /// Names of these columns.
    pub const HEADER: [&'static str; 6] = ["temperature", "alpha", "trial", "seeds", "mean_steps", "stderr"];

    /// Mean steps of the last fifth of the trials.
    pub fn last(&self) -> f64 {
        let last = &self.steps[self.steps.len() - (self.steps.len() / 5).max(1)..];
        last.iter().map(|(mean, _)| mean).sum::<f64>() / last.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_steps(rule: Rule) -> f64 {
        Curve::learn(Way { rule, rate: 1.0, trials: TRIALS, steps_max: STEPS_MAX }, 4, 0, |_| {}).last()
    }

    #[test]
    fn both_learners_find_the_short_way() {
        let shortest = Grid::maze().distances()[Grid::maze().start()].map_or(0.0, f64::from);
        assert!(last_steps(Rule::Hard) < 1.5 * shortest);
        assert!(last_steps(Rule::Soft(0.003)) < 2.0 * shortest);
    }

    #[test]
    fn at_a_temperature_of_100_the_maze_is_not_solved() {
        let way = Way { rule: Rule::Soft(100.0), rate: 1.0, trials: 3, steps_max: STEPS_MAX };
        let mut most = 0.0f64;
        let curve = Curve::learn(way, 1, 0, |experience| most = most.max(experience.value()));
        assert!(curve.steps.iter().all(|(steps, _)| *steps > 20.0));
        assert!(most > 1_000.0, "entropy pays far more than the goal: {most}");
    }
}
