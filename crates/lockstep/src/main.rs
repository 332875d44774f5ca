//! The half of `quiver` that needs libtorch: trains in lockstep, evaluates, plays.
//!
//! Not for people: `quiver` checks what it is told and starts this with one argument, an
//! [`Order`] as JSON. Read [`train`] for the life of a run and [`lockstep`] for one turn of it.
#![forbid(unsafe_code)]

mod baselines;
mod cut;
mod evaluate;
mod lockstep;
mod output;
mod play;
mod probe;
mod progress;
mod summary;
mod train;
mod video;

use anyhow::{Context, Result, bail};
use run::order::Order;

fn main() {
    if let Err(error) = obey() {
        let text = format!("{error:#}");
        output::note(&format!("error: {}", text.split_whitespace().collect::<Vec<_>>().join(" ")));
        std::process::exit(1);
    }
}

fn obey() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(order), None) = (arguments.next(), arguments.next()) else {
        bail!("this program is started by 'quiver': type 'quiver --help'");
    };
    let order = serde_json::from_str(&order)
        .context("not an order; 'quiver' and 'quiver-lockstep' differ in version, run make build")?;
    match order {
        Order::Probe => probe::probe(),
        Order::Train { run, resolved, resume } => train::train(&run, *resolved, resume),
        Order::Evaluate { agent, episodes, json } => evaluate::evaluate(&agent, episodes, json),
        Order::Play { agent, video, steps_max } => play::play(&agent, &video, steps_max),
    }
}
