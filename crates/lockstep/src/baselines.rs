//! Players that any training should beat: a random one, the untrained network, and one action held for ever.

use actor::evaluation::Who;
use actor::seed::{self, Purpose};
use anyhow::Result;
use nn::QNetwork;
use run::record::Evaluation;

use crate::evaluate::{Tournament, evaluation};
use crate::lockstep::Lockstep;

/// Games per action to find the best constant one; that one then plays the whole tournament.
const TRIAL_GAMES: u32 = 4;

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

    let mut best: Option<(f64, usize)> = None;
    for (action, name) in run.spec.actions.iter().enumerate() {
        let scores = play(Who::Constant(action), &format!("constant {name}"), TRIAL_GAMES.min(episodes))?;
        let (mean, _) = Evaluation::mean_and_error(&scores);
        if best.is_none_or(|(best, _)| mean > best) {
            best = Some((mean, action));
        }
    }
    let action = best.map_or(0, |(_, action)| action);
    let name = format!("constant {}", run.spec.actions[action]);
    let constant = scored(&name, play(Who::Constant(action), &name, episodes)?);
    Ok(vec![random, untrained, constant])
}
