//! Q-learning and soft Q-learning in the maze: the learners of figures 2 and 3.
//!
//! A table of Q-values, one update for each step, one experience for each update. The main experiment of each figure uses
//! the schedules of the authors' notebooks: 50 episodes of at most 2,500 steps, Q from U(0, 1) in every state, α 1, and a
//! target that bootstraps from the goal too. A [`Setup`] that differs is a variant of ours.

mod runs;
mod table;
mod writing;

use envs::grid::{ACTIONS, Grid, Move};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use value::{hard, soft, target};

use crate::experience::{Experience, Rule, TableStep};
pub use runs::{Runs, learn_all};
pub use table::{header, row};
pub use writing::{describe_lengths, learning, runs_table, write};

/// γ.
pub const DISCOUNT: f64 = 0.99;
/// Episodes of one run.
pub const EPISODES: u64 = 50;
/// Steps after which an episode is truncated: 100 for each cell.
pub const STEPS_MAX: u64 = 2_500;
/// Soft Q-learning acts at random for this many episodes.
const RANDOM_EPISODES: u64 = 5;
/// Q-learning's ε never falls below this.
const EPSILON_MIN: f64 = 0.001;
/// A tenth of the number of cells.
const EPSILON_DECAY: f64 = 2.5;

/// One way to learn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// The name in files and tables; [`Setup::MAIN`] for the authors' settings.
    pub variant: &'static str,
    pub rule: Rule,
    /// α.
    pub rate: f64,
    /// Whether the target of a step into the goal is the reward alone.
    pub terminal_mask: bool,
}

/// One finished episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MazeEpisode {
    pub steps: u64,
    /// Whether it ended at the goal and not by truncation.
    pub terminated: bool,
}

impl Setup {
    /// The name of the main experiment.
    pub const MAIN: &'static str = "main";

    /// The authors' settings.
    pub const fn main(rule: Rule) -> Self {
        Self { variant: Self::MAIN, rule, rate: 1.0, terminal_mask: false }
    }

    /// Learns through all episodes of the run with that number and shows each experience.
    pub fn learn(
        &self,
        run: u64,
        rng: &mut ChaCha8Rng,
        mut watch: impl FnMut(Experience),
    ) -> Vec<MazeEpisode> {
        let grid = Grid::maze();
        let random_q = |_| std::array::from_fn(|_| rng.random());
        let mut q: Vec<[f64; ACTIONS.len()]> = (0..grid.states()).map(random_q).collect();
        let mut episodes = Vec::new();
        for episode in 0..EPISODES {
            let (mut state, mut steps, mut terminated) = (grid.start(), 0, false);
            while steps < STEPS_MAX && !terminated {
                let action = self.act(&q[state], episode, rng);
                let moved = grid.step(state, action);
                let experience = self.experience((run, episode, steps), (state, action, moved), &q);
                q[state][action] += experience.change();
                watch(experience);
                (state, terminated) = (moved.next, moved.terminated);
                steps += 1;
            }
            episodes.push(MazeEpisode { steps, terminated });
        }
        episodes
    }

    fn experience(
        &self,
        (run, episode, step): (u64, u64, u64),
        (state, action, moved): (usize, usize, Move),
        q: &[[f64; ACTIONS.len()]],
    ) -> Experience {
        let Move { next, reward, terminated } = moved;
        let bootstrap = (!(terminated && self.terminal_mask)).then(|| self.rule.value(&q[next]));
        // A target of one step has no entropy term of its own, so both rules share this sum.
        let target = target::n_step(&[reward], DISCOUNT, bootstrap);
        let table = TableStep {
            variant: self.variant,
            episode,
            state,
            next_state: next,
            next_q: q[next].to_vec(),
            terminated,
            terminal_mask: self.terminal_mask,
        };
        let experience =
            Experience::new(self.rule, (run, step), &q[state], (action, reward), target, self.rate);
        Experience { table: Some(table), ..experience }
    }

    fn act(&self, q: &[f64; ACTIONS.len()], episode: u64, rng: &mut ChaCha8Rng) -> usize {
        match self.rule {
            Rule::Hard if rng.random::<f64>() < epsilon(episode) => rng.random_range(0..q.len()),
            Rule::Hard => hard::greedy(q),
            Rule::Soft(_) if episode < RANDOM_EPISODES => rng.random_range(0..q.len()),
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

/// ε of an episode of Q-learning, as the notebook has it: 1 − log10((t + 1)/2.5) within its limits, where t is the number
/// of the episode before, since ε is updated at an episode's end. The first episode has t = 0 as well.
fn epsilon(episode: u64) -> f64 {
    let finished = episode.saturating_sub(1) as f64;
    (1.0 - ((finished + 1.0) / EPSILON_DECAY).log10()).clamp(EPSILON_MIN, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsilon_follows_the_notebook() {
        assert_eq!([0, 1, 2].map(epsilon), [1.0; 3]);
        assert!((epsilon(3) - (1.0 - 1.2f64.log10())).abs() < 1e-15);
        assert!((epsilon(24) - (1.0 - 9.6f64.log10())).abs() < 1e-15);
        assert_eq!([25, 49].map(epsilon), [0.001; 2]);
    }

    #[test]
    fn both_learners_end_where_the_notebooks_do() {
        let last = |setup| {
            let runs = Runs::learn(setup, 20, 0, |_| {});
            assert!(runs.episodes.iter().all(|run| run.len() == EPISODES as usize));
            runs.last_lengths()
        };
        let hard = last(Setup::main(Rule::Hard));
        assert!(hard.iter().all(|length| (14.0..=14.5).contains(length)), "{hard:?}");
        let soft = last(Setup::main(Rule::Soft(0.01)));
        let median = stats::aggregate::quantile(&soft, 0.5);
        assert!((15.0..=20.0).contains(&median), "{soft:?}");
        let near = soft.iter().filter(|length| (14.0..=21.0).contains(*length)).count();
        assert!(near >= 14, "{soft:?}");
    }

    #[test]
    fn the_goal_is_bootstrapped_unless_it_is_masked() {
        for terminal_mask in [false, true] {
            let mut goals = 0;
            let setup = Setup { terminal_mask, ..Setup::main(Rule::Hard) };
            Runs::learn(setup, 1, 0, |experience| {
                let table = experience.table.as_ref().unwrap();
                if !table.terminated {
                    return;
                }
                goals += 1;
                assert_eq!((table.next_state, experience.reward), (24, 1.0));
                let at_goal = DISCOUNT * hard::value(&table.next_q);
                assert!(at_goal > 0.0, "the goal has values of its own");
                assert_eq!(experience.target, if terminal_mask { 1.0 } else { 1.0 + at_goal });
            });
            assert!(goals > 40, "{goals}");
        }
    }

    #[test]
    fn at_a_temperature_of_100_the_maze_is_not_solved() {
        let mut most = 0.0f64;
        let setup = Setup { variant: "temperature-100", ..Setup::main(Rule::Soft(100.0)) };
        let runs = Runs::learn(setup, 1, 0, |experience| most = most.max(experience.value()));
        assert!(runs.last_lengths()[0] > 100.0);
        assert!(most > 1_000.0, "entropy pays far more than the goal: {most}");
    }
}
