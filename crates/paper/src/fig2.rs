//! Figure 2: tabular Q-learning in the maze. |TD| bounds what an experience is worth.
//!
//! Theorem 1 says that |EVB|, |PIV| and |EIV| are at most α·|TD|; and |EIV| is α·|TD| if the action was greedy and 0 if
//! not, since the old policy then does not take it.

use std::time::Instant;

use anyhow::Result;
use plot::{Axis, Colour, Layer, Page, Panel};
use settings::units::grouped;

use crate::experience::{Experience, Rule, Tally};
use crate::figure::{Figure, Verdict};
use crate::maze::{Curve, STEPS_MAX, TRIALS, Way};
use crate::options::Options;
use crate::scatter::{self, Scale};

/// α: the paper's, and one that goes half the way.
const RATES: [f64; 2] = [1.0, 0.5];
/// Runs for each of them.
const SEEDS: (u64, u64) = (5, 100);

/// Runs the experiment and concludes from it.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<Figure> {
    let started = Instant::now();
    let seeds = options.effort.pick(SEEDS.0, SEEDS.1);
    let (mut curves, mut tallies) = (Vec::new(), Vec::new());
    for rate in RATES {
        say(&format!("fig2: Q-learning with alpha {rate}, {seeds} seeds"));
        let mut tally = Tally::new();
        let way = Way { rule: Rule::Hard, rate, trials: TRIALS, steps_max: STEPS_MAX };
        curves.push(Curve::learn(way, seeds, options.seed, |experience| tally.add(experience)));
        tallies.push(tally);
    }
    conclude(options, &tallies, &curves, seeds, started)
}

/// Draws what was seen, and writes `fig2.csv` and `fig2_curves.csv`. An error, once all is written, if a bound was violated.
pub(crate) fn conclude(
    options: &Options,
    tallies: &[Tally],
    curves: &[Curve],
    seeds: u64,
    started: Instant,
) -> Result<Figure> {
    write(options, "fig2", tallies, curves)?;
    let mut figure = Figure::new("fig2", "Maze, Q-learning: |TD| bounds EVB, PIV and EIV", options);
    figure.about = format!(
        "Tabular Q-learning in a 5×5 maze, {TRIALS} trials, ε from 1 to 0.001 by the same factor from trial to trial, \
         γ 0.99, α 1 and 0.5, {seeds} seeds each. Every update is one experience."
    );
    let count: u64 = tallies.iter().map(|tally| tally.count).sum();
    claim_bounds(&mut figure, "|EVB|, |PIV| and |EIV| are at most α·|TD| on every transition", tallies);
    let between: u64 = tallies.iter().map(|tally| tally.in_between).sum();
    let measured = format!("{} of {} lie elsewhere", grouped(between), grouped(count));
    figure.claim("|EIV| is α·|TD| or 0", measured, Verdict::of(between == 0));
    tally_table(&mut figure, tallies, curves);

    let mut page =
        Page::new("Q-learning in the maze", "what an experience is worth, against the change of its Q-value");
    (page.columns, page.size) = (3, (1100, 760));
    for (tally, (title, colour)) in tallies.iter().zip([("α = 1", Colour::Blue), ("α = 0.5", Colour::Orange)])
    {
        page.panels.extend(scatter::panels(
            tally.kept(),
            title,
            ("α·|TD|", |experience| experience.bounds.upper),
            colour,
            Scale::Linear(1.0),
        ));
    }
    figure.picture(
        options,
        "fig2",
        "|EVB|, |PIV| and |EIV| against α·|TD|; no point lies above the line.",
        &page,
    )?;
    let page = learning("Q-learning finds the short way", curves, &|way| format!("α = {}", way.rate));
    figure.picture(
        options,
        "fig2_curves",
        "Steps from start to goal, mean and standard error over seeds; the dashed line is the shortest way.",
        &page,
    )?;
    figure.setting("alpha", "1 and 0.5");
    figure.setting("gamma", crate::maze::DISCOUNT);
    figure.setting("trials", TRIALS);
    figure.setting("seeds", seeds);
    let figure = figure.finish(options, started)?;
    tallies.iter().try_for_each(Tally::check)?;
    Ok(figure)
}

/// Adds the table of each learner's transitions.
pub(crate) fn tally_table(figure: &mut Figure, tallies: &[Tally], curves: &[Curve]) {
    let row = |(tally, curve): (&Tally, &Curve)| {
        let learner = match curve.way.rule {
            Rule::Hard => "Q-learning".to_owned(),
            Rule::Soft(temperature) => format!("soft, β = {temperature}"),
        };
        let end = format!("{:.1}", curve.last());
        [cells![learner, curve.way.rate], tally.cells().to_vec(), vec![end]].concat()
    };
    let columns = [&["learner", "alpha"][..], &Tally::COLUMNS, &["steps at the end"]].concat();
    figure.table("Transitions", &columns, tallies.iter().zip(curves).map(row).collect());
}

/// Adds the claim that no bound was violated.
pub(crate) fn claim_bounds(figure: &mut Figure, claim: &str, tallies: &[Tally]) {
    let sum = |number: fn(&Tally) -> u64| tallies.iter().map(number).sum::<u64>();
    let (count, violations) = (sum(|tally| tally.count), sum(|tally| tally.violations));
    let excess = tallies.iter().map(|tally| tally.largest_excess).fold(f64::NEG_INFINITY, f64::max);
    let measured = format!(
        "{} violations in {} transitions, {} of which have a bound above rounding; the largest excess is {excess:.1e} of its \
         bound; {} have |EVB| on it",
        grouped(violations),
        grouped(count),
        grouped(sum(|tally| tally.telling)),
        grouped(sum(|tally| tally.on_bound))
    );
    figure.claim(claim, measured, Verdict::of(violations == 0));
}

/// Writes an even sample of the experiences, and the curves.
pub(crate) fn write(options: &Options, name: &str, tallies: &[Tally], curves: &[Curve]) -> Result<()> {
    let header = Experience::header(envs::grid::ACTIONS.len());
    let rows = tallies.iter().flat_map(|tally| tally.kept().iter().map(Experience::row));
    options.csv(&format!("{name}.csv"), &header, rows)?;
    options.csv(&format!("{name}_curves.csv"), &Curve::HEADER, curves.iter().flat_map(Curve::rows))?;
    Ok(())
}

/// Steps to the goal by trial, logarithmic.
pub(crate) fn learning(title: &str, curves: &[Curve], name: &dyn Fn(&Way) -> String) -> Page {
    let grid = envs::grid::Grid::maze();
    let shortest = grid.distances()[grid.start()].map_or(0.0, f64::from);
    let mut panel = Panel::new("", Axis::linear("trial"), Axis::log("steps of a trial"));
    for (curve, colour) in curves.iter().zip([Colour::Blue, Colour::Orange, Colour::Green, Colour::Pink]) {
        let points = curve.steps.iter().enumerate();
        let points = points.map(|(trial, (mean, error))| (trial as f64 + 1.0, *mean, *error)).collect();
        let layer = Layer::curve(name(&curve.way), colour, points);
        // Trials that are all cut off lie on one line.
        panel = panel.with(if colour == Colour::Pink { layer.dashes(6.0, 6.0) } else { layer });
    }
    let last = curves.iter().map(|curve| curve.steps.len()).max().unwrap_or(1) as f64;
    panel =
        panel.with(Layer::dashed("the shortest way", Colour::Grey, vec![(1.0, shortest), (last, shortest)]));
    let mut page = Page::new(title, "5×5 maze; mean and standard error over seeds");
    page.panels.push(panel);
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Effort;

    #[test]
    fn a_small_version_holds_what_the_theorem_says() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 1, out: out.path().to_owned() };
        let figure = run(&options, &|_| {}).unwrap();
        assert!(figure.holds(), "{:?}", figure.claims);
        let rows = std::fs::read_to_string(out.path().join("fig2.csv")).unwrap();
        assert!(rows.starts_with("trial,step,temperature,alpha,q_0,q_1,q_2,q_3,action,reward,target,td,change,evb,piv,eiv,upper,lower,value\n"));
        assert!(rows.lines().count() > 1_000);
        crate::agrees(out.path());
    }
}
