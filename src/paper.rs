//! `quiver paper`: which figures, and how much of them. All that can be refused is refused here; `quiver-paper`, which has
//! libtorch, does the work.

mod sweep;

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use run::directory::DirectoryError;
use run::order::{Order, PaperFigure, PaperOrder};

use crate::{programs, runs, torch};
use sweep::SweepArgs;

/// Make the paper's figures, each beside what the paper claims
///
/// Every figure is an experiment: it writes a picture (PNG and SVG), the numbers behind it (CSV), and a report that
/// lays what was measured beside what the paper says. A bound that is violated ends the command with an error that
/// names the transition. crates/paper/README.md explains the files and lists each departure from the paper.
#[derive(Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Paper {
    #[command(subcommand)]
    figure: Figure,
}

const EXAMPLES: &str = "\
Examples:
  quiver paper fig1                     replays until a line of cells is solved, by what is replayed first
  quiver paper fig3 --full --seed 1     soft Q-learning in the maze, as much of it as the paper has
  quiver paper fig6 --quick             two Atari games by three strategies on two cores, about an hour
  quiver paper fig6 --games qbert,seaquest --strategies per,ver --frames 10M --seeds 3 --parallel 2
  quiver paper all --quick              everything, then paper/report.html

Results are in paper/ unless --out says otherwise. A sweep that was stopped goes on by the same command.";

#[derive(Subcommand)]
enum Figure {
    /// Linear grid-world: replays until the policy is optimal, by what is replayed first
    Fig1(Common),
    /// Q-learning in the maze: |TD| bounds what an experience is worth
    Fig2(Common),
    /// Soft Q-learning in the maze: ρ·|TD| bounds it from both sides
    Fig3(Common),
    /// DQN and soft DQN on CartPole: the same with a network, and what real gradient steps do
    Fig4(Common),
    /// Fifty experiences of each, ordered by the bound
    Fig5(Common),
    /// Atari with uniform, prioritized and valuable replay: a sweep over the training service
    Fig6(SweepArgs),
    /// All of them, then the report; quick unless told otherwise, the sweep too
    All(SweepArgs),
}

/// What every figure can be told.
#[derive(Args)]
pub struct Common {
    /// Minutes on two cores, of a sweep about an hour: fewer seeds, shorter runs (the default, but for fig6 alone)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// As much as the paper did (the default for fig6 alone, and weeks on two cores)
    #[arg(long)]
    full: bool,
    /// Seed of everything random; a sweep counts up from it
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The folder for results
    #[arg(long, value_name = "DIR", default_value = "paper")]
    out: PathBuf,
}

impl Paper {
    pub fn run(&self) -> anyhow::Result<()> {
        let order = self.order()?;
        if order.sweep.is_some() {
            programs::ALL.iter().try_for_each(|name| programs::find(name).map(drop))?;
        }
        torch::hand_over(&Order::Paper(order))
    }

    fn order(&self) -> anyhow::Result<PaperOrder> {
        let (figure, common) = match &self.figure {
            Figure::Fig1(common) => (PaperFigure::Fig1, common),
            Figure::Fig2(common) => (PaperFigure::Fig2, common),
            Figure::Fig3(common) => (PaperFigure::Fig3, common),
            Figure::Fig4(common) => (PaperFigure::Fig4, common),
            Figure::Fig5(common) => (PaperFigure::Fig5, common),
            Figure::Fig6(args) => (PaperFigure::Fig6, &args.common),
            Figure::All(args) => (PaperFigure::All, &args.common),
        };
        let full = common.full || (figure == PaperFigure::Fig6 && !common.quick);
        match runs::check_writable(&common.out) {
            Err(DirectoryError::Io { path, error }) => {
                bail!("can't write to {path}: {error}; choose another --out")
            }
            other => other?,
        }
        let sweep = match &self.figure {
            Figure::Fig6(args) | Figure::All(args) => Some(args.sweep(full)?),
            _ => None,
        };
        Ok(PaperOrder { figure, full, seed: common.seed, out: common.out.clone(), sweep })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        paper: Paper,
    }

    fn order(words: &[&str]) -> Result<PaperOrder, String> {
        let line = Line::try_parse_from([&["quiver"], words].concat()).map_err(|error| error.to_string())?;
        line.paper.order().map_err(|error| error.to_string())
    }

    #[test]
    fn a_figure_is_quick_unless_told_otherwise_and_a_sweep_is_the_papers() {
        let quick = order(&["fig1"]).unwrap();
        assert_eq!((quick.figure, quick.full, quick.seed), (PaperFigure::Fig1, false, 0));
        assert_eq!((quick.out.to_str(), quick.sweep), (Some("paper"), None));
        assert!(order(&["fig3", "--full"]).unwrap().full);
        assert!(order(&["fig6"]).unwrap().full && !order(&["fig6", "--quick"]).unwrap().full);
        assert!(!order(&["all"]).unwrap().full && order(&["all", "--full"]).unwrap().full);
        assert!(order(&["fig1", "--quick", "--full"]).is_err());
        assert!(order(&["fig1", "--games", "boxing"]).is_err(), "only a sweep has games");
    }

    #[test]
    fn a_folder_that_can_not_be_made_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = order(&["fig1", "--out", file.join("x").to_str().unwrap()]).unwrap_err();
        assert!(error.contains("choose another --out"), "{error}");
    }
}
