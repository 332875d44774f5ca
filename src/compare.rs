//! `quiver compare`: groups runs that differ only in their seed, and compares the groups.
//!
//! [`found`] reads the runs, [`groups`] tells which belong together, [`mod@table`] arranges their scores, [`analysis`] computes
//! with the `stats` crate; [`text`], [`files`] and [`pictures`] present the numbers. docs/statistics.md explains them.

mod analysis;
mod files;
mod found;
mod groups;
mod pictures;
mod scale;
mod score;
mod table;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use run::directory::write_atomically;
use settings::Resolved;
use settings::nearest::hint;
use settings::text::Text;
use settings::units::{Frames, grouped};

use crate::output::{print_line, print_note};
use crate::runs;
use analysis::{Analysis, AnalysisOptions};
use found::FoundRun;
use groups::Groups;
use scale::Scale;
use score::ScoreKind;
use table::{ScoreTable, ScoredRun};

/// Compare groups of runs that differ only in their seed
#[derive(Args)]
#[command(after_help = "\
Runs with the same settings apart from the seed are a group, named by the settings in which groups differ.

Examples:
  quiver compare study --out study/compare           all runs in study/runs
  quiver compare runs/pong-*                         several runs
  quiver compare study --baseline strategy=uniform   every group with one
  quiver compare study --frames 200k                 early in training

docs/statistics.md explains the numbers and how to read the files with rliable.")]
pub struct Compare {
    /// Runs, or folders of runs such as a sweep's
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Score of a run: final (its last evaluation), auc (mean over training) or last-N (mean of the last N evaluations)
    #[arg(long, value_name = "KIND", default_value_t = ScoreKind::Final, value_parser = |text: &str| text.parse::<ScoreKind>())]
    score: ScoreKind,
    /// Take scores at this frame, between two evaluations by interpolation [default: the end of each run]
    #[arg(long, value_name = "COUNT", value_parser = |text: &str| Frames::read(text))]
    frames: Option<Frames>,
    /// Compare every group with this one only
    #[arg(long, value_name = "GROUP")]
    baseline: Option<String>,
    /// CSV with the columns game, zero, one: the scores that become 0 and 1 [default: random play and people, on Atari]
    #[arg(long, value_name = "FILE")]
    normalise: Option<PathBuf>,
    /// Include runs that have not ended
    #[arg(long)]
    unfinished: bool,
    /// Directory for compare.json, rliable.json, CSV files and pictures
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print compare.json instead of text
    #[arg(long)]
    json: bool,
    /// Rounds of bootstrap and permutation test
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    rounds: u32,
    /// Random seed of bootstrap and permutation test
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
}

/// The runs to compare, and remarks on those left out.
struct Selection {
    runs: Vec<(FoundRun, ScoredPoints)>,
    notes: Vec<String>,
}

/// The evaluations that count, and the score they give.
struct ScoredPoints {
    points: Vec<(f64, f64)>,
    score: f64,
}

impl Compare {
    pub fn run(&self) -> anyhow::Result<()> {
        let scale = self.normalise.as_deref().map(Scale::read).transpose()?;
        if let Some(out) = &self.out {
            runs::check_writable(out)
                .with_context(|| format!("can't write to {}; choose another --out", out.display()))?;
        }
        let Selection { runs, mut notes } = self.select(found::read(&self.paths)?)?;
        let resolved: Vec<&Resolved> = runs.iter().map(|(run, _)| &run.resolved).collect();
        let groups = Groups::of(&resolved, self.ignored(&resolved));
        notes.extend(remarks(&groups));
        let also = groups.also.clone();
        let table = table(groups, runs, scale)?;
        let baseline = self.baseline.as_deref().map(|label| position(&table, label)).transpose()?;
        let options = AnalysisOptions { rounds: self.rounds as usize, seed: self.seed, baseline };
        let analysis = Analysis::of(&table, &options);
        notes.extend(table.gaps());
        notes.extend(text::cautions(&table, &analysis));

        let header = files::Header {
            score: self.score.to_string(),
            frames: self.frames.map(|frames| frames.0),
            rounds: options.rounds,
            seed: self.seed,
            also: &also,
            notes: &notes,
        };
        let json = serde_json::to_string_pretty(&files::comparison(&header, &table, &analysis))?;
        if let Some(out) = &self.out {
            write(out, &json, &table, &analysis)?;
        }
        if self.json {
            return print_line(&json);
        }
        print_line(&format!("Score: {}, {}.\n", self.score.about(), self.at(&table)))?;
        print_line(text::tables(&table, &analysis).trim_end())?;
        for note in &notes {
            print_line(&format!("\nNote: {note}"))?;
        }
        if let Some(out) = &self.out {
            print_note(&format!("files: {}", out.display()));
        }
        Ok(())
    }

    /// The runs with a score. Without `--frames` these are the finished ones, with it those that were trained so far.
    fn select(&self, found: Vec<FoundRun>) -> anyhow::Result<Selection> {
        let (mut kept, mut unfinished, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for run in found {
            let points = match self.frames {
                Some(frames) => stats::curve::until(&run.points, frames.0 as f64),
                None => Some(run.points.clone()),
            };
            let scored = points.and_then(|points| {
                let score = self.score.of(&points).filter(|score| score.is_finite())?;
                Some(ScoredPoints { points, score })
            });
            let is_complete = run.finished || self.unfinished || self.frames.is_some();
            match scored {
                Some(scored) if is_complete => kept.push((run, scored)),
                Some(_) => unfinished.push(run.path.display().to_string()),
                None => empty.push(run.path.display().to_string()),
            }
        }
        let mut notes = Vec::new();
        if !unfinished.is_empty() {
            notes.push(format!(
                "Left out, not finished (--unfinished includes them): {}.",
                unfinished.join(", ")
            ));
        }
        if !empty.is_empty() {
            let why = match self.frames {
                Some(frames) => format!("no evaluation before and after {frames} frames"),
                None => "no evaluation yet".to_owned(),
            };
            notes.push(format!("Left out, {why}: {}.", empty.join(", ")));
        }
        if kept.is_empty() {
            bail!("nothing to compare. {}", notes.join(" "));
        }
        Ok(Selection { runs: kept, notes })
    }

    /// Settings that do not matter for this comparison. A run's budget does not matter for a score before its end, unless the
    /// learning rate depends on it.
    fn ignored(&self, runs: &[&Resolved]) -> &'static [&'static str] {
        let constant = runs.iter().all(|run| run.settings.learning_rate_decay == 1.0);
        if self.frames.is_some() && constant { &["frames"] } else { &[] }
    }

    fn at(&self, table: &ScoreTable) -> String {
        match self.frames {
            Some(frames) => format!("at {} frames", grouped(frames.0)),
            None => format!("at {}", text::frames(table)),
        }
    }
}

fn remarks(groups: &Groups) -> Vec<String> {
    let mut remarks = Vec::new();
    if !groups.also.is_empty() {
        remarks.push(format!("Groups differ in these settings too: {}.", groups.also.join(", ")));
    }
    if !groups.by_game.is_empty() {
        remarks.push(format!(
            "Games have different settings, the same in all groups: {}.",
            groups.by_game.join(", ")
        ));
    }
    remarks
}

fn table(
    groups: Groups,
    runs: Vec<(FoundRun, ScoredPoints)>,
    scale: Option<Scale>,
) -> anyhow::Result<ScoreTable> {
    let mut games: Vec<String> = runs.iter().map(|(run, _)| run.resolved.game.clone()).collect();
    games.sort();
    games.dedup();
    let scored = runs.into_iter().zip(groups.of_run).map(|((run, scored), group)| ScoredRun {
        game: games.iter().position(|game| *game == run.resolved.game).unwrap_or_default(),
        group,
        seed: run.resolved.settings.seed,
        frames: scored.points.last().map_or(0.0, |(frames, _)| *frames),
        score: scored.score,
        points: scored.points,
        path: run.path,
    });
    let mut scored: Vec<ScoredRun> = scored.collect();
    scored.sort_by_key(|run| (run.group, run.game, run.seed));
    ScoreTable::new(games, groups.labels, scored, scale)
}

fn position(table: &ScoreTable, label: &str) -> anyhow::Result<usize> {
    let found = table.groups.iter().position(|group| group == label);
    found.with_context(|| {
        let hint = hint(label, table.groups.iter().map(String::as_str));
        format!("no group {label}{hint}; there are {}", table.groups.join(", "))
    })
}

fn write(out: &Path, json: &str, table: &ScoreTable, analysis: &Analysis) -> anyhow::Result<()> {
    fs::create_dir_all(out)
        .with_context(|| format!("can't create {}: choose another --out", out.display()))?;
    let rliable = serde_json::to_string(&files::rliable(table))?;
    let texts = [
        ("compare.json", format!("{json}\n")),
        ("rliable.json", format!("{rliable}\n")),
        ("scores.csv", files::scores(table)),
        ("curves.csv", files::curves(table, analysis)),
        ("profile.csv", files::profiles(table, analysis)),
    ];
    for (name, text) in texts {
        write_atomically(&out.join(name), text.as_bytes())?;
    }
    for (stem, page) in pictures::all(table, analysis) {
        write_atomically(&out.join(stem).with_extension("svg"), page.svg()?.as_bytes())?;
        write_atomically(&out.join(stem).with_extension("png"), &page.png()?)?;
    }
    Ok(())
}
