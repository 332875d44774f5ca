//! The pictures of figure 4.

use anyhow::Result;
use plot::{Axis, Colour, Layer, Page, Panel};
use settings::choices::EvaluationPolicy;

use super::groups::Group;
use super::interval::SeedInterval;
use super::real::{LineOverSeeds, NAMES};
use super::runs::{Part, Played};
use super::settings::{DQN, FigureLearner, SOFT_DQN, Source};
use super::{RATE_LEARNERS, SOLVED, by_rate, find};
use crate::figure::Figure;
use crate::options::Options;
use crate::scatter;

/// Draws all and adds them to the figure.
pub fn draw(figure: &mut Figure, options: &Options, groups: &[Group]) -> Result<()> {
    for (stem, source) in [("fig4", Source::Paper), ("fig4_authors", Source::Authors)] {
        let caption = format!(
            "{}: the metrics against their upper bound, |TD| for DQN and ρ^max·|TD| for soft DQN; no point lies above the line. \
             A metric of 0 has no place on a logarithmic axis; the headings count these.",
            source.preset()
        );
        figure.picture(options, stem, &caption, &upper(groups, source))?;
    }
    figure.picture(
        options,
        "fig4_lower",
        "Soft DQN's metrics against the lower bound ρ^min·|TD|: |EVB| and |EIV| never below the line. No theorem bounds |PIV| \
         from below.",
        &lower(groups),
    )?;
    figure.picture(
        options,
        "fig4_curves",
        "Score by steps, mean and 95% t-interval over seeds: the newest ten games of training, and evaluations of the same \
         weights by both policies. The dashed line is 195, where CartPole counts as solved.",
        &curves(groups),
    )?;
    figure.picture(
        options,
        "fig4_real",
        "Beyond the paper: how often the metrics of a real gradient step lie above the upper bound, and how far 95% of them \
         reach in units of it, by learning rate; mean and 95% t-interval over seeds. A value of 0 has no point.",
        &real(groups),
    )
}

fn upper(groups: &[Group], source: Source) -> Page {
    let mut page = Page::new(
        format!("DQN and soft DQN on CartPole, {}", source.preset()),
        "the value of an experience against its bound; the target stands in for the new Q",
    );
    (page.columns, page.size) = (3, (1100, 760));
    let looks = [(DQN, "|TD|", Colour::Blue), (SOFT_DQN, "ρ^max·|TD|", Colour::Orange)];
    for (learner, bound, colour) in looks {
        let kept = find(groups, Part::Preset(source), learner).tally.kept();
        let bound: (&str, scatter::Number) = (bound, |experience| experience.bounds.upper);
        page.panels.extend(scatter::panels(kept, &learner.title(), bound, colour));
    }
    page
}

fn lower(groups: &[Group]) -> Page {
    let mut page = Page::new("Soft DQN on CartPole", "the value of an experience against the lower bound");
    (page.columns, page.size) = (3, (1100, 760));
    for source in Source::ALL {
        let kept = find(groups, Part::Preset(source), SOFT_DQN).tally.kept();
        let bound: (&str, scatter::Number) = ("ρ^min·|TD|", |experience| experience.bounds.lower);
        page.panels.extend(scatter::lower_panels(kept, source.preset(), bound, Colour::Orange));
    }
    page
}

fn curves(groups: &[Group]) -> Page {
    let mut page = Page::new("CartPole by preset and learner", "mean and 95% t-interval over seeds");
    (page.columns, page.size) = (3, (1200, 760));
    let looks = [
        (Played::Training, "training, newest 10 games", Colour::Green),
        (Played::Evaluation(EvaluationPolicy::Stochastic), "stochastic policy", Colour::Orange),
        (Played::Evaluation(EvaluationPolicy::Greedy), "greedy policy", Colour::Blue),
    ];
    for source in Source::ALL {
        for learner in FigureLearner::ALL {
            let group = find(groups, Part::Preset(source), learner);
            let axes = (Axis::linear("steps (thousands)"), Axis::linear("score").range(0.0..210.0));
            let mut panel = Panel::new(format!("{}, {}", learner.title(), source.preset()), axes.0, axes.1);
            for (played, name, colour) in looks {
                let points = group.curve(played).into_iter().map(|point| {
                    (point.frames as f64 / 1e3, point.score.mean, point.score.half.unwrap_or_default())
                });
                panel = panel.with(Layer::curve(name, colour, points.collect()));
            }
            let end = group.last(Played::Training).frames as f64 / 1e3;
            let line = vec![(0.0, SOLVED), (end.max(1.0), SOLVED)];
            page.panels.push(panel.with(Layer::dashed("195", Colour::Grey, line)));
        }
    }
    page
}

fn real(groups: &[Group]) -> Page {
    let mut page = Page::new(
        "The effect of a real gradient step",
        "metrics of Q(θ) before and after the step, against the bounds for the target as the new Q",
    );
    (page.columns, page.size) = (2, (1000, 720));
    let percent = |line: &LineOverSeeds| SeedInterval {
        mean: 100.0 * line.above.mean,
        half: line.above.half.map(|half| 100.0 * half),
    };
    for learner in RATE_LEARNERS {
        let axes = (Axis::log("learning rate"), Axis::linear("above the bound (%)").range(0.0..100.0));
        let panel = Panel::new(learner.title(), axes.0, axes.1);
        page.panels.push(against_rate(panel, groups, learner, &percent));
    }
    for learner in RATE_LEARNERS {
        let axes = (Axis::log("learning rate"), Axis::log("95th percentile of |metric|/bound"));
        let panel = Panel::new(learner.title(), axes.0, axes.1);
        page.panels.push(against_rate(panel, groups, learner, &|line| line.p95));
    }
    page
}

/// A number of each metric against the learning rate. A value of 0 has no place on a logarithmic axis.
fn against_rate(
    mut panel: Panel,
    groups: &[Group],
    learner: FigureLearner,
    number: &dyn Fn(&LineOverSeeds) -> SeedInterval,
) -> Panel {
    let of: Vec<&Group> = by_rate(groups).into_iter().filter(|group| group.learner == learner).collect();
    for (metric, colour) in NAMES.into_iter().zip([Colour::Blue, Colour::Orange, Colour::Green]) {
        let point = |group: &&Group| {
            let line = group.real().into_iter().find(|line| line.metric == metric)?;
            let SeedInterval { mean, half } = number(&line);
            (mean > 0.0).then_some((group.learning_rate, mean, half.unwrap_or_default()))
        };
        let points: Vec<_> = of.iter().filter_map(point).collect();
        if !points.is_empty() {
            let layer = Layer::curve(format!("|{}|", metric.to_uppercase()), colour, points);
            // |EIV| lies so near to |EVB| that one would hide the other.
            panel = panel.with(if metric == "eiv" { layer.dashes(5.0, 5.0) } else { layer });
        }
    }
    panel
}
