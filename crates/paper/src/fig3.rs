//! Figure 3: soft Q-learning in the maze. ρ·|TD| bounds what an experience is worth, from above and, but for the policy's
//! part, from below.
//!
//! Theorem 2: |EVB|, |PIV| and |EIV| are at most ρ^max·α|TD|. Theorem 3: |EVB| and |EIV| are at least ρ^min·α|TD|; |PIV| is
//! of second order in the change and may be less, which this figure must show as well. At the appendix's temperature of 100 the
//! maze is never solved (see the README), so there is one at which it is beside it.

use std::time::Instant;

use anyhow::Result;
use plot::{Colour, Page};
use run::units::grouped;

use crate::experience::{Experience, Rule, Tally};
use crate::fig2::{TALLY_COLUMNS, claim_bounds, learning, tally_row, write};
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
/// Trials at the appendix's temperature, each of up to 10,000 steps; one run for each α.
const APPENDIX_TRIALS: (u64, u64) = (5, TRIALS);

/// Runs the experiment, draws it, and writes `fig3.csv` and `fig3_curves.csv`. Also gives a sample of the experiences at
/// the temperature that solves the maze, for figure 5.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<(Figure, Vec<Experience>)> {
    let started = Instant::now();
    let (seeds, trials) =
        (options.effort.pick(SEEDS.0, SEEDS.1), options.effort.pick(APPENDIX_TRIALS.0, APPENDIX_TRIALS.1));
    let (mut curves, mut tallies) = (Vec::new(), Vec::new());
    for (temperature, seeds, trials) in [(SOLVING, seeds, TRIALS), (APPENDIX, 1, trials)] {
        for rate in RATES {
            say(&format!(
                "fig3: soft Q-learning at temperature {temperature} with alpha {rate}, {seeds} seeds"
            ));
            let mut tally = Tally::new();
            let way = Way { rule: Rule::Soft(temperature), rate, trials };
            curves.push(Curve::learn(way, seeds, options.seed, |experience| tally.add(experience)));
            tallies.push(tally);
        }
    }
    write(options, "fig3", &tallies, &curves)?;

    let mut figure =
        Figure::new("fig3", "Maze, soft Q-learning: ρ·|TD| bounds EVB and EIV from both sides", options);
    figure.about = format!(
        "Tabular soft Q-learning in the same maze, at β {SOLVING}, which solves it ({seeds} seeds, {TRIALS} trials), and at the \
         appendix's β {APPENDIX}, where entropy pays more than the goal and trials run to {STEPS_MAX} steps ({trials} trials); α 1 and 0.5."
    );
    claim_bounds(
        &mut figure,
        "|EVB|, |PIV|, |EIV| ≤ ρ^max·|TD| and |EVB|, |EIV| ≥ ρ^min·|TD| on every transition",
        &tallies,
    );
    let less: u64 = tallies.iter().map(|tally| tally.policy_improves_less).sum();
    let count: u64 = tallies.iter().map(|tally| tally.count).sum();
    let measured = format!("{} of {} transitions have |PIV| below ρ^min·|TD|", grouped(less), grouped(count));
    figure.claim("there is no such lower bound for |PIV|", measured, Verdict::of(less > 0));
    let steps =
        format!("{:.1} steps at β {SOLVING}, {:.0} at β {APPENDIX}", curves[0].last(), curves[2].last());
    figure.claim(
        "soft Q-learning solves the maze (with a temperature that is none of the appendix's)",
        steps,
        Verdict::of(curves[0].last() < 20.0),
    );
    figure.table(
        "Transitions",
        TALLY_COLUMNS,
        tallies.iter().zip(&curves).map(|(tally, curve)| tally_row(tally, curve)).collect(),
    );

    let shown = [(0, "β = 0.003", Colour::Blue), (2, "β = 100", Colour::Orange)];
    let upper: (&str, scatter::Number) = ("ρ^max·|TD|", |experience| experience.bounds.upper);
    let lower: (&str, scatter::Number) = ("ρ^min·|TD|", |experience| experience.bounds.lower);
    for (stem, bound, caption) in [
        (
            "fig3",
            upper,
            "The metrics against their upper bound ρ^max·|TD|, twelve decades of them; no point lies above the line. |PIV| is of second order: it falls twice as fast.",
        ),
        (
            "fig3_lower",
            lower,
            "The metrics against the lower bound ρ^min·|TD|: |EVB| and |EIV| never below the line, |PIV| often.",
        ),
    ] {
        let mut page = Page::new(
            "Soft Q-learning in the maze",
            "what an experience is worth, against the bound; α = 1, logarithmic",
        );
        (page.columns, page.size) = (3, (1100, 760));
        for (index, title, colour) in shown {
            page.panels.extend(scatter::panels(tallies[index].kept(), title, bound, colour, Scale::Log));
        }
        figure.picture(options, stem, caption, &page)?;
    }
    let name = |way: &Way| format!("β = {}, α = {}", way.rule.temperature(), way.rate);
    figure.picture(
        options,
        "fig3_curves",
        "Steps from start to goal by trial.",
        &learning("Soft Q-learning in the maze", &curves, &name),
    )?;
    figure.setting("temperature", format!("{SOLVING} and {APPENDIX}"));
    figure.setting("alpha", "1 and 0.5");
    figure.setting("gamma", crate::maze::DISCOUNT);
    figure.setting("seeds", format!("{seeds} at {SOLVING}, 1 at {APPENDIX}"));
    figure.seconds = started.elapsed().as_secs_f64();
    figure.save(options)?;
    tallies.iter().try_for_each(Tally::check)?;
    Ok((figure, tallies.swap_remove(0).kept().to_vec()))
}

/// Experiences of a few runs at the temperature that solves the maze, for a figure 5 that is made alone.
pub fn sample(seed: u64) -> Vec<Experience> {
    let mut tally = Tally::new();
    let way = Way { rule: Rule::Soft(SOLVING), rate: RATES[0], trials: TRIALS };
    Curve::learn(way, SEEDS.0, seed, |experience| tally.add(experience));
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
    }
}
