//! The service as it really runs: shards, learner, actors and evaluator as processes of their own, stopped, killed,
//! misled and measured.
//!
//! All of it plays CartPole, which needs no ROM and trains within seconds. The programs are found beside `quiver`
//! itself, so they must be built: `make test` does that, and `cargo build --release` before a run by hand. Clusters take
//! turns, so that they do not starve each other on a small machine. Nothing here demands that something happens soon.

mod adjusting;
mod endings;
mod full_disk;
mod harness;
mod kills;
mod launcher;
mod metrics;
mod moving;
mod names;
mod page;
mod process;
mod ratio;
mod reliability;
mod restarts;
mod sampling;
mod secured;
mod stopping;
mod strangers;
mod sweep;
mod sweeps;
mod wire;
