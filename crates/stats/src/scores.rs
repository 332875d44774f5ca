//! The scores of one algorithm: some runs of each task.

use rand::{Rng, RngExt};

/// Finite scores of at least one run of each of at least one task.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    tasks: Vec<Vec<f64>>,
}

/// Why scores cannot be summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoresError {
    #[error("there is no task")]
    NoTask,
    /// The task's position.
    #[error("task {0} has no run")]
    NoRun(usize),
    /// The task's position.
    #[error("task {0} has a score that is not a finite number")]
    NotFinite(usize),
}

impl Scores {
    /// The runs' scores, for each task.
    pub fn new(tasks: Vec<Vec<f64>>) -> Result<Self, ScoresError> {
        if tasks.is_empty() {
            return Err(ScoresError::NoTask);
        }
        for (index, runs) in tasks.iter().enumerate() {
            if runs.is_empty() {
                return Err(ScoresError::NoRun(index));
            }
            if !runs.iter().all(|score| score.is_finite()) {
                return Err(ScoresError::NotFinite(index));
            }
        }
        Ok(Self { tasks })
    }

    /// The runs' scores, for each task.
    pub fn tasks(&self) -> &[Vec<f64>] {
        &self.tasks
    }

    /// All scores, task by task.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        self.tasks.iter().flatten().copied()
    }

    /// The number of runs of the task that has fewest.
    pub fn runs_min(&self) -> usize {
        self.tasks.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// As many runs of each task, drawn with replacement among the runs of that task.
    pub fn resampled(&self, rng: &mut impl Rng) -> Self {
        let draw = |runs: &Vec<f64>, rng: &mut _| -> Vec<f64> {
            (0..runs.len()).map(|_| runs[RngExt::random_range(rng, 0..runs.len())]).collect()
        };
        Self { tasks: self.tasks.iter().map(|runs| draw(runs, rng)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn empty_and_infinite_scores_are_refused() {
        assert_eq!(Scores::new(Vec::new()), Err(ScoresError::NoTask));
        assert_eq!(Scores::new(vec![vec![1.0], Vec::new()]), Err(ScoresError::NoRun(1)));
        assert_eq!(Scores::new(vec![vec![1.0, f64::NAN]]), Err(ScoresError::NotFinite(0)));
    }

    #[test]
    fn runs_are_drawn_within_their_task_only() {
        let scores = Scores::new(vec![vec![1.0, 2.0, 3.0], vec![10.0, 20.0]]).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut seen = [false; 2];
        for _ in 0..50 {
            let drawn = scores.resampled(&mut rng);
            let lengths: Vec<usize> = drawn.tasks().iter().map(Vec::len).collect();
            assert_eq!(lengths, [3, 2]);
            assert!(drawn.tasks()[0].iter().all(|score| scores.tasks()[0].contains(score)));
            assert!(drawn.tasks()[1].iter().all(|score| scores.tasks()[1].contains(score)));
            seen[0] |= drawn.tasks()[1] == [10.0, 10.0];
            seen[1] |= drawn.tasks()[1] == [10.0, 20.0];
        }
        assert_eq!(seen, [true; 2], "with replacement, and not always the same run");
    }
}
