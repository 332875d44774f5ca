//! `quiver train`: everything that can be refused is refused here, before a file is written.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use run::adjusted::{self, Changes};
use run::checkpoint::numbers;
use run::directory::{checkpoints, fresh_name};
use run::order::Order;
use settings::Settings;
use settings::resolve::Resolved;

use crate::sources::Sources;
use crate::{cluster, resume, runs, torch};

/// Train an agent, or go on training one
///
/// A run is a small cluster on this machine: actors play, replay shards keep what they saw, a learner trains, an
/// evaluator plays for the score. Each is a process; one that dies is started again. With --lockstep it is one
/// process with one thread of control instead: slower, and bit for bit repeatable. Ctrl-C ends either with a
/// checkpoint, and --resume goes on from it. A page to watch it in a browser is served meanwhile; the command says where.
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
    /// Stop as by Ctrl-C when standard input ends: whoever holds the other end has died
    #[arg(long, hide = true)]
    lifeline: bool,
    /// Where the live page is served, such as 127.0.0.1:8080 [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    page: Option<SocketAddr>,
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
  quiver train pong --page 127.0.0.1:8080               the page to watch it at a port of your choice
  QUIVER_DEVICE=cuda:1 quiver train qbert               a variable for every setting
  quiver train --resume pong-ver-seed0 --frames 20M     go on, and further (or with other --actors)

Later wins: preset, file, QUIVER_<SETTING> variables, flags. Values in [brackets] are preset paper-atari's;
(code) marks those that the paper leaves out and the authors' code has.
'quiver train --help' lists every setting; 'quiver config show' prints what would be in force.";

impl Train {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (run, resolved, said) = match &self.resume {
            Some(name) => self.go_on(name)?,
            None => {
                let (run, resolved) = self.start()?;
                (run, resolved, Changes::new())
            }
        };
        check_shards(&resolved.settings)?;
        if !resolved.settings.lockstep {
            return cluster::train(&run, &resolved, &said, self.page, self.lifeline);
        }
        if self.page.is_some() {
            bail!("lockstep serves no page: leave out --page, or train without --lockstep");
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

    /// Also what is said now of settings that were changed in mid-run: that gives way.
    fn go_on(&self, name: &Path) -> anyhow::Result<(PathBuf, Resolved, Changes)> {
        let (run, mut was) = runs::open(name)?;
        let changes = adjusted::kept(&run)?;
        adjusted::apply(&mut was.settings, &changes)?;
        let (frames, layers) = (was.settings.frames, self.sources.layers()?);
        let resolved = resume::resolve(was, self.game.as_deref(), &layers)?;
        let at = numbers(&checkpoints(&run)).last().copied().unwrap_or_default();
        if resolved.settings.frames != frames && resolved.settings.frames.0 <= at {
            bail!("the run is at frame {at} already: give --frames a larger number, or leave it out");
        }
        runs::check_writable(&run)?;
        check_game(&resolved)?;
        let mut said: Changes = layers.environment.into_iter().chain(layers.flags).collect();
        said.retain(|key, _| changes.contains_key(key));
        Ok((run, resolved, said))
    }
}

/// The name of a run that was given none.
fn stem(resolved: &Resolved) -> String {
    let Resolved { game, settings, .. } = resolved;
    let algorithm = settings.algorithm;
    // The default algorithm is not part of the name.
    let algorithm =
        if algorithm == Settings::paper().algorithm { String::new() } else { format!("{algorithm}-") };
    format!("{game}-{algorithm}{}-seed{}", settings.strategy, settings.seed)
}

/// The shards that the run does without are some of its own, and not all.
fn check_shards(settings: &Settings) -> anyhow::Result<()> {
    let (without, shards) = (&settings.without_shards.0, settings.shards as usize);
    if let Some(number) = without.iter().find(|&&number| number >= shards) {
        bail!("without_shards names shard {number}: there are {shards}, the first is 0");
    }
    if without.len() == shards {
        bail!("without_shards leaves no shard: keep one");
    }
    Ok(())
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
    use settings::resolve::Layers;

    #[test]
    fn a_run_is_named_by_what_sets_it_apart() {
        let named = |flags: &[(&str, &str)]| {
            let flags = flags.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
            stem(&Layers { flags, ..Layers::default() }.resolve(Some("pong")).unwrap())
        };
        assert_eq!(named(&[]), "pong-ver-seed0");
        assert_eq!(named(&[("seed", "3"), ("algorithm", "dqn"), ("strategy", "per")]), "pong-dqn-per-seed3");
    }

    #[test]
    fn a_run_does_without_some_of_its_shards_but_not_all() {
        let checked = |without: &str| {
            let mut settings = Layers::default().resolve(Some("pong")).unwrap().settings;
            settings.set("shards", "2").unwrap().unwrap();
            settings.set("without_shards", without).unwrap().unwrap();
            check_shards(&settings).map_err(|error| error.to_string())
        };
        assert_eq!(checked("1"), Ok(()));
        assert!(checked("2").unwrap_err().contains("names shard 2"));
        assert!(checked("0,1").unwrap_err().contains("keep one"));
    }
}
