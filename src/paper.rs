//! `quiver paper`: checks which figures to make and at what scale. `quiver-paper`, which links libtorch, does the work.

mod sweep;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use run::command::{Command, PaperCommand, PaperFigure};

use self::sweep::SweepArgs;
use crate::{programs, runs, torch};

/// Reproduce the paper's figures, and compare its claims with measured values
///
/// Each figure is an experiment. It writes a picture (PNG and SVG), its data (CSV), and a report that compares the paper's
/// claims with measured values. A violated bound ends the command with an error that names the transition.
/// crates/paper/README.md explains the files and lists each departure from the paper.
#[derive(Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Paper {
    #[command(subcommand)]
    figure: Figure,
}

const EXAMPLES: &str = "\
Examples:
  quiver paper fig1                     replays until a line of cells is solved, by replay order
  quiver paper fig3 --full --seed 1     soft Q-learning in the maze, at the paper's scale
  quiver paper fig6 --quick             two Atari games with three strategies on two cores, about an hour
  quiver paper fig6 --games qbert,seaquest --strategies per,ver --frames 10M --seeds 3 --parallel 2
  quiver paper all --quick              all figures, then paper/report.html

  Results are in paper/, or in the directory of --out. To resume a stopped sweep, repeat its command.";

#[derive(Subcommand)]
enum Figure {
    /// Linear grid-world: replays until the policy is optimal, by replay order
    Fig1(Common),
    /// Q-learning in the maze: |TD| bounds the value of an experience
    Fig2(Common),
    /// Soft Q-learning in the maze: ρ·|TD| bounds the value from both sides
    Fig3(Common),
    /// DQN and soft DQN on CartPole: the bounds with a network, and with real gradient steps
    Fig4(Common),
    /// Fifty experiences of each system, ordered by the bound
    Fig5(Common),
    /// Atari with uniform, prioritized and valuable replay: a sweep of training runs
    Fig6(SweepArgs),
    /// All figures, then the report; all at the quick scale, unless --full
    All(SweepArgs),
}

/// Options of all figures.
#[derive(Args)]
pub struct Common {
    /// Fewer seeds and shorter runs: minutes on two cores, about an hour for the sweep (the default, except for fig6 alone)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The paper's scale (the default for fig6 alone, where it takes weeks on two cores)
    #[arg(long)]
    full: bool,
    /// Random seed; the first seed of a sweep
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Directory for results
    #[arg(long, value_name = "DIR", default_value = "paper")]
    out: PathBuf,
}

impl Paper {
    pub fn run(&self) -> anyhow::Result<()> {
        let command = self.command()?;
        if command.sweep.is_some() {
            programs::ALL.iter().try_for_each(|name| programs::find(name).map(drop))?;
        }
        torch::hand_over(&Command::Paper(command))
    }

    fn command(&self) -> anyhow::Result<PaperCommand> {
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
        runs::check_out(&common.out)?;
        let sweep = match &self.figure {
            Figure::Fig6(args) | Figure::All(args) => Some(args.sweep(full)?),
            _ => None,
        };
        Ok(PaperCommand { figure, full, seed: common.seed, out: common.out.clone(), sweep })
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

    fn command(words: &[&str]) -> Result<PaperCommand, String> {
        let line = Line::try_parse_from([&["quiver"], words].concat()).map_err(|error| error.to_string())?;
        line.paper.command().map_err(|error| error.to_string())
    }

    #[test]
    fn a_figure_defaults_to_quick_and_a_sweep_to_the_papers_scale() {
        let quick = command(&["fig1"]).unwrap();
        assert_eq!((quick.figure, quick.full, quick.seed), (PaperFigure::Fig1, false, 0));
        assert_eq!((quick.out.to_str(), quick.sweep), (Some("paper"), None));
        assert!(command(&["fig3", "--full"]).unwrap().full);
        assert!(command(&["fig6"]).unwrap().full && !command(&["fig6", "--quick"]).unwrap().full);
        assert!(!command(&["all"]).unwrap().full && command(&["all", "--full"]).unwrap().full);
        assert!(command(&["fig1", "--quick", "--full"]).is_err());
        assert!(command(&["fig1", "--games", "boxing"]).is_err(), "only a sweep has games");
    }

    #[test]
    fn a_folder_that_can_not_be_created_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = command(&["fig1", "--out", file.join("x").to_str().unwrap()]).unwrap_err();
        assert!(error.contains("choose another --out"), "{error}");
    }
}
