//! The pictures of figure 4.

use anyhow::Result;
use plot::{Axis, Colour, Layer, Page, Panel};
use settings::algorithms::{self, Algorithm};
use settings::choices::EvaluationPolicy;

use super::groups::Group;
use super::real::{Line, NAMES};
use super::runs::Part;
use super::{ALGORITHMS, by_rate, find};
use crate::figure::Figure;
use crate::options::Options;
use crate::scatter::{self, Scale};

/// The share of DQN's transitions that its panels reach to; the rest would press them into a corner.
const SHOWN_SHARE: f64 = 0.99;

/// Draws all and adds them to the figure.
pub fn draw(figure: &mut Figure, options: &Options, groups: &[Group]) -> Result<()> {
    figure.picture(
        options,
        "fig4",
        "The metrics against their upper bound, |TD| for DQN (99% of the transitions) and ρ^max·|TD| for soft DQN (logarithmic); \
         no point lies above the line.",
        &upper(groups),
    )?;
    figure.picture(
        options,
        "fig4_lower",
        "Soft DQN's metrics against the lower bound ρ^min·|TD|: |EVB| and |EIV| never below the line, |PIV| often.",
        &lower(groups),
    )?;
    figure.picture(
        options,
        "fig4_curves",
        "Score by steps, appendix's settings above, ours below; the dashed line is 195, where CartPole counts as solved.",
        &curves(groups),
    )?;
    figure.picture(
        options,
        "fig4_real",
        "Beyond the paper: how often the metrics of a real gradient step lie above the upper bound, and how far 95% of them \
         reach in units of it, by learning rate. What is 0 has no point.",
        &real(groups),
    )
}

fn upper(groups: &[Group]) -> Page {
    let mut page = Page::new(
        "DQN and soft DQN on CartPole",
        "what an experience is worth, against the bound; the target stands in for the new Q",
    );
    (page.columns, page.size) = (3, (1100, 760));
    let looks =
        [("|TD|", Colour::Blue, Scale::Linear(SHOWN_SHARE)), ("ρ^max·|TD|", Colour::Orange, Scale::Log)];
    for (algorithm, (bound, colour, scale)) in ALGORITHMS.into_iter().zip(looks) {
        let kept = find(groups, Part::Appendix, algorithm).tally.kept();
        let bound: (&str, scatter::Number) = (bound, |experience| experience.bounds.upper);
        page.panels.extend(scatter::panels(kept, algorithm.title, bound, colour, scale));
    }
    page
}

fn lower(groups: &[Group]) -> Page {
    let mut page = Page::new("Soft DQN on CartPole", "what an experience is worth, against the lower bound");
    (page.columns, page.size) = (3, (1100, 420));
    let kept = find(groups, Part::Appendix, algorithms::SOFT_DQN).tally.kept();
    let bound: (&str, scatter::Number) = ("ρ^min·|TD|", |experience| experience.bounds.lower);
    page.panels.extend(scatter::lower_panels(kept, "", bound, Colour::Orange));
    page
}

fn curves(groups: &[Group]) -> Page {
    let mut page =
        Page::new("CartPole by both policies", "mean and standard error over seeds (over games if one)");
    (page.columns, page.size) = (2, (1000, 720));
    for (part, settings) in [(Part::Appendix, "appendix's settings"), (Part::Ours, "our settings")] {
        for algorithm in ALGORITHMS {
            let group = find(groups, part, algorithm);
            let axes = (Axis::linear("steps (thousands)"), Axis::linear("score").range(0.0..210.0));
            let mut panel = Panel::new(format!("{}, {settings}", algorithm.title), axes.0, axes.1);
            let policies = [EvaluationPolicy::Stochastic, EvaluationPolicy::Greedy];
            for (policy, colour) in policies.into_iter().zip([Colour::Orange, Colour::Blue]) {
                let points = group.curve(policy);
                let points = points.iter().map(|point| (point.frames as f64 / 1e3, point.mean, point.stderr));
                panel = panel.with(Layer::curve(policy.to_string(), colour, points.collect()));
            }
            let last =
                group.curve(EvaluationPolicy::Greedy).last().map_or(1.0, |point| point.frames as f64 / 1e3);
            let solved = vec![(0.0, super::SOLVED), (last, super::SOLVED)];
            page.panels.push(panel.with(Layer::dashed("195", Colour::Grey, solved)));
        }
    }
    page
}

fn real(groups: &[Group]) -> Page {
    let mut page = Page::new(
        "What a real gradient step does",
        "metrics of Q(θ) before and after the step, against the bounds for the target as the new Q",
    );
    (page.columns, page.size) = (2, (1000, 720));
    let share = |line: &Line| 100.0 * line.above;
    for algorithm in ALGORITHMS {
        let axes = (Axis::log("learning rate"), Axis::linear("above the bound (%)"));
        let panel = Panel::new(algorithm.title, axes.0, axes.1);
        page.panels.push(against_rate(panel, groups, algorithm, &share));
    }
    for algorithm in ALGORITHMS {
        let axes = (Axis::log("learning rate"), Axis::log("95th percentile of |metric|/bound"));
        let panel = Panel::new(algorithm.title, axes.0, axes.1);
        page.panels.push(against_rate(panel, groups, algorithm, &|line| line.p95));
    }
    page
}

/// A number of each metric against the learning rate. What is 0 has no place on a logarithmic axis and little on another.
fn against_rate(
    mut panel: Panel,
    groups: &[Group],
    algorithm: Algorithm,
    number: &dyn Fn(&Line) -> f64,
) -> Panel {
    let of: Vec<&Group> = by_rate(groups).into_iter().filter(|group| group.algorithm == algorithm).collect();
    for (metric, colour) in NAMES.into_iter().zip([Colour::Blue, Colour::Orange, Colour::Green]) {
        let point = |group: &&Group| {
            let line = group.real.lines().into_iter().find(|line| line.metric == metric)?;
            Some((group.learning_rate, number(&line), 0.0))
        };
        let points: Vec<_> = of.iter().filter_map(point).filter(|(_, height, _)| *height > 0.0).collect();
        if !points.is_empty() {
            let layer = Layer::curve(format!("|{}|", metric.to_uppercase()), colour, points);
            // |EIV| lies so near to |EVB| that one would hide the other.
            panel = panel.with(if metric == "eiv" { layer.dashes(5.0, 5.0) } else { layer });
        }
    }
    panel
}
