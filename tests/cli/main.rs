//! The command as people meet it: what it says, what it refuses, what it leaves on disk.
//!
//! No network is trained here: `quiver` runs from a folder of its own, where the programs that it starts are missing or a
//! few lines of shell. Training is tested in `crates/lockstep`.

mod bad_input;
mod cluster;
mod endings;
mod fakes;
mod halves;
mod paper;
mod place;
mod plot;
mod settings;
mod texts;
