//! What figures 2 and 3 write and show of their runs: files, the table, the learning curves, the lengths in words.

use anyhow::Result;
use envs::grid::Grid;
use plot::{Axis, Colour, Layer, Page, Panel};

use super::runs::LAST;
use super::{Runs, STEPS_MAX, Setup};
use crate::experience::{Rule, Tally};
use crate::figure::Figure;
use crate::options::Options;
use stats::aggregate::quantile;

/// Writes the transitions of the main experiment, those of the variants, and the lengths of all episodes. The main
/// experiment comes first.
pub fn write(options: &Options, name: &str, tallies: &[Tally], runs: &[Runs]) -> Result<()> {
    let (main, variants) = tallies.split_at(1);
    for (suffix, tallies) in [("", main), ("_variants", variants)] {
        let kept = tallies.iter().flat_map(Tally::kept);
        options.csv(&format!("{name}{suffix}.csv"), &super::header(), kept.map(super::row))?;
    }
    let curves = runs.iter().flat_map(Runs::curve_rows);
    options.csv(&format!("{name}_curves.csv"), &Runs::CURVE_HEADER, curves)?;
    let episodes = runs.iter().flat_map(Runs::episode_rows);
    options.csv(&format!("{name}_episodes.csv"), &Runs::EPISODE_HEADER, episodes)?;
    Ok(())
}

/// The lengths by which runs are judged, in words.
pub fn describe_lengths(runs: &Runs) -> String {
    let lengths = runs.last_lengths();
    let [least, median, most] = [0.0, 0.5, 1.0].map(|share| quantile(&lengths, share));
    format!(
        "mean length of the last {LAST} episodes over {} seeds: median {median:.1}, from {least:.1} to {most:.1} steps",
        lengths.len()
    )
}

/// Adds the table of all setups, the main experiment first.
pub fn runs_table(figure: &mut Figure, tallies: &[Tally], runs: &[Runs]) {
    let row = |(tally, runs): (&Tally, &Runs)| {
        let Setup { rule, rate, terminal_mask, .. } = runs.setup;
        let temperature = match rule {
            Rule::Hard => "–".to_owned(),
            Rule::Soft(temperature) => temperature.to_string(),
        };
        let mask = if terminal_mask { "yes" } else { "no" };
        let lengths = runs.last_lengths();
        let [least, median, most] = [0.0, 0.5, 1.0].map(|share| format!("{:.1}", quantile(&lengths, share)));
        let truncated = runs.episodes.iter().flatten().filter(|episode| !episode.terminated).count();
        let share = 100.0 * truncated as f64 / runs.episodes.iter().flatten().count() as f64;
        let first = cells![label(&runs.setup), temperature, rate, mask, lengths.len()];
        let last = cells![median, format!("{least} to {most}"), format!("{share:.1}%")];
        [first, last, tally.cells().to_vec()].concat()
    };
    let first = ["setup", "β", "α", "terminal mask", "seeds"];
    let last = ["steps at the end, median", "range", "truncated episodes"];
    let columns = [&first[..], &last, &Tally::COLUMNS].concat();
    let caption = format!(
        "All setups: the main experiment, then our variants, which differ from it in one setting. Steps at the end are the \
         mean length of a run's last {LAST} episodes; an episode is truncated after {STEPS_MAX} steps"
    );
    figure.table(&caption, &columns, tallies.iter().zip(runs).map(row).collect());
}

/// The setup's name for readers.
fn label(setup: &Setup) -> String {
    if setup.variant == Setup::MAIN {
        "as in the authors' notebook".to_owned()
    } else {
        format!("ours: {}", setup.variant)
    }
}

/// Steps of each episode, logarithmic, of all setups.
pub fn learning(title: &str, runs: &[Runs]) -> Page {
    let grid = Grid::maze();
    let shortest = grid.distances()[grid.start()].map_or(0.0, f64::from);
    let mut panel = Panel::new("", Axis::linear("episode"), Axis::log("steps"));
    let colours = [Colour::Blue, Colour::Orange, Colour::Green, Colour::Pink, Colour::Grey];
    let mut last = 1.0f64;
    for (runs, colour) in runs.iter().zip(colours) {
        let curve = runs.curve();
        last = last.max(curve.len() as f64);
        let points = curve.into_iter().enumerate();
        let points = points.map(|(episode, (mean, error))| (episode as f64 + 1.0, mean, error)).collect();
        let layer = Layer::curve(label(&runs.setup), colour, points);
        let is_main = runs.setup.variant == Setup::MAIN;
        panel = panel.with(if is_main { layer } else { layer.dashes(6.0, 4.0) });
    }
    let shortest = vec![(1.0, shortest), (last, shortest)];
    panel = panel.with(Layer::dashed("shortest path", Colour::Black, shortest));
    let mut page = Page::new(title, "5×5 maze; mean and standard error over seeds");
    page.panels.push(panel);
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Effort;

    #[test]
    fn variants_are_in_files_of_their_own() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 0, out: out.path().to_owned() };
        let main = Setup::main(Rule::Hard);
        let setups = [main, Setup { variant: "terminal-mask", terminal_mask: true, ..main }];
        let (tallies, runs) = crate::maze::learn_all(&setups, 2, 0);
        write(&options, "figure", &tallies, &runs).unwrap();
        let lines = |name: &str| -> Vec<String> {
            let text = std::fs::read_to_string(out.path().join(name)).unwrap();
            text.lines().skip(1).map(str::to_owned).collect()
        };
        assert!(lines("figure.csv").iter().all(|line| line.starts_with("main,")));
        assert!(lines("figure_variants.csv").iter().all(|line| line.starts_with("terminal-mask,")));
        assert_eq!(lines("figure_episodes.csv").len(), 2 * 2 * 50);
        assert_eq!(lines("figure_curves.csv").len(), 2 * 50);
        let steps: u64 = lines("figure_episodes.csv")[..100]
            .iter()
            .map(|line| line.split(',').nth(6).unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(steps, tallies[0].count, "every step is an experience");
    }
}
