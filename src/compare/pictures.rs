//! The pictures of a comparison.

use ::plot::{Axis, Colour, Layer, Page, Panel};
use envs::display_name;
use stats::Interval;
use stats::aggregate::Aggregate;

use super::analysis::{Analysis, Curve, Estimate};
use super::table::ScoreTable;
use crate::plot::frame_unit;

/// Dash and gap of the second seven groups, which reuse colours.
const DASHES: (f64, f64) = (6.0, 3.0);

/// Panels in a row.
const COLUMNS: usize = 3;

/// A picture and the stem of its file's name.
pub type ComparisonPicture = (&'static str, Page);

/// Every picture that there are numbers for.
pub fn all(table: &ScoreTable, analysis: &Analysis) -> Vec<ComparisonPicture> {
    let mut pictures = Vec::new();
    if !analysis.aggregates.is_empty() {
        pictures.push(("aggregates", aggregates(table, analysis)));
    }
    if !analysis.profiles.is_empty() {
        pictures.push(("profile", profile(table, analysis)));
    }
    if !analysis.pairs.is_empty() {
        pictures.push(("improvement", improvement(table, analysis)));
    }
    if !analysis.curves.is_empty() {
        pictures.push(("curves", curves(table, analysis)));
    }
    pictures
}

/// A panel for each aggregate, a point with its interval for each group.
fn aggregates(table: &ScoreTable, analysis: &Analysis) -> Page {
    let rows = &analysis.aggregates;
    let about = if table.scale.is_some() { "; of the optimality gap less is better" } else { "" };
    let about = format!("over {}; bars: 95% bootstrap intervals{about}", seeds(table));
    let mut page = Page::new(games(table), about);
    for (index, (aggregate, _)) in rows[0].estimates.iter().enumerate() {
        let title = match aggregate {
            Aggregate::Median => "Median",
            Aggregate::InterquartileMean => "Interquartile mean",
            Aggregate::Mean => "Mean",
            Aggregate::OptimalityGap => "Optimality gap",
        };
        let places = 0.0..rows.len() as f64 + 1.0;
        let y = Axis::linear(if index == 0 { table.unit_label() } else { "" });
        let mut panel = Panel::new(title, Axis::linear("").range(places).bare(), y);
        for (place, row) in rows.iter().enumerate() {
            let point = ends(place as f64 + 1.0, &row.estimates[index].1);
            panel = panel.with(Layer::intervals(&table.groups[row.group], style(row.group).0, vec![point]));
        }
        page.panels.push(panel);
    }
    page.columns = page.panels.len();
    page.size = (1000, 420);
    page
}

fn profile(table: &ScoreTable, analysis: &Analysis) -> Page {
    let about =
        format!("share of runs above a score, {}; bands: 95%, for each threshold on its own", seeds(table));
    let mut page = Page::new(games(table), about);
    let y = Axis::linear("share of runs above").range(0.0..1.0);
    let mut panel = Panel::new("", Axis::linear(table.unit_label()), y);
    for profile in &analysis.profiles {
        let points = profile.points.iter().map(|(threshold, share)| ends(*threshold, share));
        panel = panel.with(line(table, profile.group, points.collect()));
    }
    page.panels.push(panel);
    page
}

/// A row for each pair: its name, and below it the interval.
fn improvement(table: &ScoreTable, analysis: &Analysis) -> Page {
    /// Where a row's words are, and its interval, of a height of 1.
    const WORDS: f64 = 0.72;
    const BAR: f64 = 0.32;
    let pairs = &analysis.pairs;
    let about =
        format!("probability that a run of the first group scores higher, {}; bars: 95%", seeds(table));
    let mut page = Page::new(games(table), about);
    let x = Axis::linear("probability of improvement").range(0.0..1.0);
    let count = pairs.len() as f64;
    let mut panel = Panel::new("", x, Axis::linear("").range(0.0..count).bare());
    for (row, pair) in pairs.iter().enumerate() {
        let bottom = count - row as f64 - 1.0;
        let (value, y) = (pair.probability.value, bottom + BAR);
        let label = format!("{} over {}", table.groups[pair.a], table.groups[pair.b]);
        panel = panel.with(Layer::words((0.5, bottom + WORDS), label));
        // Not through the words.
        panel =
            panel.with(Layer::dashed("", Colour::Grey, vec![(0.5, bottom), (0.5, bottom + 2.0 * BAR - 0.1)]));
        if let Some(Interval { low, high }) = pair.probability.interval {
            // Dashes of no length are a solid line, and unlike a curve it has no marks.
            panel = panel.with(Layer::dashed("", Colour::Blue, vec![(low, y), (high, y)]).dashes(0.0, 0.0));
        }
        panel = panel.with(Layer::curve("", Colour::Blue, vec![(value, y, 0.0)]));
    }
    page.panels.push(panel);
    page.size = (800, 160 + 56 * pairs.len() as u32);
    page
}

/// A panel for each game, after one for all games together if they have a common scale.
fn curves(table: &ScoreTable, analysis: &Analysis) -> Page {
    let about =
        format!("interquartile mean of evaluations over {}; bands: 95% bootstrap intervals", seeds(table));
    let mut page = Page::new(games(table), about);
    let frames = analysis.curves.iter().flat_map(|curve| &curve.points).map(|(frames, _)| *frames);
    let (unit, per_unit) = frame_unit(frames.fold(1.0, f64::max));
    let mut panels: Vec<Option<usize>> = analysis.curves.iter().map(|curve| curve.game).collect();
    panels.dedup();
    for game in panels {
        let (title, y) = match game {
            Some(game) => (display_name(&table.games[game]), "score"),
            None => ("All games".to_owned(), table.unit_label()),
        };
        let title = if table.games.len() == 1 { String::new() } else { title };
        let mut panel = Panel::new(title, Axis::linear(unit), Axis::linear(y));
        for Curve { group, points, .. } in analysis.curves.iter().filter(|curve| curve.game == game) {
            let points = points.iter().map(|(frames, score)| ends(frames / per_unit, score));
            panel = panel.with(line(table, *group, points.collect()));
        }
        page.panels.push(panel);
    }
    page.columns = page.panels.len().clamp(1, COLUMNS);
    let rows = page.panels.len().div_ceil(page.columns) as u32;
    page.size = match page.columns {
        1 => page.size,
        2 => (1000, 120 + 330 * rows),
        _ => (1100, 120 + 300 * rows),
    };
    page
}

fn line(table: &ScoreTable, group: usize, points: Vec<(f64, f64, f64, f64)>) -> Layer {
    let (colour, is_dashed) = style(group);
    let layer = Layer::intervals(&table.groups[group], colour, points);
    if is_dashed { layer.dashes(DASHES.0, DASHES.1) } else { layer }
}

fn style(group: usize) -> (Colour, bool) {
    let colours = Colour::DATA.len();
    (Colour::DATA[group % colours], group / colours % 2 == 1)
}

fn ends(x: f64, estimate: &Estimate) -> (f64, f64, f64, f64) {
    let Estimate { value, interval } = *estimate;
    let Interval { low, high } = interval.unwrap_or(Interval { low: value, high: value });
    (x, value, low, high)
}

fn games(table: &ScoreTable) -> String {
    match table.games.as_slice() {
        games if games.len() > COLUMNS => format!("{} games", games.len()),
        games => games.iter().map(|game| display_name(game)).collect::<Vec<_>>().join(", "),
    }
}

/// `5 seeds`, or the range over games and groups.
fn seeds(table: &ScoreTable) -> String {
    let counts = (0..table.games.len())
        .flat_map(|game| (0..table.groups.len()).map(move |group| (game, group)))
        .map(|(game, group)| table.runs_of(game, group).count())
        .filter(|count| *count > 0);
    let (low, high) = counts.fold((usize::MAX, 0), |(low, high), count| (low.min(count), high.max(count)));
    match (low, high) {
        (1, 1) => "1 seed".to_owned(),
        (low, high) if low == high => format!("{high} seeds"),
        (low, high) => format!("{low} to {high} seeds"),
    }
}
