//! The contents of a figure of runs: curves, their names, baselines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use run::curve::{CurvePoint, display_name, points, smoothed};
use run::output::print_note;
use run::record::{self, AGENT, EVALUATIONS_FILE, Episode, Evaluation};

const BEST_CONSTANT: &str = "best constant";

/// The curve of one run.
#[derive(Debug)]
pub struct RunCurve {
    pub name: String,
    pub points: Vec<CurvePoint>,
    /// Mean scores of training games, as (frames, score).
    pub training: Vec<(f64, f64)>,
}

/// The score of a baseline player.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    pub name: String,
    pub mean: f64,
}

/// The recorded results of one run.
#[derive(Debug)]
pub struct Recorded {
    pub run: PathBuf,
    pub game: String,
    evaluations: Vec<Evaluation>,
    training: Vec<Episode>,
    pub baselines: Vec<Baseline>,
}

impl Recorded {
    /// Reads a run's evaluations and, if `training`, its training games. A run without evaluations is an error.
    pub fn read(run: &Path, game: &str, training: bool) -> anyhow::Result<Self> {
        let recorded = run.join(EVALUATIONS_FILE).exists();
        let all = if recorded { record::evaluations(run)?.reported(print_note) } else { Vec::new() };
        let (evaluations, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|evaluation| evaluation.player == AGENT);
        if evaluations.is_empty() {
            let run = run.display();
            bail!(
                "{run} has no evaluation yet: wait for the first (see evaluate_every_frames), then plot again"
            );
        }
        let training = if training { record::episodes(run)?.reported(print_note) } else { Vec::new() };
        Ok(Self { run: run.into(), game: game.into(), evaluations, training, baselines: baselines(&others) })
    }

    /// The curve, under its name in this figure.
    pub fn into_curve(self, name: String) -> RunCurve {
        RunCurve { name, points: points(&self.evaluations), training: smoothed(&self.training) }
    }
}

/// The baselines: random, untrained, and the best of the players that repeat one action.
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

/// How the scores were measured, in one line.
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

/// A name for each run: its directory's name, or its whole path if two have the same name.
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
        let names_game = !several_games || name.contains(&one.game);
        if names_game { name } else { format!("{name} ({})", display_name(&one.game)) }
    };
    recorded.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::choices::EvaluationPolicy::Stochastic;

    fn evaluation(player: &str, frames: u64, scores: &[f64]) -> Evaluation {
        Evaluation { frames, ..Evaluation::new(player, Stochastic, scores.into()) }
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
}
