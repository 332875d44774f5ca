//! Actor, replay and learner joined in one thread of control.
//!
//! Read [`lockstep`] for one turn of a run; whoever wants to see what each update learns from looks on through a
//! [`Watch`]. [`evaluate`] plays a run's weights for their scores. The rest is what `quiver` starts by an [`Order`]:
//! `train` is the life of a run, `cut` its checkpoints.
#![forbid(unsafe_code)]

pub mod evaluate;
pub mod lockstep;

mod baselines;
mod cut;
mod play;
mod probe;
mod progress;
mod summary;
mod train;
mod video;

pub use lockstep::{Lockstep, Turn, Watch};

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
