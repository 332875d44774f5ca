//! The comparison as JSON and CSV.

use serde_json::{Map, Value, json};
use stats::Interval;

use super::analysis::{Analysis, Estimate};
use super::table::ScoreTable;

/// What was compared, for `compare.json`.
pub struct Header<'a> {
    pub score: String,
    pub frames: Option<u64>,
    pub rounds: usize,
    pub seed: u64,
    /// Settings that differ between groups and that no label names.
    pub also: &'a [&'static str],
    pub notes: &'a [String],
}

/// `compare.json`: all numbers of the text, and the runs they come from.
pub fn comparison(header: &Header<'_>, table: &ScoreTable, analysis: &Analysis) -> Value {
    let label = |group: usize| &table.groups[group];
    let game = |game: usize| &table.games[game];
    let runs = table.runs.iter().map(|run| {
        json!({
            "path": run.path.display().to_string(), "group": label(run.group), "game": game(run.game),
            "seed": run.seed, "frames": run.frames, "score": run.score,
        })
    });
    let by_game = analysis.by_game.iter().map(|row| {
        json!({
            "game": game(row.game), "group": label(row.group), "seeds": row.seeds, "mean": row.mean,
            "standard_error": row.stderr, "iqm": estimate(&row.iqm),
        })
    });
    let aggregates = analysis.aggregates.iter().map(|row| {
        let mut all = Map::new();
        all.insert("group".to_owned(), json!(label(row.group)));
        all.insert("seeds".to_owned(), json!(row.seeds));
        all.extend(row.estimates.iter().map(|(what, one)| (what.name().to_owned(), estimate(one))));
        Value::Object(all)
    });
    let pairs = analysis.pairs.iter().map(|pair| {
        json!({
            "a": label(pair.a), "b": label(pair.b), "probability_of_improvement": estimate(&pair.probability),
            "p": pair.p, "p_adjusted": pair.p_adjusted, "verdict": pair.verdict.name(),
        })
    });
    json!({
        "score": header.score,
        "frames": header.frames,
        "rounds": header.rounds,
        "seed": header.seed,
        "confidence": 0.95,
        "scale": if table.has_unit() { Some(table.scale.as_ref().map_or("score", |scale| scale.name())) } else { None },
        "games": table.games,
        "compared_games": table.compared().into_iter().map(game).collect::<Vec<_>>(),
        "groups": table.groups,
        "also_differ_in": header.also,
        "by_game": by_game.collect::<Vec<_>>(),
        "aggregates": aggregates.collect::<Vec<_>>(),
        "pairs": pairs.collect::<Vec<_>>(),
        "runs": runs.collect::<Vec<_>>(),
        "notes": header.notes,
    })
}

/// `rliable.json`: for each group the scores as runs × games, in the order of `compared_games`; the complete seeds only.
/// They are on the common scale, if there is one.
pub fn rliable(table: &ScoreTable) -> Value {
    let matrix = |group: usize| -> Vec<Vec<f64>> {
        let of_game = |game: usize| -> Vec<f64> {
            let runs = table.complete_runs(game, group);
            runs.into_iter().map(|run| table.unit(game, run.score)).collect()
        };
        let columns: Vec<Vec<f64>> = table.compared().into_iter().map(of_game).collect();
        let runs = columns.first().map_or(0, Vec::len);
        (0..runs).map(|run| columns.iter().map(|column| column[run]).collect()).collect()
    };
    let groups = table.groups.iter().enumerate();
    Value::Object(groups.map(|(group, label)| (label.clone(), json!(matrix(group)))).collect())
}

/// `scores.csv`: a line for each run.
pub fn scores(table: &ScoreTable) -> String {
    let rows = table.runs.iter().map(|run| {
        let normalised =
            table.scale.as_ref().and_then(|scale| scale.apply(&table.games[run.game], run.score));
        vec![
            table.groups[run.group].clone(),
            table.games[run.game].clone(),
            run.seed.to_string(),
            run.frames.to_string(),
            run.score.to_string(),
            normalised.map_or_else(String::new, |score| score.to_string()),
        ]
    });
    csv(&["group", "game", "seed", "frames", "score", "normalised"], rows)
}

/// `curves.csv`: interquartile means during training; game `all` is all compared games together, normalised.
pub fn curves(table: &ScoreTable, analysis: &Analysis) -> String {
    let rows = analysis.curves.iter().flat_map(|curve| {
        let game = curve.game.map_or("all", |game| &table.games[game]);
        curve.points.iter().map(move |(frames, estimate)| {
            let own = [&table.groups[curve.group], game].map(str::to_owned);
            let numbers = [frames.to_string(), curve.seeds.to_string()];
            own.into_iter().chain(numbers).chain(cells(estimate)).collect()
        })
    });
    csv(&["group", "game", "frames", "seeds", "iqm", "low", "high"], rows)
}

/// `profile.csv`: the performance profiles.
pub fn profiles(table: &ScoreTable, analysis: &Analysis) -> String {
    let rows = analysis.profiles.iter().flat_map(|profile| {
        profile.points.iter().map(move |(threshold, estimate)| {
            let own = [table.groups[profile.group].clone(), threshold.to_string()];
            own.into_iter().chain(cells(estimate)).collect()
        })
    });
    csv(&["group", "threshold", "share", "low", "high"], rows)
}

fn estimate(estimate: &Estimate) -> Value {
    let (low, high) = ends(estimate.interval);
    json!({ "value": estimate.value, "low": low, "high": high })
}

fn ends(interval: Option<Interval>) -> (Option<f64>, Option<f64>) {
    interval.map(|interval| (interval.low, interval.high)).unzip()
}

fn cells(estimate: &Estimate) -> [String; 3] {
    let (low, high) = ends(estimate.interval);
    let text = |end: Option<f64>| end.map_or_else(String::new, |end| end.to_string());
    [estimate.value.to_string(), text(low), text(high)]
}

/// Cells with a comma or a quote are quoted. No cell has a line break.
fn csv(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let cell = |cell: String| {
        if cell.contains([',', '"']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
    };
    let line = |row: Vec<String>| row.into_iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    [header].into_iter().chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let rows = vec![vec!["without_shards=0,1".to_owned(), "a\"b".to_owned()]];
        assert_eq!(csv(&["x", "y"], rows.into_iter()), "x,y\n\"without_shards=0,1\",\"a\"\"b\"\n");
    }
}
