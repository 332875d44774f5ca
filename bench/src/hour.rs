//! What 40M frames in one hour take: the rate that each stage needs, against the rate measured in the same run.

use anyhow::{Context, Result};
use settings::Settings;

use crate::section::{Row, Section};

/// Seconds in which the frames of the paper's settings are to be played and learned from.
const SECONDS: f64 = 3_600.0;

/// Versions of the weights per second, so that actors are not far behind.
const VERSIONS_PER_SECOND: f64 = 1.0;

const GAME: &str = "breakout";

/// Compares the sections measured so far, which must be complete.
pub fn section(measured: &[Section]) -> Result<Section> {
    let settings = Settings::paper();
    let figures = Figures(measured);
    let frames = settings.frames.0 as f64 / SECONDS;
    let transitions = frames / f64::from(settings.frame_skip);
    let ratio = settings.samples_per_insert.0.context("the paper limits samples per insert")?;
    let batches = transitions * ratio / settings.batch_size as f64;
    let rows = vec![
        row("environment, frames, breakout", frames, figures.cell("environment", GAME, "ours")?),
        row("inference, frames, nature, 8 lanes", frames, figures.inference("nature f32, 8 lanes")?),
        row(
            "whole actor, frames, nature, 8 lanes",
            frames,
            figures.cell("actor", "nature f32, 8 lanes", "actor")?,
        ),
        row(
            "insert, transitions, 1 writer",
            transitions,
            figures.cell("service", "unix, insert, 1 writer", "items/s")?,
        ),
        row("prefetch, batches of 32", batches, figures.cell("prefetch", "batches of 32", "batches/s")?),
        row("update, nature, batches of 32", batches, figures.best_update("nature, 32, ours")?),
        row("update, small, batches of 32", batches, figures.best_update("small, 32, ours")?),
        row(
            "publish, nature, versions",
            VERSIONS_PER_SECOND,
            1e3 / figures.cell("weights", "nature", "publish cold")?,
        ),
    ];
    Ok(Section {
        topic: "hour",
        title: format!(
            "{}M frames in one hour at {ratio} samples per insert; measured is the best figure above, of one core or \
             process; needed/measured is how many of them it takes",
            settings.frames.0 / 1_000_000
        ),
        columns: &["needed/s", "measured/s", "needed/measured"],
        rows,
    })
}

fn row(name: &str, needed: f64, measured: f64) -> Row {
    Row { name: name.to_owned(), cells: [needed, measured, needed / measured].map(Some).into() }
}

/// The sections measured so far.
struct Figures<'a>(&'a [Section]);

impl Figures<'_> {
    fn section(&self, topic: &str) -> Result<&Section> {
        let found = self.0.iter().find(|section| section.topic == topic);
        found.with_context(|| format!("section '{topic}' was not measured"))
    }

    fn cell(&self, topic: &str, row: &str, column: &str) -> Result<f64> {
        let section = self.section(topic)?;
        let found =
            section.rows.iter().find(|other| other.name == row).and_then(|row| section.cell(row, column));
        found.with_context(|| format!("section '{topic}' has no '{column}' of '{row}'"))
    }

    /// Frames per second of the forward pass alone: an actor's, by its share of an actor's time.
    fn inference(&self, row: &str) -> Result<f64> {
        let share = self.cell("actor", row, "inference %")? / 100.0;
        Ok(self.cell("actor", row, "actor")? / share)
    }

    /// The fastest of our updates whose names begin like this.
    fn best_update(&self, prefix: &str) -> Result<f64> {
        let section = self.section("pytorch")?;
        let ours = section.rows.iter().filter(|row| row.name.starts_with(prefix));
        let rates = ours.filter_map(|row| section.cell(row, "updates/s"));
        rates.reduce(f64::max).with_context(|| format!("no update begins with '{prefix}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<Section> {
        let row = |name: &str, cells: &[f64]| Row {
            name: name.to_owned(),
            cells: cells.iter().copied().map(Some).collect(),
        };
        vec![
            Section {
                topic: "actor",
                title: String::new(),
                columns: &["actor", "inference %"],
                rows: vec![row("small, 1 lane", &[1.0, 1.0]), row("nature, 8 lanes", &[5_000.0, 50.0])],
            },
            Section {
                topic: "pytorch",
                title: String::new(),
                columns: &["updates/s"],
                rows: vec![
                    row("nature, 32, ours, f32", &[40.0]),
                    row("nature, 32, ours, bf16", &[70.0]),
                    row("nature, 32, PyTorch, best", &[90.0]),
                ],
            },
        ]
    }

    #[test]
    fn figures_are_found_by_topic_row_and_column() {
        let sections = sections();
        let figures = Figures(&sections);
        assert_eq!(figures.cell("actor", "nature, 8 lanes", "actor").unwrap(), 5_000.0);
        assert_eq!(figures.inference("nature, 8 lanes").unwrap(), 10_000.0);
        assert_eq!(figures.best_update("nature, 32, ours").unwrap(), 70.0, "PyTorch's is not ours");
        let error = figures.cell("actor", "nature, 9 lanes", "actor").unwrap_err().to_string();
        assert_eq!(error, "section 'actor' has no 'actor' of 'nature, 9 lanes'");
        assert!(figures.section("service").is_err());
    }

    #[test]
    fn needed_by_measured_is_how_many_it_takes() {
        assert_eq!(row("stage", 700.0, 350.0).cells[2], Some(2.0));
    }
}
