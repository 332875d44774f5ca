//! The programs that lie next to `quiver` and do its work.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, bail};

/// Actor, replay and learner in one process; also evaluates and plays.
pub const LOCKSTEP: &str = "quiver-lockstep";
/// Trains.
pub const LEARNER: &str = "quiver-learner";
/// Plays, for training or for a score.
pub const ACTOR: &str = "quiver-actor";
/// Keeps experience.
pub const REPLAY_SERVER: &str = "quiver-replay-server";

/// Makes the paper's figures.
pub const PAPER: &str = "quiver-paper";

/// All of them.
pub const ALL: [&str; 5] = [LOCKSTEP, LEARNER, ACTOR, REPLAY_SERVER, PAPER];

/// Where a program is; the error says what to do if it is not there.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    let path = env::current_exe().context("can't tell where quiver itself is")?.with_file_name(name);
    if !path.is_file() {
        bail!("{name} is missing next to quiver (no {}): run `make build`", path.display());
    }
    Ok(path)
}
