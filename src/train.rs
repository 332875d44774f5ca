//! `quiver train`: refuses bad input before it writes a file, then trains in a cluster or in lockstep.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use run::adjusted::{self, Changes};
use run::checkpoint::numbers;
use run::command::Command;
use run::directory::{checkpoints, fresh_name};
use settings::Settings;
use settings::resolve::Resolved;

use crate::output::print_note;
use crate::sources::Sources;
use crate::{cluster, resume, runs, torch};

/// Train an agent, or resume a run
///
/// A run is a small cluster of processes on this machine: actors play, replay shards store experience, a learner trains, and
/// an evaluator plays for scores. A process that dies is restarted. With --lockstep, training is one process with one thread
/// of control instead: slower, and bit-for-bit repeatable. Ctrl-C stops the run with a checkpoint; --resume continues from
/// the newest checkpoint. While a cluster trains, it serves a live page for a browser; the command prints its address.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Train {
    /// The game ('quiver games' lists them); not needed if --config or --resume names it
    game: Option<String>,
    #[command(flatten)]
    sources: Sources,
    /// The run directory to create [default: runs/GAME-STRATEGY-seedN, or runs/GAME-ALGORITHM-STRATEGY-seedN
    /// with another algorithm than soft-dqn]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Resume a run: its directory, or its name below runs/
    #[arg(long, value_name = "RUN", conflicts_with_all = ["preset", "config", "run_dir"])]
    resume: Option<PathBuf>,
    /// Stop as on Ctrl-C when stdin closes, that is, when the parent process has exited
    #[arg(long, hide = true)]
    exit_with_parent: bool,
    /// Address for the live page, such as 127.0.0.1:8080 [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    page: Option<SocketAddr>,
}

const EXAMPLES: &str = "\
Examples:
  quiver train cartpole                                 a first run, about a minute
  quiver train cartpole --lockstep --seed 1             one process, the same weights each time
  quiver train kung_fu_master --preset quick            a first Atari run, on two cores
  quiver train pong --preset quick --actors 8 --lanes 4 --shards 2
                                                        more cores: 8 actors with 4 games each, 2 shards
  quiver train pong --preset quick --samples-per-insert none
                                                        actors and learner decoupled, as in Ape-X
  quiver train pong --strategy per --frames 10M         the paper's settings with two changes (a long run)
  quiver train breakout --algorithm dqn --strategy per --double
  quiver train --config my.toml --temperature 0.1       a file, and a flag that overrides it
  quiver train pong --page 127.0.0.1:8080               the live page at a fixed port
  QUIVER_DEVICE=cuda:1 quiver train qbert               every setting is also a variable
  quiver train --resume pong-ver-seed0 --frames 20M     resume with more frames (or with other --actors)

  Precedence, lowest first: preset, file, QUIVER_<SETTING> variables, flags. A setting's [bracketed] value is
  that of preset paper-atari; each game has its own preset, and 'quiver config show GAME' prints the values of your
  run. (code) marks a value that neither the paper nor those that it cites state, taken from the authors' code.";

impl Train {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (run, resolved, overrides) = match &self.resume {
            Some(name) => self.resume(name)?,
            None => {
                let (run, resolved) = self.start()?;
                (run, resolved, Changes::new())
            }
        };
        check_shards(&resolved.settings)?;
        if !resolved.settings.lockstep {
            return cluster::train(&run, &resolved, &overrides, self.page, self.exit_with_parent);
        }
        if self.page.is_some() {
            bail!("a lockstep run has no live page: leave out --page, or train without --lockstep");
        }
        let (resolved, resume, exit_with_parent) =
            (Box::new(resolved), self.resume.is_some(), self.exit_with_parent);
        let command = Command::Train { run, resolved, resume, exit_with_parent };
        torch::hand_over(&command).map(|()| ExitCode::SUCCESS)
    }

    fn start(&self) -> anyhow::Result<(PathBuf, Resolved)> {
        let resolved = self.sources.layers()?.resolve(self.game.as_deref())?;
        let run = self.run_dir.clone().unwrap_or_else(|| fresh_name(Path::new(runs::RUNS), &stem(&resolved)));
        runs::check_fresh(&run)?;
        check_game(&resolved)?;
        note_gym_differences(self.game.as_deref(), &resolved);
        Ok((run, resolved))
    }

    /// The run, its settings, and the new values of settings that `quiver adjust` changed earlier: these replace the adjusted
    /// values.
    fn resume(&self, name: &Path) -> anyhow::Result<(PathBuf, Resolved, Changes)> {
        let (run, mut was) = runs::open(name)?;
        let changes = adjusted::load(&run)?;
        adjusted::apply(&mut was.settings, &changes)?;
        let (frames, layers) = (was.settings.frames, self.sources.layers()?);
        let resolved = resume::resolve(was, self.game.as_deref(), &layers)?;
        let at = numbers(&checkpoints(&run)).last().copied().unwrap_or_default();
        if resolved.settings.frames != frames && resolved.settings.frames.0 <= at {
            bail!("the run is already at frame {at}: give --frames a larger number, or leave it out");
        }
        runs::check_writable(&run)?;
        check_game(&resolved)?;
        let mut overrides: Changes = layers.environment.into_iter().chain(layers.flags).collect();
        overrides.retain(|key, _| changes.contains_key(key));
        Ok((run, resolved, overrides))
    }
}

/// The name of a run without --run-dir.
fn stem(resolved: &Resolved) -> String {
    let Resolved { game, settings, .. } = resolved;
    let algorithm = settings.algorithm;
    // The default algorithm is not part of the name.
    let algorithm =
        if algorithm == Settings::paper().algorithm { String::new() } else { format!("{algorithm}-") };
    format!("{game}-{algorithm}{}-seed{}", settings.strategy, settings.seed)
}

/// Checks that `without_shards` names shards of the run, and not all of them.
pub fn check_shards(settings: &Settings) -> anyhow::Result<()> {
    let (without, shards) = (&settings.without_shards.0, settings.shards as usize);
    if let Some(number) = without.iter().find(|&&number| number >= shards) {
        bail!(
            "without_shards names shard {number}, but the run has {shards}: use numbers from 0 to {}",
            shards - 1
        );
    }
    if without.len() == shards {
        bail!("without_shards excludes every shard: keep one");
    }
    Ok(())
}

/// Prints a note if the game was given by Gymnasium's id and the settings differ from that task.
pub fn note_gym_differences(game: Option<&str>, resolved: &Resolved) {
    let Some(id) = game else { return };
    let Some((setting, expected)) = envs::gym_setting(id) else { return };
    let Some(value) = resolved.settings.get(setting).filter(|value| value != expected) else { return };
    print_note(&format!(
        "note: {id} selects {} with {setting} = {value}, where Gymnasium's {id} has {expected}",
        resolved.game
    ));
}

/// Loads the game once, to find a missing or damaged ROM before anything is written.
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
    fn a_run_can_exclude_some_of_its_shards_but_not_all() {
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
