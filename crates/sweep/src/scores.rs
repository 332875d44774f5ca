//! The runs' final scores: one number for each game and variant. `quiver compare` has more to say about them.

use anyhow::Result;
use run::output::print_note;
use run::record::{self, AGENT, EVALUATIONS_FILE, Evaluation};
use serde_json::{Value, json};

use crate::events::variant;
use crate::plan::Run;

/// The final scores of one game and variant.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalScores {
    pub game: String,
    /// Values of the varied settings, as (key, text).
    pub variant: Vec<(String, String)>,
    /// The mean score of the evaluation after training, one for each finished seed.
    pub scores: Vec<f64>,
}

impl FinalScores {
    /// The scores of all games and variants, in the order of the runs.
    pub fn read(runs: &[Run]) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        for run in runs {
            let alike = |row: &&mut Self| row.game == run.game && row.variant == run.variant;
            let score = final_score(run)?;
            match all.iter_mut().find(alike) {
                Some(row) => row.scores.extend(score),
                None => all.push(Self {
                    game: run.game.clone(),
                    variant: run.variant.clone(),
                    scores: score.into_iter().collect(),
                }),
            }
        }
        Ok(all)
    }

    /// Mean over seeds; `None` if no run has finished.
    pub fn mean(&self) -> Option<f64> {
        (!self.scores.is_empty()).then(|| Evaluation::mean_and_error(&self.scores).0)
    }

    /// Standard error of the mean over seeds; `None` for fewer than two seeds.
    pub fn standard_error(&self) -> Option<f64> {
        (self.scores.len() > 1).then(|| Evaluation::mean_and_error(&self.scores).1)
    }

    pub fn json(&self) -> Value {
        json!({
            "game": self.game,
            "settings": variant(&self.variant),
            "seeds": self.scores.len(),
            "mean": self.mean(),
            "standard_error": self.standard_error(),
            "scores": self.scores,
        })
    }
}

/// The mean score of the last evaluation of a finished run.
pub fn final_score(run: &Run) -> Result<Option<f64>> {
    if !run.is_finished() || !run.path.join(EVALUATIONS_FILE).is_file() {
        return Ok(None);
    }
    let mut evaluations = record::evaluations(&run.path)?.reported(print_note);
    evaluations.retain(|evaluation| evaluation.player == AGENT);
    evaluations.sort_by_key(|evaluation| evaluation.frames);
    Ok(evaluations.last().map(|last| last.mean))
}

/// Lines of a table: mean ± standard error over seeds. Without varied settings there is no column for them.
pub fn table(rows: &[FinalScores]) -> Vec<String> {
    let varied = rows.iter().any(|row| !row.variant.is_empty());
    let mut cells = vec![["game", "settings", "seeds", "final score"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let score = match (row.mean(), row.standard_error()) {
            (Some(mean), Some(error)) => format!("{mean:.2} ± {error:.2}"),
            (Some(mean), None) => format!("{mean:.2}"),
            _ => "–".to_owned(),
        };
        [row.game.clone(), crate::plan::label(&row.variant), row.scores.len().to_string(), score]
    }));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (game, settings) = (width(0), width(1));
    let line = |row: &[String; 4]| {
        let settings = if varied { format!("{:settings$}  ", row[1]) } else { String::new() };
        format!("{:game$}  {settings}{:>5}  {}", row[0], row[2], row[3])
    };
    cells.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(variant: &[(&str, &str)], scores: &[f64]) -> FinalScores {
        let variant = variant.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
        FinalScores { game: "pong".to_owned(), variant, scores: scores.to_vec() }
    }

    #[test]
    fn the_error_is_over_seeds_and_needs_two() {
        let two = scores(&[], &[1.0, 3.0]);
        assert_eq!((two.mean(), two.standard_error()), (Some(2.0), Some(1.0)));
        let one = scores(&[], &[1.0]);
        assert_eq!((one.mean(), one.standard_error()), (Some(1.0), None));
        assert_eq!(scores(&[], &[]).mean(), None);
    }

    #[test]
    fn the_table_has_a_column_for_varied_settings_if_there_are_any() {
        let rows = [scores(&[("strategy", "uniform")], &[1.0, 3.0]), scores(&[("strategy", "ver")], &[])];
        assert_eq!(
            table(&rows),
            [
                "game  settings          seeds  final score",
                "pong  strategy=uniform      2  2.00 ± 1.00",
                "pong  strategy=ver          0  –",
            ]
        );
        assert_eq!(table(&[scores(&[], &[4.0])]), ["game  seeds  final score", "pong      1  4.00"]);
    }
}
