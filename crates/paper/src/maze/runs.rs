//! Several runs of one [`Setup`], each with its own seed, and the lengths of their episodes.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{EPISODES, MazeEpisode, Setup};
use crate::experience::{Experience, Tally};
use crate::statistics::mean_and_error;

/// Episodes at the end of a run by which it is judged.
pub const LAST: usize = 10;

/// All runs of each setup, and a tally of their experiences.
pub fn learn_all(setups: &[Setup], seeds: u64, seed: u64) -> (Vec<Tally>, Vec<Runs>) {
    let learn = |setup: &Setup| {
        let mut tally = Tally::new();
        let runs = Runs::learn(*setup, seeds, seed, |experience| tally.add(experience));
        (tally, runs)
    };
    setups.iter().map(learn).unzip()
}

/// The episodes of all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    pub setup: Setup,
    /// By run, then by episode.
    pub episodes: Vec<Vec<MazeEpisode>>,
}

impl Runs {
    /// Learns once for each number below `seeds` and shows all experiences. A run's random numbers are the stream with its
    /// number of ChaCha8 seeded with `seed`.
    pub fn learn(setup: Setup, seeds: u64, seed: u64, mut watch: impl FnMut(Experience)) -> Self {
        let episodes = (0..seeds).map(|run| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(run);
            setup.learn(run, &mut rng, &mut watch)
        });
        Self { setup, episodes: episodes.collect() }
    }

    /// The mean length of the last ten episodes of each run.
    pub fn last_lengths(&self) -> Vec<f64> {
        let last = |run: &Vec<MazeEpisode>| {
            let last = &run[run.len().saturating_sub(LAST)..];
            last.iter().map(|episode| episode.steps as f64).sum::<f64>() / last.len() as f64
        };
        self.episodes.iter().map(last).collect()
    }

    /// Mean and standard error over runs of each episode's length.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let of_episode = |episode: usize| -> Vec<f64> {
            self.episodes.iter().map(|run| run[episode].steps as f64).collect()
        };
        (0..EPISODES as usize).map(|episode| mean_and_error(&of_episode(episode))).collect()
    }

    /// Columns that name the setup, in every file.
    fn names(&self) -> Vec<String> {
        let Setup { variant, rule, rate, terminal_mask } = self.setup;
        cells![variant, rule.temperature(), rate, u8::from(terminal_mask)]
    }

    pub const CURVE_HEADER: [&'static str; 8] =
        ["variant", "temperature", "alpha", "terminal_mask", "episode", "seeds", "mean_steps", "stderr"];

    /// Rows of a file of curves.
    pub fn curve_rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.curve().into_iter().enumerate().map(|(episode, (mean, error))| {
            [self.names(), cells![episode, self.episodes.len(), mean, error]].concat()
        })
    }

    pub const EPISODE_HEADER: [&'static str; 8] =
        ["variant", "temperature", "alpha", "terminal_mask", "seed", "episode", "steps", "terminated"];

    /// Rows of a file of episodes, one for each.
    pub fn episode_rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.episodes.iter().enumerate().flat_map(move |(run, episodes)| {
            episodes.iter().enumerate().map(move |(episode, MazeEpisode { steps, terminated })| {
                [self.names(), cells![run, episode, steps, u8::from(*terminated)]].concat()
            })
        })
    }
}
