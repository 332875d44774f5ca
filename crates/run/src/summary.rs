//! The closing summary of a run that has finished or was stopped.

use std::path::Path;

use crate::event::RunOutcome;
use crate::output::print_line;
use crate::record::{AGENT, Evaluation};
use settings::resolve::Resolved;
use settings::units::{duration, grouped};

/// Prints the closing summary. `curve` is the reason if the curve was not drawn.
pub fn print(path: &Path, resolved: &Resolved, outcome: &RunOutcome, curve: Result<(), String>) {
    lines(path, resolved, outcome, curve).iter().for_each(|line| print_line(line));
}

/// Prints how to resume a run that was stopped.
pub fn print_stopped(path: &Path, frames: u64) {
    print_line(&format!("stopped at frame {}; resume with", grouped(frames)));
    print_line(&format!("  quiver train --resume {}", path.display()));
}

fn lines(path: &Path, resolved: &Resolved, outcome: &RunOutcome, curve: Result<(), String>) -> Vec<String> {
    let settings = &resolved.settings;
    let directory = path.display();
    let mut lines = vec![
        String::new(),
        format!(
            "{} · {} · {} · {} frames, {} updates in {}",
            resolved.game,
            settings.algorithm,
            settings.strategy,
            grouped(outcome.frames),
            grouped(outcome.updates),
            duration(outcome.seconds),
        ),
    ];
    if let Some(agent) = outcome.evaluations.iter().find(|evaluation| evaluation.player == AGENT) {
        let (games, policy) = (agent.scores.len(), agent.policy);
        lines.push(format!("  {:<22} mean score  ± s.e.   ({games} games, {policy} policy)", ""));
        lines.extend(outcome.evaluations.iter().map(|evaluation| score(evaluation, agent)));
    }
    lines.push(match curve {
        Ok(()) => format!("  curve     {directory}/curve.png and curve.svg"),
        Err(reason) => format!("  curve     not drawn ({reason}); try: quiver plot {directory}"),
    });
    lines.push(format!("  weights   {directory}/checkpoints/final/weights.safetensors"));
    lines.push(format!("  next      quiver play {directory} --video {directory}/game.gif"));
    lines
}

fn score(evaluation: &Evaluation, agent: &Evaluation) -> String {
    let Evaluation { player, mean, standard_error, .. } = evaluation;
    if player == AGENT {
        return format!("  {:<22} {mean:>10.2}  ± {standard_error:<6.2}", "trained agent");
    }
    let line = format!("  {player:<22} {mean:>10.2}  ± {standard_error:<6.2}");
    let (lead, both) = (agent.mean - mean, agent.standard_error.hypot(*standard_error));
    match both > 0.0 {
        true => format!("{line} beaten by {lead:.2}, {:.1} standard errors", lead / both),
        false => format!("{line} beaten by {lead:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::choices::EvaluationPolicy::Greedy;
    use settings::resolve::Layers;

    fn evaluation(player: &str, mean: f64, standard_error: f64) -> Evaluation {
        let (player, scores) = (player.into(), vec![mean; 3]);
        Evaluation { frames: 9, updates: 9, player, policy: Greedy, mean, standard_error, scores }
    }

    fn summary(evaluations: Vec<Evaluation>) -> String {
        let resolved = Layers::default().resolve(Some("cartpole")).unwrap();
        let outcome = RunOutcome { frames: 20_000, updates: 19_000, seconds: 65.0, evaluations };
        lines(Path::new("runs/x"), &resolved, &outcome, Ok(())).join("\n")
    }

    #[test]
    fn the_agent_is_compared_with_the_baselines() {
        let text = summary(vec![evaluation("agent", 200.0, 3.0), evaluation("random", 20.0, 4.0)]);
        let expected = "
cartpole · soft-dqn · ver · 20,000 frames, 19,000 updates in 1 min 5 s
                         mean score  ± s.e.   (3 games, greedy policy)
  trained agent              200.00  ± 3.00  \n  random                      20.00  ± 4.00   beaten by 180.00, 36.0 standard errors
  curve     runs/x/curve.png and curve.svg
  weights   runs/x/checkpoints/final/weights.safetensors
  next      quiver play runs/x --video runs/x/game.gif";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_run_without_an_evaluation_has_a_summary_too() {
        assert!(!summary(Vec::new()).contains("mean score"));
    }
}
