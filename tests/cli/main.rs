//! The command as people meet it: what it says, what it refuses, what it leaves on disk.
//!
//! No network is trained here: `quiver` runs from a folder of its own, where its other half is missing or a few lines of
//! shell. Training is tested in `crates/lockstep`.

mod bad_input;
mod halves;
mod place;
mod plot;
mod settings;
mod texts;
