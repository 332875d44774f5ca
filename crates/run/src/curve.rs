//! The points of a learning curve, for the live page and for `quiver plot`.

use crate::averages;
use crate::record::{AGENT, Episode, Evaluation};

pub use envs::display_name;

/// Maximum number of points of training scores.
pub const TRAINING_POINTS_MAX: usize = 120;

/// An evaluation as a point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    pub frames: f64,
    /// Mean score.
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
}

/// The agent's evaluations in the order of frames. One point per count of frames: the evaluation after training is larger
/// than the one of the same moment before it.
pub fn points<'a>(evaluations: impl IntoIterator<Item = &'a Evaluation>) -> Vec<CurvePoint> {
    let mut played: Vec<&Evaluation> =
        evaluations.into_iter().filter(|evaluation| evaluation.player == AGENT).collect();
    played.sort_by_key(|evaluation| evaluation.frames);
    let mut points: Vec<CurvePoint> = Vec::new();
    for Evaluation { frames, mean, standard_error, .. } in played {
        let point = CurvePoint { frames: *frames as f64, mean: *mean, error: *standard_error };
        match points.last_mut() {
            Some(last) if last.frames == point.frames => *last = point,
            _ => points.push(point),
        }
    }
    points
}

/// Training scores as (frames, score): means of equally many games each.
pub fn smoothed(episodes: &[Episode]) -> Vec<(f64, f64)> {
    let mean = |games: &[Episode], of: fn(&Episode) -> f64| {
        averages::mean(&games.iter().map(of).collect::<Vec<_>>())
    };
    episodes
        .chunks(episodes.len().div_ceil(TRAINING_POINTS_MAX).max(1))
        .map(|games| (mean(games, |game| game.frames as f64), mean(games, |game| game.score)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::choices::EvaluationPolicy::Stochastic;

    fn evaluation(player: &str, frames: u64, scores: &[f64]) -> Evaluation {
        Evaluation { frames, ..Evaluation::new(player, Stochastic, scores.into()) }
    }

    #[test]
    fn the_agents_last_evaluation_at_a_frame_count_is_used() {
        let points = points(&[
            evaluation(AGENT, 8, &[2.0]),
            evaluation(AGENT, 4, &[1.0]),
            evaluation(AGENT, 8, &[3.0, 5.0]),
            evaluation("random", 0, &[9.0]),
        ]);
        assert_eq!(points.iter().map(|point| point.mean).collect::<Vec<_>>(), [1.0, 4.0]);
    }

    #[test]
    fn smoothing_keeps_the_mean_and_bounds_the_points() {
        let episodes: Vec<_> = (0..1200)
            .map(|index| Episode { frames: index, score: (index % 2) as f64, steps: 1, truncated: false })
            .collect();
        let points = smoothed(&episodes);
        assert_eq!(points.len(), TRAINING_POINTS_MAX);
        assert!(points.iter().all(|(_, score)| *score == 0.5));
        assert_eq!(smoothed(&[]), []);
    }
}
