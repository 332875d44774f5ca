//! Opens the run directory for one start of the learner: a new run, or one resumed from its newest checkpoint.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use coordinator::adjust::ADJUSTABLE;
use run::RunDir;
use run::adjusted;
use run::checkpoint::{Checkpoint, CheckpointError};
use run::directory::write_atomically;
use run::event::Event;
use run::record::{LearnerStart, Record};
use settings::resume::forbidden_changes;
use settings::{Resolved, Settings};
use tracing::info;

use crate::checkpoint::{self, RunState};
use crate::events::Events;
use crate::journal::Journal;
use crate::learner::Learner;

/// File in the run directory with the run's name, which is unique over all runs.
const RUN_NAME: &str = "run-id";
/// File in the run directory that counts the learner's starts.
const INCARNATION: &str = "learner-incarnation";

/// A run directory, locked by this process.
pub struct Opened {
    /// The journal, at the state of the newest checkpoint.
    pub journal: Journal,
    /// The run's name, unique over all runs.
    pub run: String,
    /// The learner's incarnation: the number of this start.
    pub incarnation: u32,
}

/// Opens or creates the run in `path`, and restores `learner` from the newest checkpoint if there is one.
pub fn open(path: &Path, resolved: &Resolved, learner: &mut Learner, events: Events) -> Result<Opened> {
    let (directory, found) = directory(path, resolved)?;
    let mut state = RunState::default();
    if let Some(checkpoint) = found {
        state = checkpoint::restore(learner, &checkpoint)?;
        if state.lockstep.is_some() {
            let path = checkpoint.path().display();
            bail!(
                "{path} was written in lockstep: resume the run with lockstep = true, or start another run"
            );
        }
        let path = checkpoint.path().display();
        info!(frames = state.frames, updates = state.updates, checkpoint = %path, "resumed from a checkpoint");
        events.send(&Event::Note { text: format!("resuming from {path}") });
    } else {
        let (game, strategy, seed) = (&resolved.game, resolved.settings.strategy, resolved.settings.seed);
        info!(run_dir = %path.display(), game, %strategy, seed, "run created");
    }
    let incarnation = next_incarnation(path)?;
    let record = Record::resume(path)?;
    LearnerStart::append(path, incarnation, state.frames, state.updates)?;
    Ok(Opened { run: run_name(path)?, journal: Journal::new(directory, record, state), incarnation })
}

/// Creates or opens the run directory, and finds its newest checkpoint.
fn directory(path: &Path, resolved: &Resolved) -> Result<(RunDir, Option<Checkpoint>)> {
    if !path.join("config.toml").is_file() {
        return Ok((RunDir::create(path, resolved)?, None));
    }
    let (directory, before) = RunDir::open(path)?;
    if before.game != resolved.game {
        let (here, game) = (path.display(), &before.game);
        bail!("{here} holds a run of {game}, not of {}: choose another --run-dir", resolved.game);
    }
    check_settings(path, &before.settings, &resolved.settings)?;
    let folder = directory.checkpoints();
    run::checkpoint::tidy(&folder).context("can't clean up the checkpoints; free some disk space")?;
    directory.write_config(resolved)?;
    let checkpoint = match Checkpoint::newest(&folder) {
        Err(CheckpointError::None(_)) => None,
        found => Some(found?),
    };
    Ok((directory, checkpoint))
}

/// Refuses settings that a resumed run can't change. Values that `quiver adjust` has saved replace those of the run.
fn check_settings(path: &Path, run: &Settings, requested: &Settings) -> Result<()> {
    let mut run = run.clone();
    adjusted::apply(&mut run, &adjusted::load(path)?)?;
    let forbidden = forbidden_changes(&run, requested);
    if forbidden.is_empty() {
        return Ok(());
    }
    let changes: Vec<_> = forbidden.iter().map(ToString::to_string).collect();
    let adjustable: Vec<_> =
        forbidden.iter().map(|change| change.key).filter(|key| ADJUSTABLE.contains(key)).collect();
    let adjust = match adjustable.is_empty() {
        true => String::new(),
        false => format!("; 'quiver adjust' changes {} in a running run", adjustable.join(" and ")),
    };
    bail!(
        "--config would change {}, which a resumed run can't change: set the run's value again, or choose another \
         --run-dir{adjust}",
        changes.join(" and ")
    )
}

/// The run's name: random, generated once and stored in the run directory.
fn run_name(directory: &Path) -> Result<String> {
    let path = directory.join(RUN_NAME);
    if let Some(name) = read_if_there(&path)? {
        return Ok(name.trim().to_owned());
    }
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("can't get random bytes from the kernel for the run's name")?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_atomically(&path, name.as_bytes())?;
    Ok(name)
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(error).with_context(|| format!("can't read {}; check its permissions", path.display()))
        }
    }
}

/// Counts this start of the learner. The number is on disk before any peer sees it, so that no two starts share one.
fn next_incarnation(directory: &Path) -> Result<u32> {
    let path = directory.join(INCARNATION);
    let last = match read_if_there(&path)? {
        Some(text) => text.trim().parse().with_context(|| {
            format!("{} is damaged: restore it from a backup, or start a new run", path.display())
        })?,
        None => 0u32,
    };
    let next = last.checked_add(1).context("the learner was started 2^32 times: start a new run")?;
    write_atomically(&path, next.to_string().as_bytes())?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use settings::Layers;

    use super::*;

    fn resolved(flags: &[(&str, &str)]) -> Resolved {
        let flags = flags.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
        Layers { flags, ..Layers::default() }.resolve(Some("cartpole")).unwrap()
    }

    fn reopened(run: &Path, flags: &[(&str, &str)]) -> Result<(), String> {
        directory(run, &resolved(flags)).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_resumed_run_refuses_settings_that_change_what_is_learned() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        reopened(&run, &[]).unwrap();
        reopened(&run, &[("frames", "1M"), ("actors", "5"), ("device", "cpu")]).unwrap();
        let config = || fs::read_to_string(run.join("config.toml")).unwrap();
        assert!(config().contains("frames = 1000000"), "{}", config());
        let (before, temperature) = (config(), resolved(&[]).settings.temperature);
        let error = reopened(&run, &[("temperature", "0.5"), ("seed", "7")]).unwrap_err();
        assert_eq!(
            error,
            format!(
                "--config would change seed from 0 to 7 and temperature from {temperature} to 0.5, which a resumed run \
                 can't change: set the run's value again, or choose another --run-dir"
            )
        );
        let error = reopened(&run, &[("priority_exponent", "0.7")]).unwrap_err();
        assert!(
            error.ends_with("--run-dir; 'quiver adjust' changes priority_exponent in a running run"),
            "{error}"
        );
        assert_eq!(config(), before, "a refused start changes nothing");
    }

    #[test]
    fn a_resumed_run_keeps_what_an_operator_adjusted() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        reopened(&run, &[]).unwrap();
        let changes = [("samples_per_insert".to_owned(), "4".to_owned())];
        adjusted::save(&run, &changes.into()).unwrap();
        // The learner applies the adjusted values to its settings before it opens the run.
        reopened(&run, &[("samples_per_insert", "4")]).unwrap();
        assert!(reopened(&run, &[("samples_per_insert", "2")]).unwrap_err().contains("from 4 to 2"));
    }
}
