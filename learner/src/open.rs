//! Opens the run directory for one start of the learner: a new run, or one resumed from its newest checkpoint.
#![allow(clippy::disallowed_methods, reason = "the clock bounds the incarnation from below")]

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

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
/// File in the run directory with the incarnation of the newest learner.
const INCARNATION: &str = "learner-incarnation";
/// File in the run directory that counts the learner's starts.
const STARTS: &str = "learner-starts";
/// A clock beyond this is wrong (it is the year 2105) and is ignored: incarnations have 32 bits, and a larger one would
/// leave too few for later starts.
const CLOCK_MAX: u64 = (u32::MAX - (1 << 24)) as u64;

/// A run directory, locked by this process.
pub struct Opened {
    /// The journal, at the state of the newest checkpoint.
    pub journal: Journal,
    /// The run's name, unique over all runs.
    pub run: String,
    /// The learner's incarnation, larger than that of every earlier start.
    pub incarnation: u32,
    /// The number of this start. It seeds generators, so that runs of equal seeds are comparable.
    pub start: u32,
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
    let (incarnation, start) = (next_incarnation(path, clock_seconds())?, next_start(path)?);
    let record = Record::resume(path)?;
    LearnerStart::append(path, incarnation, state.frames, state.updates)?;
    Ok(Opened { run: run_name(path)?, journal: Journal::new(directory, record, state), incarnation, start })
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

/// Seconds since 1970.
fn clock_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The incarnation of this start: larger than the last one, and at least the clock's seconds. So it is larger than all
/// earlier ones even if the file was lost or restored from a backup, unless the clock was set back too. It is on disk
/// before any peer sees it, so that no two starts share one.
fn next_incarnation(directory: &Path, clock_seconds: u64) -> Result<u32> {
    let next = read_number(directory, INCARNATION)?
        .checked_add(1)
        .context("the learner used all 2^32 incarnations: start a new run")?;
    let clock = if clock_seconds <= CLOCK_MAX { clock_seconds as u32 } else { 0 };
    write_number(directory, INCARNATION, next.max(clock))
}

/// Counts this start of the learner.
fn next_start(directory: &Path) -> Result<u32> {
    write_number(directory, STARTS, read_number(directory, STARTS)?.saturating_add(1))
}

/// The number in a file; 0 if the file does not exist.
fn read_number(directory: &Path, name: &str) -> Result<u32> {
    let path = directory.join(name);
    let Some(text) = read_if_there(&path)? else { return Ok(0) };
    text.trim().parse().with_context(|| format!("{} is damaged: delete it", path.display()))
}

fn write_number(directory: &Path, name: &str, number: u32) -> Result<u32> {
    write_atomically(&directory.join(name), number.to_string().as_bytes())?;
    Ok(number)
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

    #[test]
    fn an_incarnation_is_larger_than_all_earlier_ones_even_if_its_file_was_lost_or_rolled_back() {
        let folder = tempfile::tempdir().unwrap();
        let (run, now) = (folder.path(), 1_700_000_000);
        let file = run.join(INCARNATION);
        let first = next_incarnation(run, now).unwrap();
        let backup = fs::read(&file).unwrap();
        let second = next_incarnation(run, now).unwrap();
        assert!(second > first, "two starts within a second");
        fs::write(&file, backup).unwrap();
        let third = next_incarnation(run, now + 2).unwrap();
        assert!(third > second, "the file was rolled back");
        fs::remove_file(&file).unwrap();
        let fourth = next_incarnation(run, now + 60).unwrap();
        assert!(fourth > third, "the file was lost");
        // The clock was set back, but the file is there.
        assert_eq!(next_incarnation(run, 0).unwrap(), fourth + 1);
        // A wrong clock must not use up the incarnations.
        assert_eq!(next_incarnation(run, u64::MAX).unwrap(), fourth + 2);
        fs::write(&file, u32::MAX.to_string()).unwrap();
        assert!(next_incarnation(run, now).unwrap_err().to_string().contains("start a new run"));
    }

    #[test]
    fn starts_are_counted_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!([(); 3].map(|()| next_start(folder.path()).unwrap()), [1, 2, 3]);
        fs::write(folder.path().join(STARTS), "x").unwrap();
        assert!(next_start(folder.path()).unwrap_err().to_string().contains("delete it"));
    }
}
