//! The learner: samples transitions, updates the networks, and computes new priorities.
//!
//! [`trainer`] is one training step: it takes a batch from a [`replay`], calls the [`learner`] to update the networks, and
//! sends the new priorities back. That replay is a store in this process ([`local`], used by lockstep) or the pool of
//! remote shards ([`remote`], fed by [`prefetcher`] and [`unpack`]). [`batch`] turns stored transitions into tensors; [`importance`]
//! computes their weights. [`journal`] and [`checkpoint`] write the run's files.
//!
//! The process around the trainer: [`training_thread`] is its training thread, [`priorities`] sends priorities to the shards,
//! [`publishing`] makes the weights that actors receive, [`page_sampler`] feeds the live page. [`start`] wires it up with `coordinator`, which tracks the members and the
//! shards.
#![forbid(unsafe_code)]

pub mod batch;
pub mod checkpoint;
pub mod importance;
pub mod journal;
pub mod learner;
pub mod local;
pub mod replay;
pub mod shared_target;
pub mod trainer;

pub mod divergence;
mod episode_budget;
pub mod evaluations;
pub mod events;
pub mod metrics;
mod open;
pub mod page_sampler;
pub mod patience;
pub mod prefetcher;
pub mod priorities;
pub mod publishing;
pub mod remote;
pub mod scores;
pub mod start;
mod ticket_key;
pub mod training_thread;
pub mod unpack;

pub use batch::TransitionDecoder;
pub use learner::{Learner, Update};
pub use local::LocalReplay;
pub use trainer::{Trainer, UpdateObserver};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that becomes true on SIGINT or SIGTERM; a second signal ends the process at once.
pub fn stop_signal() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    // A file-size limit (ulimit -f) would kill the process. Handled, it is an error of the write, as a full disk is.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(stop)
}
