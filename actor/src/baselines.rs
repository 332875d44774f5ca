//! Players that any training should beat: a random one, the untrained network, and one action held for ever.

use agents::{Architecture, QNetwork};
use envs::EnvError;
use run::record::Evaluation;
use settings::Resolved;
use settings::seed::{self, Purpose};

use crate::evaluation::{Games, Who, play as play_games};

/// Games that every action is held for; those that may be the best by then play all of them.
const TRIAL_GAMES: usize = 5;

/// Why baselines could not be played.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The game can't be made.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// The network can't be made.
    #[error(transparent)]
    Network(#[from] settings::networks::Mismatch),
}

/// A player's name and its scores.
pub type Scored = (String, Vec<f64>);

/// Scores of the three baselines on the same games as the trained agent. `note` hears how it goes.
pub fn play(
    resolved: &Resolved,
    architecture: &Architecture,
    device: agents::Device,
    games: &Games<'_>,
    episodes: usize,
    note: impl Fn(&str),
) -> Result<Vec<Scored>, BaselineError> {
    let settings = &resolved.settings;
    let play = |who, name: &str, count: usize| -> Result<Scored, EnvError> {
        let watch = |done| note(&format!("baseline {name}: game {done} of {count}"));
        Ok((name.to_owned(), play_games(who, games, count, watch)?))
    };
    let random = play(Who::Random, "random", episodes)?;
    let mut rng = seed::generator(settings.seed, Purpose::Weights, &[]);
    let network = QNetwork::random(*architecture, device, &mut rng)?;
    let agent = agents::agent(settings);
    let behaviour = crate::rules::evaluation_behaviour(&*agent, settings.evaluation_policy);
    let untrained = play(Who::Agent(&*agent, &network, behaviour), "untrained", episodes)?;

    let actions = envs::make(games.game, games.options, 0)?.spec().actions.clone();
    let hold = |action: usize, count: usize| {
        play(Who::Constant(action), &format!("constant {}", actions[action]), count)
    };
    let trials: Vec<_> = (0..actions.len())
        .map(|action| {
            hold(action, TRIAL_GAMES.min(episodes)).map(|(_, scores)| Evaluation::mean_and_error(&scores))
        })
        .collect::<Result<_, _>>()?;
    let bar = trials.iter().map(|(mean, error)| mean - 2.0 * error).fold(f64::MIN, f64::max);
    let promising = (0..trials.len()).filter(|&action| trials[action].0 + 2.0 * trials[action].1 >= bar);
    let held: Vec<_> = promising.map(|action| hold(action, episodes)).collect::<Result<_, _>>()?;
    let mean = |scored: &Scored| Evaluation::mean_and_error(&scored.1).0;
    let best = held.into_iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    Ok([random, untrained].into_iter().chain(best).collect())
}
