//! Lockstep: actor, replay and learner in one thread of control.
//!
//! Read [`lockstep`] for one turn of a run; a [`UpdateObserver`] observes what each update trains on. [`evaluate`] plays a run's
//! weights for their scores. The rest executes a [`Command`] from `quiver`: `train` is a run from its start to its end.
#![forbid(unsafe_code)]

pub mod evaluate;
pub mod lockstep;

mod baselines;
mod play;
mod probe;
mod progress;
mod summary;
mod train;
mod video;

pub use learner::UpdateObserver;
pub use lockstep::{Lockstep, Turn};

use anyhow::{Result, bail};
use run::command::Command;

/// Executes a command from `quiver`.
pub fn execute(command: Command) -> Result<()> {
    match command {
        Command::Probe => probe::probe(),
        Command::Train { run, resolved, resume, exit_with_parent } => {
            train::train(&run, *resolved, resume, exit_with_parent)
        }
        Command::Evaluate { agent, episodes, json } => evaluate::evaluate(&agent, episodes, json),
        Command::Play { agent, video, steps_max } => play::play(&agent, &video, steps_max),
        Command::Paper(_) => bail!("quiver-paper makes the paper's figures: run 'quiver paper --help'"),
    }
}
