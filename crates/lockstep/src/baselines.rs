//! Plays the baselines of a run and returns their scores as evaluations.

use anyhow::Result;
use run::record::Evaluation;

use crate::evaluate::EvaluationSetup;
use crate::lockstep::Lockstep;

/// Plays the baselines on the same games as the trained agent.
pub fn play(
    run: &Lockstep,
    setup: &EvaluationSetup,
    episodes: u32,
    note: impl Fn(&str),
) -> Result<Vec<Evaluation>> {
    let online = run.trainer.learner.online();
    let (architecture, device) = (online.architecture(), online.device());
    let played =
        actor::baselines::play(&run.resolved, architecture, device, &setup.games(), episodes as usize, note)?;
    let policy = run.resolved.settings.evaluation_policy;
    Ok(played.into_iter().map(|(player, scores)| Evaluation::new(player, policy, scores)).collect())
}
