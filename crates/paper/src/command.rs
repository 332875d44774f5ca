//! `quiver paper`: makes figures one after the other, refreshes the report, and says what became of the claims.
//!
//! A figure that fails does not keep the others from being made, nor the report from being written: a violated bound is
//! an error at the very end, when all files are there to look at.
#![allow(clippy::disallowed_methods, reason = "the report states how long the figure took")]

use std::time::Instant;

use anyhow::{Context, Error, Result};
use run::command::{PaperCommand, PaperFigure};
use run::output::{print_line, print_note};
use settings::units::duration;
use sweep::{LockedSweep, Stopped};

use crate::experience::Experience;
use crate::figure::{Figure, Verdict};
use crate::options::{Effort, Options};
use crate::{fig1, fig2, fig3, fig4, fig5, fig6, report};

/// Does what `quiver` asks for.
pub fn execute(order: &PaperCommand) -> Result<()> {
    let effort = if order.full { Effort::Full } else { Effort::Quick };
    let options = Options { effort, seed: order.seed, out: order.out.clone() };
    // A sweep that is refused is so before anything is made, and there is nothing to report.
    let claim = order.sweep.as_ref().map(|sweep| fig6::claim(&options, sweep)).transpose()?;
    conclude(&options, make(&options, order.figure, claim.as_ref()))
}

/// Says what went wrong, if anything did, and gives the exit code. A sweep that stopped in order, on request, is no
/// failure, as with `quiver train`.
pub fn exit_code(done: Result<()>) -> u8 {
    let Err(error) = done else { return 0 };
    if let Some(stopped) = error.downcast_ref::<Stopped>() {
        print_note(&stopped.to_string());
        return stopped.exit_code();
    }
    print_note(&format!("error: {error:#}"));
    1
}

/// Writes the report, of whatever there is, whether all went well or not.
fn conclude(options: &Options, made: Result<()>) -> Result<()> {
    let reported = report::write(options);
    if reported.is_ok() {
        print_line(&format!("report  {}", options.out().join("report.html").display()));
    }
    made.and(reported)
}

fn make(options: &Options, figure: PaperFigure, claim: Option<&LockedSweep<'_>>) -> Result<()> {
    match figure {
        PaperFigure::Fig1 => report_figure(fig1::run(options, &print_note)),
        PaperFigure::Fig2 => report_figure(fig2::run(options, &print_note)),
        PaperFigure::Fig3 => report_figure(fig3::run(options, &print_note).map(|(figure, _)| figure)),
        PaperFigure::Fig4 => report_figure(fig4::run(options, &print_note).map(|(figure, _)| figure)),
        PaperFigure::Fig5 => report_figure(fig5(options, None, None)),
        PaperFigure::Fig6 => report_figure(fig6(options, claim)),
        PaperFigure::All => all(options, claim),
    }
}

/// All figures; the first error is the command's, once all have been tried.
fn all(options: &Options, claim: Option<&LockedSweep<'_>>) -> Result<()> {
    let mut first: Option<Error> = None;
    let mut keep = |made: Result<()>| {
        if let Err(error) = made {
            // The command ends with the first, which may be hours away.
            print_note(&format!("{error:#}"));
            first.get_or_insert(error);
        }
    };
    keep(report_figure(fig1::run(options, &print_note)).context("fig1"));
    keep(report_figure(fig2::run(options, &print_note)).context("fig2"));
    let (maze, made) = apart(fig3::run(options, &print_note));
    keep(report_figure(made).context("fig3"));
    let (cartpole, made) = apart(fig4::run(options, &print_note));
    keep(report_figure(made).context("fig4"));
    keep(report_figure(fig5(options, maze, cartpole)).context("fig5"));
    keep(report::write(options));
    keep(report_figure(fig6(options, claim)).context("fig6"));
    first.map_or(Ok(()), Err)
}

fn apart(made: Result<(Figure, Vec<Experience>)>) -> (Option<Vec<Experience>>, Result<Figure>) {
    match made {
        Ok((figure, sample)) => (Some(sample), Ok(figure)),
        Err(error) => (None, Err(error)),
    }
}

/// Figure 5 of experiences that are there, or of its own.
fn fig5(
    options: &Options,
    maze: Option<Vec<Experience>>,
    cartpole: Option<Vec<Experience>>,
) -> Result<Figure> {
    let started = Instant::now();
    let maze = maze.unwrap_or_else(|| fig3::sample(options));
    let cartpole = match cartpole {
        Some(cartpole) => cartpole,
        None => {
            print_note("fig5: runs of soft DQN on CartPole, as in figure 4");
            fig4::sample(options, &print_note)?
        }
    };
    fig5::run(options, &maze, &cartpole, started, &print_note)
}

fn fig6(options: &Options, claim: Option<&LockedSweep<'_>>) -> Result<Figure> {
    let claim = claim.context("figure 6 has no sweep: type 'quiver paper fig6'")?;
    fig6::run(options, claim, &print_note)
}

/// Prints the figure's claims and verdicts.
fn report_figure(made: Result<Figure>) -> Result<()> {
    let figure = made?;
    print_line(&format!("{}  {} ({})", figure.name, figure.title, duration(figure.seconds)));
    for claim in &figure.claims {
        let mark = match claim.verdict {
            Verdict::Holds => "✓",
            Verdict::Fails => "✗",
            Verdict::Open => "?",
        };
        print_line(&format!("  {mark} {}\n      {}", claim.claim, claim.measured));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experience::{Rule, Tally};
    use crate::maze::{Runs, Setup};

    fn options(out: &std::path::Path) -> Options {
        Options { effort: Effort::Quick, seed: 0, out: out.to_owned() }
    }

    /// What figure 2 makes of transitions one of which lies beyond its bound.
    #[test]
    fn a_violated_bound_is_a_failure_that_names_the_transition_when_all_files_are_there() {
        let out = tempfile::tempdir().unwrap();
        let options = options(out.path());
        let mut tally = Tally::new();
        let runs = Runs::learn(Setup::main(Rule::Hard), 1, 0, |mut experience| {
            if tally.count == 7 {
                experience.metrics.evb = 3.0 * experience.bounds.upper + 1.0;
            }
            tally.add(experience);
        });
        let made = report_figure(fig2::conclude(&options, &[tally], &[runs], Instant::now()));
        let done = conclude(&options, made);
        let error = done.as_ref().unwrap_err().to_string();
        assert!(error.contains("1 of ") && error.contains("violate a bound; the worst is trial "), "{error}");
        assert_eq!(exit_code(done), 1);
        for file in ["fig2.csv", "fig2.png", "report.html"] {
            assert!(out.path().join(file).is_file(), "{file}");
        }
        let report = std::fs::read_to_string(out.path().join("report.md")).unwrap();
        assert!(report.contains("1 violations in "), "{report}");
    }

    #[test]
    fn a_sweep_that_stopped_in_order_has_not_failed() {
        let stopped = |killed| Err(Stopped { text: "stopped".to_owned(), killed }.into());
        assert_eq!([Ok(()), stopped(false), stopped(true)].map(exit_code), [0, 0, 130]);
        assert_eq!(exit_code(stopped(false).context("fig6")), 0, "as one of all figures too");
    }
}
