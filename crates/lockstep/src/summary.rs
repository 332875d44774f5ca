//! What a person wants to know when a run has ended.

use std::path::Path;
use std::process::Command;

use run::record::Evaluation;
use run::units::grouped;

use crate::lockstep::Lockstep;
use crate::output::say;

/// Prints the closing summary; the first evaluation is the agent's, the others are baselines.
pub fn print(path: &Path, run: &Lockstep, seconds: f64, evaluations: &[Evaluation]) {
    let settings = &run.resolved.settings;
    let directory = path.display();
    say("");
    say(&format!(
        "{} · {} · {} · {} frames, {} updates in {}",
        run.resolved.game,
        settings.algorithm,
        settings.strategy,
        grouped(run.frames),
        grouped(run.learner.updates()),
        duration(seconds),
    ));
    let agent = &evaluations[0];
    say(&format!(
        "  {:<22} mean score  ± s.e.   ({} games, {} policy)",
        "",
        agent.scores.len(),
        agent.policy
    ));
    for evaluation in evaluations {
        let name = if evaluation.player == run::record::AGENT { "trained agent" } else { &evaluation.player };
        let mut line =
            format!("  {name:<22} {:>10.2}  ± {:<6.2}", evaluation.mean, evaluation.standard_error);
        if evaluation.player != run::record::AGENT {
            let both = agent.standard_error.hypot(evaluation.standard_error);
            let lead = agent.mean - evaluation.mean;
            line += &match both > 0.0 {
                true => format!(" beaten by {lead:.2}, {:.1} standard errors", lead / both),
                false => format!(" beaten by {lead:.2}"),
            };
        }
        say(&line);
    }
    match draw_curve(path) {
        Ok(()) => say(&format!("  curve     {directory}/curve.png and curve.svg")),
        Err(reason) => say(&format!("  curve     not drawn ({reason}); try: quiver plot {directory}")),
    }
    say(&format!("  weights   {directory}/checkpoints/final/weights.safetensors"));
    say(&format!("  next      quiver play {directory} --video {directory}/game.gif"));
}

/// Drawing belongs to the other half of the command.
fn draw_curve(path: &Path) -> Result<(), String> {
    let quiver = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("quiver");
    let output = Command::new(quiver).arg("plot").arg(path).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// `1 h 2 min`, `3 min 20 s` or `12 s`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(duration(12.4), "12 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(3725.0), "1 h 2 min");
    }
}
