//! What the runs of a sweep recorded: evaluations, curves over seeds, scores at the end.

use anyhow::Result;
use run::output::print_note;
use run::record::{self, AGENT};
use sweep::Run;
use value::Strategy;

use crate::statistics::mean_and_error;

/// A run's evaluations.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Canonical name.
    pub game: String,
    /// How experience was replayed.
    pub strategy: Strategy,
    /// Which seed.
    pub seed: u64,
    /// Whether it has trained to its end.
    pub finished: bool,
    /// Of the agent, in the order of frames.
    pub points: Vec<ScorePoint>,
}

/// An evaluation, or the mean of several seeds' at about the same frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScorePoint {
    /// Frames trained.
    pub frames: u64,
    /// Mean score.
    pub mean: f64,
    /// Its standard error; of several seeds see [`pooled`].
    pub stderr: f64,
}

impl Scored {
    /// Reads what a run has recorded so far, which may be nothing.
    pub fn read(run: &Run) -> Result<Self> {
        let there = run.path.join("evaluations.jsonl").is_file();
        let evaluations =
            if there { record::evaluations(&run.path)?.reported(print_note) } else { Vec::new() };
        let of_agent = evaluations.iter().filter(|evaluation| evaluation.player == AGENT);
        let point = |evaluation: &record::Evaluation| ScorePoint {
            frames: evaluation.frames,
            mean: evaluation.mean,
            stderr: evaluation.standard_error,
        };
        let mut points: Vec<ScorePoint> = of_agent.map(point).collect();
        points.sort_by_key(|point| point.frames);
        let (game, strategy, seed) = (run.game.clone(), run.strategy, run.seed);
        Ok(Self { game, strategy, seed, finished: run.is_finished(), points })
    }

    /// The evaluation of the last weights, once there are such.
    pub fn last(&self) -> Option<ScorePoint> {
        self.points.last().filter(|_| self.finished).copied()
    }

    /// Columns of [`Scored::rows`].
    pub const HEADER: [&'static str; 6] = ["game", "strategy", "seed", "frames", "mean", "stderr"];

    /// Every evaluation as text; numbers come back to the last bit.
    pub fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.points
            .iter()
            .map(|point| cells![self.game, self.strategy, self.seed, point.frames, point.mean, point.stderr])
    }
}

/// The mean over seeds of a game and a strategy. Processes run at their own speed, so seeds are evaluated at slightly
/// different frames: what lies nearest to the same multiple of `every` belongs together.
pub fn curve(scored: &[Scored], game: &str, strategy: Strategy, every: u64) -> Vec<ScorePoint> {
    let runs: Vec<&Scored> =
        scored.iter().filter(|run| run.game == game && run.strategy == strategy).collect();
    let place = |point: &ScorePoint| (point.frames + every / 2) / every.max(1);
    let all = || runs.iter().flat_map(|run| run.points.iter());
    let mut places: Vec<u64> = all().map(place).collect();
    places.sort_unstable();
    places.dedup();
    let mean = |at: u64| {
        // Of one run the newest counts, should two lie together.
        let newest = |run: &&Scored| run.points.iter().rev().find(|point| place(point) == at).copied();
        let points: Vec<ScorePoint> = runs.iter().filter_map(newest).collect();
        pooled(&points)
    };
    places.into_iter().map(mean).collect()
}

/// The mean of seeds' evaluations. Its error is that of the games that were played, or that over seeds if it is larger: two
/// seeds often agree by chance, and games of one seed say nothing of the other.
pub fn pooled(points: &[ScorePoint]) -> ScorePoint {
    let count = points.len().max(1) as f64;
    let means: Vec<f64> = points.iter().map(|point| point.mean).collect();
    let (mean, over_seeds) = mean_and_error(&means);
    let over_games = points.iter().map(|point| point.stderr.powi(2)).sum::<f64>().sqrt() / count;
    let frames = points.iter().map(|point| point.frames).sum::<u64>() / points.len().max(1) as u64;
    ScorePoint { frames, mean, stderr: over_games.max(over_seeds) }
}

/// The evaluations at the end of the finished seeds of a game and a strategy.
pub fn finals(scored: &[Scored], game: &str, strategy: Strategy) -> Vec<ScorePoint> {
    let of = scored.iter().filter(|run| run.game == game && run.strategy == strategy);
    of.filter_map(Scored::last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(seed: u64, points: &[(u64, f64)]) -> Scored {
        let point = |&(frames, mean): &(u64, f64)| ScorePoint { frames, mean, stderr: 2.0 };
        let points = points.iter().map(point).collect();
        Scored { game: "boxing".to_owned(), strategy: Strategy::VER, seed, finished: seed == 0, points }
    }

    #[test]
    fn seeds_meet_at_about_the_same_frame() {
        let runs = [scored(0, &[(0, 1.0), (1_004, 5.0), (2_001, 6.0)]), scored(1, &[(0, 3.0), (996, 7.0)])];
        let curve = curve(&runs, "boxing", Strategy::VER, 1_000);
        // Of the games 2/√2, and over the seeds 1.
        assert_eq!(curve[0], ScorePoint { frames: 0, mean: 2.0, stderr: 2f64.sqrt() });
        assert_eq!(curve[1], ScorePoint { frames: 1_000, mean: 6.0, stderr: 2f64.sqrt() });
        assert_eq!(
            curve[2],
            ScorePoint { frames: 2_001, mean: 6.0, stderr: 2.0 },
            "one seed has its games' error"
        );
        let apart = pooled(&[
            ScorePoint { frames: 4, mean: 10.0, stderr: 2.0 },
            ScorePoint { frames: 6, mean: 30.0, stderr: 2.0 },
        ]);
        assert_eq!(apart, ScorePoint { frames: 5, mean: 20.0, stderr: 10.0 });
        assert!(super::curve(&runs, "boxing", Strategy::PER, 1_000).is_empty());
    }

    #[test]
    fn only_a_finished_run_has_a_score_at_the_end() {
        let runs = [scored(0, &[(0, 1.0), (1_000, 5.0)]), scored(1, &[(0, 3.0), (500, 7.0)])];
        assert_eq!(
            finals(&runs, "boxing", Strategy::VER),
            [ScorePoint { frames: 1_000, mean: 5.0, stderr: 2.0 }]
        );
    }
}
