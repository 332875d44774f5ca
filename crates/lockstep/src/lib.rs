//! Actor, replay and learner joined in one thread of control.
//!
//! Read [`lockstep`] for one turn of a run; a [`Watch`] observes what each update learns from. [`evaluate`] plays a run's weights for their scores. The rest is what `quiver` starts by an [`Order`]:
//! `train` is the life of a run.
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

pub use learner::Watch;
pub use lockstep::{Lockstep, Turn};

use anyhow::{Result, bail};
use run::order::Order;

/// Does what `quiver` asks for.
pub fn obey(order: Order) -> Result<()> {
    match order {
        Order::Probe => probe::probe(),
        Order::Train { run, resolved, resume } => train::train(&run, *resolved, resume),
        Order::Evaluate { agent, episodes, json } => evaluate::evaluate(&agent, episodes, json),
        Order::Play { agent, video, steps_max } => play::play(&agent, &video, steps_max),
        Order::Paper(_) => bail!("figures of the paper are quiver-paper's: type 'quiver paper --help'"),
    }
}
