//! Figure 2: tabular Q-learning in the maze. |TD| bounds what an experience is worth.
//!
//! Theorem 1 says that |EVB|, |PIV| and |EIV| are at most α·|TD|; and |EIV| is α·|TD| if the action was greedy and 0 if
//! not, since the old policy then does not take it. Both are true of every tabular update by construction, so that checking
//! them on transitions checks arithmetic: ours. What is measured is how the learner ends, and how tight the bound is.
#![allow(clippy::disallowed_methods, reason = "the report states how long the figure took")]

use std::time::Instant;

use anyhow::Result;
use plot::{Colour, Page};
use settings::units::grouped;

use crate::experience::{Rule, Tally};
use crate::figure::{Figure, Verdict};
use crate::maze::{self, DISCOUNT, EPISODES, Runs, STEPS_MAX, Setup};
use crate::options::Options;
use crate::scatter;

const MAIN: Setup = Setup::main(Rule::Hard);
/// The main experiment and our variants of it.
const SETUPS: [Setup; 3] = [
    MAIN,
    Setup { variant: "terminal-mask", terminal_mask: true, ..MAIN },
    Setup { variant: "alpha-0.5", rate: 0.5, ..MAIN },
];
/// Runs of each.
pub(crate) const SEEDS: (u64, u64) = (20, 50);
/// A run that ends with shorter episodes than this takes the shortest path, of 14 steps, but for rare random actions.
const SOLVED_STEPS: f64 = 14.5;

/// Runs the experiment and concludes from it.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<Figure> {
    let started = Instant::now();
    let seeds = options.effort.pick(SEEDS.0, SEEDS.1);
    say(&format!("fig2: Q-learning, {} setups with {seeds} seeds each", SETUPS.len()));
    let (tallies, runs) = maze::learn_all(&SETUPS, seeds, options.seed);
    conclude(options, &tallies, &runs, started)
}

/// Draws and writes what was learned, the main experiment being the first. An error, once all is written, if a bound was
/// violated.
pub(crate) fn conclude(
    options: &Options,
    tallies: &[Tally],
    runs: &[Runs],
    started: Instant,
) -> Result<Figure> {
    maze::write(options, "fig2", tallies, runs)?;
    let mut figure = Figure::new("fig2", "Maze, Q-learning: |TD| bounds EVB, PIV and EIV", options);
    figure.about = format!(
        "Tabular Q-learning in gym-maze's 5×5 sample with the settings of the authors' notebook: {EPISODES} episodes of at \
         most {STEPS_MAX} steps, Q from U(0, 1) in every state, the goal included and bootstrapped from, ε by episode \
         max(0.001, min(1, 1 − log10((t + 1)/2.5))), γ {DISCOUNT}, α 1. Every update is one experience. Beside it are variants \
         of ours, which no verdict on the paper considers."
    );
    claims(&mut figure, tallies, &runs[0]);
    maze::runs_table(&mut figure, tallies, runs);

    let mut page =
        Page::new("Q-learning in the maze", "what an experience is worth, against the upper bound");
    (page.columns, page.size) = (3, (1000, 400));
    let bound: (&str, scatter::Number) = ("|TD|", |experience| experience.bounds.upper);
    page.panels = scatter::panels(tallies[0].kept(), "", bound, Colour::Blue);
    figure.picture(
        options,
        "fig2",
        "|EVB|, |PIV| and |EIV| against |TD|, logarithmic; no point lies above the line. What is 0 has no place on these axes; \
         the headings count it.",
        &page,
    )?;
    figure.picture(
        options,
        "fig2_curves",
        "Steps of each episode, mean and standard error over seeds; the dashed black line is the shortest path.",
        &maze::learning("Q-learning in the maze", runs),
    )?;
    figure.setting("alpha", "1");
    figure.setting("gamma", DISCOUNT);
    figure.setting("episodes", EPISODES);
    figure.setting("steps of an episode, at most", STEPS_MAX);
    figure.setting("seeds", runs[0].episodes.len());
    let figure = figure.finish(options, started)?;
    tallies.iter().try_for_each(Tally::check)?;
    Ok(figure)
}

fn claims(figure: &mut Figure, tallies: &[Tally], main: &Runs) {
    let (first, variants) = tallies.split_at(1);
    claim_bounds(figure, "|EVB|, |PIV| and |EIV| are at most |TD|", first);
    let measured = format!("{} of {} lie elsewhere", grouped(first[0].in_between), grouped(first[0].count));
    let claim = with_reason("|EIV| is |TD| or 0");
    figure.claim(&claim, measured, Verdict::of(first[0].in_between == 0));
    let lengths = main.last_lengths();
    let solved = lengths.iter().filter(|length| **length <= SOLVED_STEPS).count();
    figure.finding(
        "Q-learning ends on the shortest path of 14 steps, as in the authors' notebook: at most 14.5 in every seed",
        format!("{}; {solved} of {} seeds at most 14.5", maze::describe_lengths(main), lengths.len()),
        Verdict::of(solved == lengths.len()),
    );
    if !variants.is_empty() {
        let (claim, measured, verdict) =
            bounds_checked("our variants: the same bounds with α·|TD|", variants);
        figure.finding(&claim, measured, verdict);
    }
}

/// Adds the claim that no bound was violated. The theorems are true of every update by construction, whatever stands in for
/// Q_new(s,a), so the claim says that this checks arithmetic.
pub(crate) fn claim_bounds(figure: &mut Figure, claim: &str, tallies: &[Tally]) {
    let (claim, measured, verdict) = bounds_checked(claim, tallies);
    figure.claim(&claim, measured, verdict);
}

/// The claim, what was measured, and the verdict.
pub(crate) fn bounds_checked(claim: &str, tallies: &[Tally]) -> (String, String, Verdict) {
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
    (with_reason(claim), measured, Verdict::of(violations == 0))
}

/// A claim that a theorem proves, and the reason for checking it.
fn with_reason(claim: &str) -> String {
    format!("{claim} (a check of arithmetic: true of every update by construction)")
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
        let bounds = &figure.claims[0];
        assert!(bounds.claim.contains("check of arithmetic"), "{bounds:?}");
        let main = std::fs::read_to_string(out.path().join("fig2.csv")).unwrap();
        assert!(main.starts_with(
            "variant,seed,episode,step,temperature,alpha,terminal_mask,state,action,reward,next_state,terminated,q_0,q_1,q_2,\
             q_3,next_q_0,next_q_1,next_q_2,next_q_3,target,td,change,evb,piv,eiv,upper,lower,value\n"
        ));
        assert!(main.lines().count() > 1_000);
        crate::agrees(out.path());
    }
}
