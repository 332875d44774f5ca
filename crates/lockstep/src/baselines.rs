//! Players that any training should beat: a random one, the untrained network, and one action held for ever.

use actor::evaluation::Who;
use actor::seed::{self, Purpose};
use anyhow::{Context, Result};
use nn::QNetwork;
use run::record::Evaluation;

use crate::evaluate::{Tournament, evaluation};
use crate::lockstep::Lockstep;

/// Games that every action is held for; those that may be the best by then play the whole tournament.
const TRIAL_GAMES: u32 = 5;

/// Scores of the three baselines on the same games as the trained agent.
pub fn play(
    run: &Lockstep,
    tournament: &Tournament,
    episodes: u32,
    note: impl Fn(&str),
) -> Result<Vec<Evaluation>> {
    let settings = &run.resolved.settings;
    let policy = settings.evaluation_policy;
    let scored = |player: &str, scores| evaluation(player, policy, scores, 0, 0);
    let play = |who, what: &str, games: u32| {
        tournament.play(who, games, |done| note(&format!("baseline {what}: game {done} of {games}")))
    };

    let random = scored("random", play(Who::Random, "random", episodes)?);
    let mut rng = seed::generator(settings.seed, Purpose::Weights, &[]);
    let untrained =
        QNetwork::random(*run.learner.online().architecture(), run.learner.online().device(), &mut rng)?;
    let behaviour = actor::rules::evaluation_behaviour(settings, policy);
    let untrained = scored("untrained", play(Who::Network(&untrained, behaviour), "untrained", episodes)?);

    let hold = |action: usize, games: u32| {
        let name = format!("constant {}", run.spec.actions[action]);
        play(Who::Constant(action), &name, games).map(|scores| scored(&name, scores))
    };
    let trials: Vec<_> = (0..run.spec.actions.len())
        .map(|action| hold(action, TRIAL_GAMES.min(episodes)))
        .collect::<Result<_>>()?;
    let promising = |trial: &Evaluation| trial.mean + 2.0 * trial.standard_error;
    let bar = trials.iter().map(|trial| trial.mean - 2.0 * trial.standard_error).fold(f64::MIN, f64::max);
    let candidates = (0..trials.len()).filter(|&action| promising(&trials[action]) >= bar);
    let played: Vec<_> = candidates.map(|action| hold(action, episodes)).collect::<Result<_>>()?;
    let best = played.into_iter().max_by(|a, b| a.mean.total_cmp(&b.mean));
    let constant = best.context("a game has at least one action")?;
    Ok(vec![random, untrained, constant])
}
