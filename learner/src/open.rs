//! Opens a run's directory for one start of the learner: new, or from its newest checkpoint.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use run::RunDir;
use run::checkpoint::{Checkpoint, CheckpointError};
use run::directory::write_whole;
use run::event::Event;
use run::record::{Record, Start};
use settings::Resolved;
use tracing::info;

use crate::checkpoint::{self, State};
use crate::events::Events;
use crate::journal::Journal;
use crate::learner::Learner;

/// File of the run's directory that holds its name, unique over all runs.
const RUN_NAME: &str = "run-id";
/// File of the run's directory that counts starts of the learner.
const INCARNATION: &str = "learner-incarnation";

/// A run, locked by this process.
pub struct Opened {
    /// Its journal, where the newest checkpoint left it.
    pub journal: Journal,
    /// Its name, unique over all runs.
    pub run: String,
    /// Which start of the learner this is.
    pub incarnation: u32,
}

/// Opens or creates the run in `path`, and restores `learner` from its newest checkpoint.
pub fn open(path: &Path, resolved: &Resolved, learner: &mut Learner, events: Events) -> Result<Opened> {
    let (directory, found) = directory(path, resolved)?;
    let mut state = State::default();
    if let Some(checkpoint) = found {
        state = checkpoint::restore(learner, &checkpoint)?;
        let text = format!("going on from {}", checkpoint.path().display());
        info!(frames = state.frames, updates = state.updates, "{text}");
        events.send(&Event::Note { text });
    }
    let incarnation = next_incarnation(path)?;
    let record = Record::go_on(path)?;
    Start::keep(path, incarnation, state.frames, state.updates)?;
    Ok(Opened { run: run_name(path)?, journal: Journal::new(directory, record, state), incarnation })
}

/// The run's directory, created or opened, and its newest checkpoint.
fn directory(path: &Path, resolved: &Resolved) -> Result<(RunDir, Option<Checkpoint>)> {
    if !path.join("config.toml").is_file() {
        return Ok((RunDir::create(path, resolved)?, None));
    }
    let (directory, before) = RunDir::open(path)?;
    if before.game != resolved.game {
        let (here, game) = (path.display(), &before.game);
        bail!("{here} has a run of {game}, not of {}: choose another --run-dir", resolved.game);
    }
    let folder = directory.checkpoints();
    run::checkpoint::tidy(&folder).context("can't tidy the checkpoints; free some space")?;
    directory.write_config(resolved)?;
    let checkpoint = match Checkpoint::newest(&folder) {
        Err(CheckpointError::None(_)) => None,
        found => Some(found?),
    };
    Ok((directory, checkpoint))
}

/// The run's name: random, made once, kept in its directory.
fn run_name(directory: &Path) -> Result<String> {
    let path = directory.join(RUN_NAME);
    if let Some(name) = read_if_there(&path)? {
        return Ok(name.trim().to_owned());
    }
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_whole(&path, name.as_bytes())?;
    Ok(name)
}

/// Reads a file that may be missing.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("can't read {}", path.display())),
    }
}

/// Counts this start of the learner. On the disk before anyone hears of it: no two starts may have one number.
fn next_incarnation(directory: &Path) -> Result<u32> {
    let path = directory.join(INCARNATION);
    let last = match read_if_there(&path)? {
        Some(text) => text.trim().parse().with_context(|| format!("{} is damaged", path.display()))?,
        None => 0u32,
    };
    let next = last.checked_add(1).context("the learner was started too often")?;
    write_whole(&path, next.to_string().as_bytes())?;
    Ok(next)
}
