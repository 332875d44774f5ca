//! `quiver train`: everything that can be refused is refused here, before a file is written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use run::checkpoint::numbers;
use run::choices::Algorithm;
use run::directory::{checkpoints, fresh_name};
use run::order::Order;
use run::resolve::Resolved;

use crate::sources::Sources;
use crate::{cluster, resume, runs, torch};

/// Train an agent, or go on training one
///
/// A run is a small cluster on this machine: actors play, replay shards keep what they saw, a learner trains, an
/// evaluator plays for the score. Each is a process; one that dies is started again. With --lockstep it is one
/// process with one thread of control instead: slower, and bit for bit repeatable. Ctrl-C ends either with a
/// checkpoint, and --resume goes on from it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Train {
    /// Which game ('quiver games' lists them); not needed if --config or --resume says it
    game: Option<String>,
    #[command(flatten)]
    sources: Sources,
    /// Where the run is kept [default: runs/GAME-STRATEGY-seedN]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Go on with a run: its directory, or its name below runs/
    #[arg(long, value_name = "RUN", conflicts_with_all = ["preset", "config", "run_dir"])]
    resume: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  quiver train cartpole                                 about a minute
  quiver train cartpole --lockstep --seed 1             one process, the same weights each time
  quiver train pong --preset quick --seed 1             Atari on two cores
  quiver train pong --actors 8 --lanes 4 --shards 2     more cores: 8 processes step 4 games each, 2 keep replay
  quiver train pong --samples-per-insert none           actors and learner run free, as in Ape-X
  quiver train pong --strategy per --frames 10M         the paper's settings but for two
  quiver train breakout --algorithm dqn --strategy per --double
  quiver train --config my.toml --temperature 0.1       a file, and a flag over it
  QUIVER_DEVICE=cuda:1 quiver train qbert               a variable for every setting
  quiver train --resume pong-ver-seed0 --frames 20M     go on, and further (or with other --actors)

Later wins: preset, file, QUIVER_<SETTING> variables, flags. Values in [brackets] are preset paper-atari's;
(code) marks those that the paper leaves out and the authors' code has.
'quiver train --help' lists every setting; 'quiver config show' prints what would be in force.";

impl Train {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (run, resolved) = match &self.resume {
            Some(name) => self.go_on(name)?,
            None => self.start()?,
        };
        if !resolved.settings.lockstep {
            return cluster::train(&run, &resolved);
        }
        let (resolved, resume) = (Box::new(resolved), self.resume.is_some());
        torch::hand_over(&Order::Train { run, resolved, resume }).map(|()| ExitCode::SUCCESS)
    }

    fn start(&self) -> anyhow::Result<(PathBuf, Resolved)> {
        let resolved = self.sources.layers()?.resolve(self.game.as_deref())?;
        let run = self.run_dir.clone().unwrap_or_else(|| fresh_name(Path::new(runs::RUNS), &stem(&resolved)));
        runs::check_fresh(&run)?;
        check_game(&resolved)?;
        Ok((run, resolved))
    }

    fn go_on(&self, name: &Path) -> anyhow::Result<(PathBuf, Resolved)> {
        let (run, was) = runs::open(name)?;
        let frames = was.settings.frames;
        let resolved = resume::resolve(was, self.game.as_deref(), &self.sources.layers()?)?;
        let at = numbers(&checkpoints(&run)).last().copied().unwrap_or_default();
        if resolved.settings.frames != frames && resolved.settings.frames.0 <= at {
            bail!("the run is at frame {at} already: give --frames a larger number, or leave it out");
        }
        runs::check_writable(&run)?;
        check_game(&resolved)?;
        Ok((run, resolved))
    }
}

/// The name of a run that was given none.
fn stem(resolved: &Resolved) -> String {
    let Resolved { game, settings, .. } = resolved;
    let algorithm = match settings.algorithm {
        Algorithm::SoftDqn => "",
        Algorithm::Dqn => "dqn-",
    };
    format!("{game}-{algorithm}{}-seed{}", settings.strategy, settings.seed)
}

/// Loads the game once, so that a missing or damaged ROM is found here.
pub fn check_game(resolved: &Resolved) -> anyhow::Result<()> {
    let settings = &resolved.settings;
    envs::make(&resolved.game, &settings.environment(), settings.seed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::resolve::Layers;

    #[test]
    fn a_run_is_named_by_what_sets_it_apart() {
        let named = |flags: &[(&str, &str)]| {
            let flags = flags.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
            stem(&Layers { flags, ..Layers::default() }.resolve(Some("pong")).unwrap())
        };
        assert_eq!(named(&[]), "pong-ver-seed0");
        assert_eq!(named(&[("seed", "3"), ("algorithm", "dqn"), ("strategy", "per")]), "pong-dqn-per-seed3");
    }
}
