//! What a run recorded, as points of a curve.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use run::record::{self, AGENT, Episode, Evaluation};

/// Scores of training games are averaged into at most this many points.
const TRAINING_POINTS_MAX: usize = 120;

const BEST_CONSTANT: &str = "best constant";

/// An evaluation in the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub frames: f64,
    pub mean: f64,
    pub error: f64,
}

/// One run in the picture.
#[derive(Debug)]
pub struct Curve {
    pub name: String,
    pub points: Vec<Point>,
    /// Mean scores of training games, as (frames, score).
    pub training: Vec<(f64, f64)>,
}

/// A score to beat.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    pub name: String,
    pub mean: f64,
}

/// What one run has to show.
#[derive(Debug)]
pub struct Recorded {
    pub run: PathBuf,
    pub game: String,
    evaluations: Vec<Evaluation>,
    training: Vec<Episode>,
    pub baselines: Vec<Baseline>,
}

impl Recorded {
    /// Reads a run's evaluations and, if asked, its training games. A run without evaluations is an error.
    pub fn read(run: &Path, game: &str, training: bool) -> anyhow::Result<Self> {
        let all = if run.join("evaluations.jsonl").exists() { record::evaluations(run)? } else { Vec::new() };
        let (mut evaluations, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|evaluation| evaluation.player == AGENT);
        if evaluations.is_empty() {
            let run = run.display();
            bail!(
                "{run} has no evaluation yet: wait for the first (see evaluate_every_frames), then plot again"
            );
        }
        evaluations.sort_by_key(|evaluation| evaluation.frames);
        let training = if training { record::episodes(run)? } else { Vec::new() };
        Ok(Self { run: run.into(), game: game.into(), evaluations, training, baselines: baselines(&others) })
    }

    /// The curve, under the name it goes by in this picture.
    pub fn into_curve(self, name: String) -> Curve {
        Curve { name, points: points(&self.evaluations), training: smoothed(&self.training) }
    }
}

/// One point per count of frames: the evaluation after training is larger than the one of the same moment before it.
fn points(evaluations: &[Evaluation]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for Evaluation { frames, mean, standard_error, .. } in evaluations {
        let point = Point { frames: *frames as f64, mean: *mean, error: *standard_error };
        match points.last_mut() {
            Some(last) if last.frames == point.frames => *last = point,
            _ => points.push(point),
        }
    }
    points
}

/// Means of equally many games each.
fn smoothed(episodes: &[Episode]) -> Vec<(f64, f64)> {
    let mean =
        |games: &[Episode], of: fn(&Episode) -> f64| games.iter().map(of).sum::<f64>() / games.len() as f64;
    episodes
        .chunks(episodes.len().div_ceil(TRAINING_POINTS_MAX).max(1))
        .map(|games| (mean(games, |game| game.frames as f64), mean(games, |game| game.score)))
        .collect()
}

/// The players to beat: random, untrained, and of those that hold one action for ever only the best.
fn baselines(others: &[Evaluation]) -> Vec<Baseline> {
    let mut found: Vec<Baseline> = Vec::new();
    for Evaluation { player, mean, .. } in others {
        let held = player.strip_prefix("constant ");
        let name = held.map_or_else(|| player.clone(), |action| format!("{BEST_CONSTANT} ({action})"));
        let is_alike = |known: &&mut Baseline| {
            known.name == name || held.is_some() && known.name.starts_with(BEST_CONSTANT)
        };
        match found.iter_mut().find(is_alike) {
            Some(known) if held.is_some() && known.mean >= *mean => {}
            Some(known) => *known = Baseline { name, mean: *mean },
            None => found.push(Baseline { name, mean: *mean }),
        }
    }
    found
}

/// How the scores came about, in one line.
pub fn subtitle(recorded: &[Recorded]) -> String {
    let all = || recorded.iter().flat_map(|run| &run.evaluations);
    let policies: BTreeSet<String> = all().map(|evaluation| evaluation.policy.to_string()).collect();
    let policies = policies.into_iter().collect::<Vec<_>>().join(" and ");
    let fewest = all().map(|evaluation| evaluation.scores.len()).min().unwrap_or_default();
    let most = all().map(|evaluation| evaluation.scores.len()).max().unwrap_or_default();
    let games = match (fewest, most) {
        (1, 1) => "one game each".into(),
        (fewest, most) if fewest == most => format!("mean of {most} games ± 1 standard error"),
        (fewest, most) => format!("mean of {fewest} to {most} games ± 1 standard error"),
    };
    let faint =
        if recorded.iter().any(|run| !run.training.is_empty()) { "; thin: training games" } else { "" };
    format!("{games}, {policies} policy{faint}")
}

/// A name for each run: its directory's, or the whole path where two are called the same.
pub fn names(recorded: &[Recorded], several_games: bool) -> Vec<String> {
    let short = |run: &Path| {
        run.canonicalize().ok().as_deref().unwrap_or(run).file_name().map(|name| name.to_owned())
    };
    let name = |one: &Recorded| {
        let own = short(&one.run);
        let is_unique = recorded.iter().filter(|other| short(&other.run) == own).count() == 1;
        let name = match own {
            Some(name) if is_unique => name.to_string_lossy().into_owned(),
            _ => one.run.display().to_string(),
        };
        let game_is_said = !several_games || name.contains(&one.game);
        if game_is_said { name } else { format!("{name} ({})", display_name(&one.game)) }
    };
    recorded.iter().map(name).collect()
}

/// `space_invaders` as people write it.
pub fn display_name(game: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    match game {
        "cartpole" => "CartPole".into(),
        _ => game.split('_').filter(|word| !word.is_empty()).map(capital).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::choices::EvaluationPolicy::Stochastic;

    fn evaluation(player: &str, frames: u64, scores: &[f64]) -> Evaluation {
        let (mean, standard_error) = Evaluation::mean_and_error(scores);
        let (player, scores) = (player.into(), scores.into());
        Evaluation { frames, updates: 0, player, policy: Stochastic, mean, standard_error, scores }
    }

    #[test]
    fn the_last_evaluation_of_a_moment_counts() {
        let points = points(&[
            evaluation(AGENT, 4, &[1.0]),
            evaluation(AGENT, 8, &[2.0]),
            evaluation(AGENT, 8, &[3.0, 5.0]),
        ]);
        assert_eq!(points.iter().map(|point| point.mean).collect::<Vec<_>>(), [1.0, 4.0]);
    }

    #[test]
    fn of_constant_players_the_best_is_shown() {
        let players = [
            ("random", 1.0),
            ("constant noop", -3.0),
            ("constant fire", 2.0),
            ("constant up", 0.0),
            ("untrained", 0.5),
        ];
        let found = baselines(&players.map(|(player, mean)| evaluation(player, 0, &[mean])));
        let found: Vec<_> = found.iter().map(|baseline| (baseline.name.as_str(), baseline.mean)).collect();
        assert_eq!(found, [("random", 1.0), ("best constant (fire)", 2.0), ("untrained", 0.5)]);
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

    #[test]
    fn games_are_written_as_people_write_them() {
        assert_eq!(display_name("space_invaders"), "Space Invaders");
        assert_eq!(display_name("cartpole"), "CartPole");
    }
}
