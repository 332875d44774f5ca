//! The programs that `quiver` starts; they are installed in its folder.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, bail};

/// Trains with actor, replay and learner in one process; also evaluates and plays.
pub const LOCKSTEP: &str = "quiver-lockstep";
/// Trains on batches from the shards.
pub const LEARNER: &str = "quiver-learner";
/// Plays games, for training or for evaluation.
pub const ACTOR: &str = "quiver-actor";
/// Stores experience: one shard.
pub const REPLAY_SERVER: &str = "quiver-replay-server";

/// Reproduces the paper's figures.
pub const PAPER: &str = "quiver-paper";

pub const ALL: [&str; 5] = [LOCKSTEP, LEARNER, ACTOR, REPLAY_SERVER, PAPER];

/// The path of a program. A missing program is an error with its remedy.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    let path = env::current_exe()
        .context("can't find quiver's own path: start quiver by its full path")?
        .with_file_name(name);
    if !path.is_file() {
        bail!("{name} is missing next to quiver (no {}): run 'make build'", path.display());
    }
    Ok(path)
}
