//! Baselines that any training should beat: random play, the untrained network, and one constant action.

use agents::{Architecture, QNetwork};
use envs::EnvError;
use run::record::Evaluation;
use settings::Resolved;
use settings::seed::{self, Purpose};

use crate::evaluation::{EvaluationGames, PlayerKind, play as play_games};

/// Trial games of each constant action. Only actions that may still be the best play the full number of games.
const TRIAL_GAMES: usize = 5;

/// Why baselines could not be played.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    #[error(transparent)]
    Environment(#[from] EnvError),
    #[error(transparent)]
    Network(#[from] settings::networks::Mismatch),
}

/// A baseline's name and its scores.
pub type BaselineScores = (String, Vec<f64>);

/// Plays the three baselines on the same games as the trained agent. `note` receives progress messages.
pub fn play(
    resolved: &Resolved,
    architecture: &Architecture,
    device: agents::Device,
    games: &EvaluationGames<'_>,
    episodes: usize,
    note: impl Fn(&str),
) -> Result<Vec<BaselineScores>, BaselineError> {
    let settings = &resolved.settings;
    let play = |player, name: &str, count: usize| -> Result<BaselineScores, EnvError> {
        let watch = |done| note(&format!("baseline {name}: game {done} of {count}"));
        Ok((name.to_owned(), play_games(player, games, count, watch)?))
    };
    let random = play(PlayerKind::Random, "random", episodes)?;
    let mut rng = seed::generator(settings.seed, Purpose::Weights, &[]);
    let network = QNetwork::random(*architecture, device, &mut rng)?;
    let agent = agents::agent(settings);
    let behaviour = crate::rules::evaluation_behaviour(&*agent, settings.evaluation_policy);
    let untrained = play(PlayerKind::Agent(&*agent, &network, behaviour), "untrained", episodes)?;

    let actions = envs::make(games.game, games.options, 0)?.spec().actions.clone();
    let play_constant = |action: usize, count: usize| {
        play(PlayerKind::Constant(action), &format!("constant {}", actions[action]), count)
    };
    let trials: Vec<_> = (0..actions.len())
        .map(|action| {
            play_constant(action, TRIAL_GAMES.min(episodes))
                .map(|(_, scores)| Evaluation::mean_and_error(&scores))
        })
        .collect::<Result<_, _>>()?;
    // An action is promising if its upper confidence bound reaches the best lower bound.
    let best_lower_bound = trials.iter().map(|(mean, error)| mean - 2.0 * error).fold(f64::MIN, f64::max);
    let promising =
        (0..trials.len()).filter(|&action| trials[action].0 + 2.0 * trials[action].1 >= best_lower_bound);
    let candidates: Vec<_> =
        promising.map(|action| play_constant(action, episodes)).collect::<Result<_, _>>()?;
    let mean = |scored: &BaselineScores| Evaluation::mean_and_error(&scored.1).0;
    let best = candidates.into_iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    Ok([random, untrained].into_iter().chain(best).collect())
}
