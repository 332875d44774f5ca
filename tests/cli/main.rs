//! The command line: its output, its errors, the files that it leaves.
//!
//! These tests train no network. `quiver` runs from its own folder, where the programs that it starts are missing or shell
//! scripts. Training is tested in `crates/lockstep`.

mod bad_input;
mod cluster;
mod compare;
mod endings;
mod fakes;
mod halves;
mod paper;
mod plot;
mod reference;
mod sandbox;
mod settings;
mod sweep;
mod texts;
