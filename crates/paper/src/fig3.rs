//! Figure 3: soft Q-learning in the maze. ρ·|TD| bounds what an experience is worth, from above and, but for the policy's
//! part, from below.
//!
//! Theorem 2: |EVB|, |PIV| and |EIV| are at most ρ^max·α|TD|. Theorem 3: |EVB| and |EIV| are at least ρ^min·α|TD|; |PIV| is
//! of second order in the change and may be less, which this figure must show as well. At the appendix's temperature of 100 the
//! maze is never solved (see the README), so there is one at which it is beside it.

use std::time::Instant;

use anyhow::Result;
use plot::{Colour, Page};
use settings::units::grouped;

use crate::experience::{Experience, Rule, Tally};
use crate::fig2::{claim_bounds, learning, tally_table, write};
use crate::figure::{Figure, Verdict};
use crate::maze::{Curve, STEPS_MAX, TRIALS, Way};
use crate::options::Options;
use crate::scatter::{self, Scale};

/// A temperature that solves the maze.
const SOLVING: f64 = 0.003;
/// The appendix's.
const APPENDIX: f64 = 100.0;
/// α.
const RATES: [f64; 2] = [1.0, 0.5];
/// Runs at the temperature that solves the maze, for each α.
const SEEDS: (u64, u64) = (5, 100);
/// The same at the appendix's. Most of what moves a value is in the first hundred steps of a run, so many short ones say more
/// than one long one.
const APPENDIX_SEEDS: (u64, u64) = (2, 20);
/// Steps of a trial at the appendix's temperature, where hardly one ends by itself.
const APPENDIX_STEPS_MAX: u64 = 1_000;

/// Runs the experiment, draws it, and writes `fig3.csv` and `fig3_curves.csv`. Also gives a sample of the experiences at
/// the temperature that solves the maze, for figure 5.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<(Figure, Vec<Experience>)> {
    let started = Instant::now();
    let seeds = options.effort.pick(SEEDS.0, SEEDS.1);
    let appendix_seeds = options.effort.pick(APPENDIX_SEEDS.0, APPENDIX_SEEDS.1);
    let (mut curves, mut tallies) = (Vec::new(), Vec::new());
    for (temperature, seeds, steps_max) in
        [(SOLVING, seeds, STEPS_MAX), (APPENDIX, appendix_seeds, APPENDIX_STEPS_MAX)]
    {
        for rate in RATES {
            say(&format!(
                "fig3: soft Q-learning at temperature {temperature} with alpha {rate}, {seeds} seeds"
            ));
            let mut tally = Tally::new();
            let way = Way { rule: Rule::Soft(temperature), rate, trials: TRIALS, steps_max };
            curves.push(Curve::learn(way, seeds, options.seed, |experience| tally.add(experience)));
            tallies.push(tally);
        }
    }
    write(options, "fig3", &tallies, &curves)?;

    let mut figure =
        Figure::new("fig3", "Maze, soft Q-learning: ρ·|TD| bounds EVB and EIV from both sides", options);
    figure.about = format!(
        "Tabular soft Q-learning in the same maze, {TRIALS} trials, at β {SOLVING}, which solves it ({seeds} seeds), and at the \
         appendix's β {APPENDIX}, where entropy pays more than the goal and trials are cut off after {APPENDIX_STEPS_MAX} steps \
         ({appendix_seeds} seeds); α 1 and 0.5. At β {APPENDIX} values soon stand still: most transitions move nothing, and the \
         table says how many could have shown something."
    );
    claim_bounds(
        &mut figure,
        "|EVB|, |PIV|, |EIV| ≤ ρ^max·|TD| and |EVB|, |EIV| ≥ ρ^min·|TD| on every transition",
        &tallies,
    );
    let less: u64 = tallies.iter().map(|tally| tally.policy_improves_less).sum();
    let count: u64 = tallies.iter().map(|tally| tally.count).sum();
    let measured = format!("{} of {} transitions have |PIV| below ρ^min·|TD|", grouped(less), grouped(count));
    figure.finding("there is no such lower bound for |PIV|", measured, Verdict::of(less > 0));
    let steps =
        format!("{:.1} steps at β {SOLVING}, {:.0} at β {APPENDIX}", curves[0].last(), curves[2].last());
    figure.finding(
        "soft Q-learning solves the maze at a temperature that is not the appendix's",
        steps,
        Verdict::of(curves[0].last() < 20.0),
    );
    tally_table(&mut figure, &tallies, &curves);

    draw_bounds(&mut figure, options, &tallies)?;
    let name = |way: &Way| format!("β = {}, α = {}", way.rule.temperature(), way.rate);
    figure.picture(
        options,
        "fig3_curves",
        "Steps of each trial; at β 100 all are cut off.",
        &learning("Soft Q-learning in the maze", &curves, &name),
    )?;
    figure.setting("temperature", format!("{SOLVING} and {APPENDIX}"));
    figure.setting("alpha", "1 and 0.5");
    figure.setting("gamma", crate::maze::DISCOUNT);
    figure.setting("seeds", format!("{seeds} at {SOLVING}, {appendix_seeds} at {APPENDIX}"));
    let figure = figure.finish(options, started)?;
    tallies.iter().try_for_each(Tally::check)?;
    Ok((figure, tallies.swap_remove(0).kept().to_vec()))
}

/// The metrics against their two bounds, a picture for each bound.
fn draw_bounds(figure: &mut Figure, options: &Options, tallies: &[Tally]) -> Result<()> {
    let shown = [(0, "β = 0.003", Colour::Blue), (2, "β = 100", Colour::Orange)];
    let upper: (&str, scatter::Number) = ("ρ^max·|TD|", |experience| experience.bounds.upper);
    let lower: (&str, scatter::Number) = ("ρ^min·|TD|", |experience| experience.bounds.lower);
    for (stem, bound, caption) in [
        (
            "fig3",
            upper,
            "The metrics against their upper bound ρ^max·|TD|; no point lies above the line. |PIV| is of second order: it falls twice as fast.",
        ),
        (
            "fig3_lower",
            lower,
            "The metrics against the lower bound ρ^min·|TD|: |EVB| and |EIV| never below the line, |PIV| often.",
        ),
    ] {
        let which = if stem == "fig3" { "upper" } else { "lower" };
        let about = format!("what an experience is worth, against the {which} bound; α = 1, logarithmic");
        let mut page = Page::new("Soft Q-learning in the maze", about);
        (page.columns, page.size) = (3, (1100, 760));
        for (index, title, colour) in shown {
            page.panels.extend(scatter::panels(tallies[index].kept(), title, bound, colour, Scale::Log));
        }
        figure.picture(options, stem, caption, &page)?;
    }
    Ok(())
}

/// Experiences of the same runs at the temperature that solves the maze, for a figure 5 that is made alone.
pub fn sample(options: &Options) -> Vec<Experience> {
    let mut tally = Tally::new();
    let way = Way { rule: Rule::Soft(SOLVING), rate: RATES[0], trials: TRIALS, steps_max: STEPS_MAX };
    let seeds = options.effort.pick(SEEDS.0, SEEDS.1);
    Curve::learn(way, seeds, options.seed, |experience| tally.add(experience));
    tally.kept().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Effort;

    #[test]
    fn a_small_version_holds_what_the_theorems_say_and_shows_a_small_piv() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 2, out: out.path().to_owned() };
        let (figure, kept) = run(&options, &|_| {}).unwrap();
        assert!(figure.holds(), "{:?}", figure.claims);
        assert!(kept.iter().any(Experience::policy_improves_less));
        assert!(out.path().join("fig3_lower.svg").is_file());
        crate::agrees(out.path());
    }
}
