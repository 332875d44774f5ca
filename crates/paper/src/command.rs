//! `quiver paper`: makes figures one after the other, refreshes the report, and says what became of the claims.
//!
//! A figure that fails does not keep the others from being made, nor the report from being written: a violated bound is
//! an error at the very end, when all files are there to look at.

use std::time::Instant;

use anyhow::{Context, Error, Result};
use run::order::{PaperFigure, PaperOrder};
use run::output::{note, say};
use run::units::duration;

use crate::experience::Experience;
use crate::figure::{Figure, Verdict};
use crate::options::{Effort, Options};
use crate::{fig1, fig2, fig3, fig4, fig5, fig6, report};

/// Does what `quiver` asks for.
pub fn obey(order: &PaperOrder) -> Result<()> {
    let effort = if order.full { Effort::Full } else { Effort::Quick };
    let options = Options { effort, seed: order.seed, out: order.out.clone() };
    let made = make(&options, order);
    // The report is of whatever there is, whether all went well or not.
    let reported = report::write(&options);
    if reported.is_ok() {
        say(&format!("report  {}", options.out().join("report.html").display()));
    }
    made.and(reported)
}

fn make(options: &Options, order: &PaperOrder) -> Result<()> {
    match order.figure {
        PaperFigure::Fig1 => told(fig1::run(options, &note)),
        PaperFigure::Fig2 => told(fig2::run(options, &note)),
        PaperFigure::Fig3 => told(fig3::run(options, &note).map(|(figure, _)| figure)),
        PaperFigure::Fig4 => told(fig4::run(options, &note).map(|(figure, _)| figure)),
        PaperFigure::Fig5 => told(fig5(options, None, None)),
        PaperFigure::Fig6 => told(fig6(options, order)),
        PaperFigure::All => all(options, order),
    }
}

/// All figures; the first error is the command's, once all have been tried.
fn all(options: &Options, order: &PaperOrder) -> Result<()> {
    let mut first: Option<Error> = None;
    let mut keep = |made: Result<()>| {
        if let Err(error) = made {
            // The command ends with the first, which may be hours away.
            note(&format!("{error:#}"));
            first.get_or_insert(error);
        }
    };
    keep(told(fig1::run(options, &note)).context("fig1"));
    keep(told(fig2::run(options, &note)).context("fig2"));
    let (maze, made) = apart(fig3::run(options, &note));
    keep(told(made).context("fig3"));
    let (cartpole, made) = apart(fig4::run(options, &note));
    keep(told(made).context("fig4"));
    keep(told(fig5(options, maze, cartpole)).context("fig5"));
    keep(report::write(options));
    keep(told(fig6(options, order)).context("fig6"));
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
            note("fig5: a run of soft DQN on CartPole");
            fig4::sample(options)?
        }
    };
    fig5::run(options, &maze, &cartpole, started, &note)
}

fn fig6(options: &Options, order: &PaperOrder) -> Result<Figure> {
    let sweep =
        order.sweep.as_ref().context("figure 6 was not told what to train: type 'quiver paper fig6'")?;
    fig6::run(options, sweep, &note)
}

/// Says what became of a figure.
fn told(made: Result<Figure>) -> Result<()> {
    let figure = made?;
    say(&format!("{}  {} ({})", figure.name, figure.title, duration(figure.seconds)));
    for claim in &figure.claims {
        let mark = match claim.verdict {
            Verdict::Holds => "✓",
            Verdict::Fails => "✗",
            Verdict::Open => "?",
        };
        say(&format!("  {mark} {}\n      {}", claim.claim, claim.measured));
    }
    Ok(())
}
