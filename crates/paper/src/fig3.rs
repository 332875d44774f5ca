//! Figure 3: soft Q-learning in the maze. ρ·|TD| bounds what an experience is worth, from above and, but for the policy's
//! part, from below.
//!
//! Theorem 2: |EVB|, |PIV| and |EIV| are at most ρ^max·α|TD|. Theorem 3: |EVB| and |EIV| are at least ρ^min·α|TD|; |PIV| is
//! of second order in the change and may be less, which this figure must show as well. The theorems are true of every
//! tabular update by construction: checking them on transitions checks arithmetic.
//!
//! The text's "β = 100" is the inverse temperature: the authors' notebook has a temperature of 1/100. A variant takes the
//! text at its word, and there entropy is worth far more than the goal.
#![allow(clippy::disallowed_methods, reason = "the report states how long the figure took")]

use std::time::Instant;

use anyhow::Result;
use plot::{Colour, Page};
use settings::units::grouped;

use crate::experience::{Experience, Rule, Tally};
use crate::fig2::{SEEDS, bounds_checked, claim_bounds};
use crate::figure::{Figure, Verdict};
use crate::maze::{self, DISCOUNT, EPISODES, Runs, STEPS_MAX, Setup};
use crate::options::Options;
use crate::scatter;

/// β of the notebook.
const TEMPERATURE: f64 = 0.01;
pub(crate) const MAIN: Setup = Setup::main(Rule::Soft(TEMPERATURE));
/// The main experiment and our variants of it.
const SETUPS: [Setup; 5] = [
    MAIN,
    Setup { variant: "terminal-mask", terminal_mask: true, ..MAIN },
    Setup { variant: "alpha-0.5", rate: 0.5, ..MAIN },
    Setup { variant: "temperature-0.003", rule: Rule::Soft(0.003), ..MAIN },
    Setup { variant: "temperature-100", rule: Rule::Soft(100.0), ..MAIN },
];
/// The runs' last episodes have a median length in this range, ends included, in steps.
const MEDIAN_STEPS: (f64, f64) = (15.0, 20.0);
/// A run ends near the shortest path if its last episodes have a mean length in this range, ends included.
const NEAR_STEPS: (f64, f64) = (14.0, 21.0);
/// The share of runs that must.
const NEAR_SHARE: f64 = 0.7;

/// Runs the experiment, draws it, and writes its files. Also gives a sample of the experiences of the main experiment, for
/// figure 5.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<(Figure, Vec<Experience>)> {
    let started = Instant::now();
    let seeds = options.effort.pick(SEEDS.0, SEEDS.1);
    say(&format!("fig3: soft Q-learning, {} setups with {seeds} seeds each", SETUPS.len()));
    let (mut tallies, runs) = maze::learn_all(&SETUPS, seeds, options.seed);
    maze::write(options, "fig3", &tallies, &runs)?;

    let title = "Maze, soft Q-learning: ρ·|TD| bounds EVB and EIV from both sides";
    let mut figure = Figure::new("fig3", title, options);
    figure.about = format!(
        "Tabular soft Q-learning in the same maze with the settings of the authors' notebook: {EPISODES} episodes of at most \
         {STEPS_MAX} steps, Q from U(0, 1) in every state, the goal included and bootstrapped from, the first 5 episodes at \
         random and then by the softmax policy, γ {DISCOUNT}, α 1, temperature {TEMPERATURE} (the text's \"β = 100\" is its \
         inverse). Every update is one experience. Beside it are variants of ours, which no verdict on the paper considers."
    );
    claims(&mut figure, &tallies, &runs[0]);
    maze::runs_table(&mut figure, &tallies, &runs);
    draw_bounds(&mut figure, options, tallies[0].kept())?;
    figure.picture(
        options,
        "fig3_curves",
        "Steps of each episode, mean and standard error over seeds; the dashed black line is the shortest path. At a \
         temperature of 100 episodes end by chance or by truncation.",
        &maze::learning("Soft Q-learning in the maze", &runs),
    )?;
    figure.setting("temperature", TEMPERATURE);
    figure.setting("alpha", "1");
    figure.setting("gamma", DISCOUNT);
    figure.setting("episodes", EPISODES);
    figure.setting("steps of an episode, at most", STEPS_MAX);
    figure.setting("seeds", runs[0].episodes.len());
    let figure = figure.finish(options, started)?;
    tallies.iter().try_for_each(Tally::check)?;
    Ok((figure, tallies.swap_remove(0).kept().to_vec()))
}

fn claims(figure: &mut Figure, tallies: &[Tally], main: &Runs) {
    let (first, variants) = tallies.split_at(1);
    claim_bounds(figure, "|EVB|, |PIV|, |EIV| ≤ ρ^max·|TD| and |EVB|, |EIV| ≥ ρ^min·|TD|", first);
    let (less, count) = (first[0].policy_improves_less, first[0].count);
    let measured = format!("{} of {} transitions have |PIV| below ρ^min·|TD|", grouped(less), grouped(count));
    figure.finding("there is no such lower bound for |PIV|", measured, Verdict::of(less > 0));
    let (median, near) = ends(main);
    let (least, most) = NEAR_STEPS;
    figure.finding(
        &format!(
            "soft Q-learning ends near the shortest path of 14 steps: a median of {} to {} steps over seeds, and at least \
             {:.0}% of the seeds between {least} and {most}",
            MEDIAN_STEPS.0,
            MEDIAN_STEPS.1,
            100.0 * NEAR_SHARE
        ),
        format!(
            "{}; {:.0}% of the seeds between {least} and {most}",
            maze::describe_lengths(main),
            100.0 * near
        ),
        Verdict::of((MEDIAN_STEPS.0..=MEDIAN_STEPS.1).contains(&median) && near >= NEAR_SHARE),
    );
    let (claim, measured, verdict) = bounds_checked("our variants: the same bounds with α·|TD|", variants);
    figure.finding(&claim, measured, verdict);
}

/// The median over runs of the mean length of the last episodes, and the share of runs that end near the shortest path.
fn ends(runs: &Runs) -> (f64, f64) {
    let lengths = runs.last_lengths();
    let near = lengths.iter().filter(|length| (NEAR_STEPS.0..=NEAR_STEPS.1).contains(*length)).count();
    (stats::aggregate::quantile(&lengths, 0.5), near as f64 / lengths.len() as f64)
}

/// The metrics of the main experiment against their bounds, a picture for each bound.
fn draw_bounds(figure: &mut Figure, options: &Options, kept: &[Experience]) -> Result<()> {
    let page = |which: &str, panels| {
        let about = format!("what an experience is worth, against the {which} bound");
        let mut page = Page::new("Soft Q-learning in the maze", about);
        (page.columns, page.size, page.panels) = (3, (1000, 400), panels);
        page
    };
    let upper: (&str, scatter::Number) = ("ρ^max·|TD|", |experience| experience.bounds.upper);
    figure.picture(
        options,
        "fig3",
        "The metrics against their upper bound ρ^max·|TD|, logarithmic; no point lies above the line. |PIV| is of second \
         order: it falls twice as fast.",
        &page("upper", scatter::panels(kept, "", upper, Colour::Blue)),
    )?;
    let lower: (&str, scatter::Number) = ("ρ^min·|TD|", |experience| experience.bounds.lower);
    figure.picture(
        options,
        "fig3_lower",
        "The metrics against ρ^min·|TD|, logarithmic: the lower bound of |EVB| and |EIV|, which are never below the line. |PIV| \
         has no lower bound and its panel no line.",
        &page("lower", scatter::lower_panels(kept, "", lower, Colour::Blue)),
    )
}

/// Experiences of the main experiment, for a figure 5 that is made alone.
pub fn sample(options: &Options) -> Vec<Experience> {
    let seeds = options.effort.pick(SEEDS.0, SEEDS.1);
    let (mut tallies, _) = maze::learn_all(&[MAIN], seeds, options.seed);
    tallies.swap_remove(0).kept().to_vec()
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
        assert_eq!(kept, sample(&options), "figure 5 alone draws from the same experiences");
        assert!(out.path().join("fig3_lower.svg").is_file());
        let variants = std::fs::read_to_string(out.path().join("fig3_variants.csv")).unwrap();
        for setup in &SETUPS[1..] {
            assert!(variants.contains(&format!("\n{},", setup.variant)), "{}", setup.variant);
        }
        crate::agrees(out.path());
    }
}
