//! The comparison as text.

use std::fmt::Write;

use envs::display_name;
use settings::units::grouped;
use stats::improvement::RUNS_MIN;

use super::analysis::{Analysis, Estimate, Pair, PairVerdict, seeds_min};
use super::scale::Scale;
use super::table::ScoreTable;

/// Seeds from which on the percentile intervals hold nearly as often as they say (`crates/stats/tests/coverage.rs`).
const SEEDS_FOR_INTERVALS: usize = 10;

/// Tables of games, aggregates and pairs.
pub fn tables(table: &ScoreTable, analysis: &Analysis) -> String {
    let mut out = String::new();
    for (game, name) in table.games.iter().enumerate() {
        let rows: Vec<_> = analysis.by_game.iter().filter(|row| row.game == game).collect();
        let cells = rows.iter().map(|row| {
            let mean = number(row.mean);
            let mean = row.stderr.map_or_else(|| mean.clone(), |error| format!("{mean} ± {}", number(error)));
            vec![table.groups[row.group].clone(), row.seeds.to_string(), mean, estimate(&row.iqm)]
        });
        let header = ["group", "seeds", "mean ± stderr", "IQM [95% interval]"];
        let _ = writeln!(out, "{}\n{}", display_name(name), aligned(&header, cells.collect()));
    }
    if table.compared().len() > 1 && !analysis.aggregates.is_empty() {
        let about = match table.scale {
            Some(Scale::Human) => "human-normalised: 0 is random play, 1 a person",
            _ => "normalised by the file of --normalise",
        };
        let mut header = vec!["group", "seeds"];
        header.extend(analysis.aggregates[0].estimates.iter().map(|(aggregate, _)| aggregate.name()));
        let cells = analysis.aggregates.iter().map(|row| {
            let own = [table.groups[row.group].clone(), row.seeds.to_string()];
            own.into_iter().chain(row.estimates.iter().map(|(_, one)| estimate(one))).collect()
        });
        let games = table.compared().len();
        let _ = writeln!(out, "{games} games, {about}\n{}", aligned(&header, cells.collect()));
    }
    if !analysis.pairs.is_empty() {
        let cells = analysis.pairs.iter().map(|pair| {
            vec![
                format!("{} over {}", table.groups[pair.a], table.groups[pair.b]),
                estimate(&pair.probability),
                format!("{:.3}", pair.p_adjusted),
                verdict(table, pair),
            ]
        });
        let header = ["probability of improvement", "P [95% interval]", "p (Holm)", "verdict"];
        let _ = writeln!(out, "{}", aligned(&header, cells.collect()));
    }
    out
}

/// A pair's verdict in words.
pub fn verdict(table: &ScoreTable, pair: &Pair) -> String {
    match pair.verdict {
        PairVerdict::TooFewSeeds => "none: too few seeds".to_owned(),
        PairVerdict::Open => "no difference shown".to_owned(),
        PairVerdict::Higher => format!("{} scores higher", table.groups[pair.a]),
        PairVerdict::Lower => format!("{} scores higher", table.groups[pair.b]),
    }
}

/// Remarks that a reader must know to judge the numbers.
pub fn cautions(table: &ScoreTable, analysis: &Analysis) -> Vec<String> {
    let mut notes = Vec::new();
    if table.groups.len() == 1 {
        notes.push(
            "All runs differ only in their seed: there is one group, and nothing to compare it with."
                .to_owned(),
        );
    }
    if !table.has_unit() && table.compared().len() > 1 {
        let missing = table.without_reference(&Scale::Human).join(", ");
        notes.push(format!(
            "Scores of different games are not averaged, because {missing} has no random and human reference; --normalise \
             FILE gives one. The probability of improvement needs none."
        ));
    }
    let seeds = seeds_min(table);
    if analysis.pairs.iter().any(|pair| pair.verdict == PairVerdict::TooFewSeeds) {
        notes.push(format!("Fewer than {RUNS_MIN} seeds are too few to compare: no verdict."));
    }
    if (2..SEEDS_FOR_INTERVALS).contains(&seeds) {
        notes.push(format!(
            "With {seeds} seeds the 95% intervals are too narrow (docs/statistics.md has their coverage); the p-values are not \
             affected."
        ));
    }
    notes
}

/// `1,204 frames`, or the range.
pub fn frames(table: &ScoreTable) -> String {
    let all = || table.runs.iter().map(|run| run.frames);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    match (grouped(low as u64), grouped(high as u64)) {
        (low, high) if low == high => format!("{high} frames"),
        (low, high) => format!("{low} to {high} frames"),
    }
}

fn estimate(estimate: &Estimate) -> String {
    let value = number(estimate.value);
    let interval = estimate.interval.map(|interval| (number(interval.low), number(interval.high)));
    interval.map_or_else(|| value.clone(), |(low, high)| format!("{value} [{low}, {high}]"))
}

/// Three or four significant digits, and all digits of the whole part.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 1_000.0 => 0,
        large if large >= 10.0 => 1,
        medium if medium >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Columns as wide as their widest cell; the first to the left, the others to the right.
fn aligned(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = [header].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("  {cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_short() {
        let rows = vec![vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "22".to_owned()]];
        assert_eq!(aligned(&["x", "n"], rows), "  x      n\n  a      1\n  long  22\n");
        let shown = [12_345.678, 123.456, 1.2345, -0.01234].map(number);
        assert_eq!(shown, ["12346", "123.5", "1.23", "-0.012"]);
    }
}
