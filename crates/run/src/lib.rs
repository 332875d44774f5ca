//! A run's directory, its record and checkpoints, and the display of its progress.
//!
//! All code that reads or writes `runs/<name>/` uses this crate, with or without libtorch, so that the trainer and
//! `quiver plot` agree. [`directory`] locks the directory, [`checkpoint`] writes checkpoints atomically, [`record`] appends
//! to the files that only grow, [`event`] and [`progress`] display progress. [`command`] is what `quiver` passes to the
//! programs that link libtorch, and [`parent`] notices the end of the process that started a run.
#![forbid(unsafe_code)]

pub mod adjusted;
pub mod averages;
pub mod checkpoint;
pub mod command;
pub mod curve;
pub mod directory;
pub mod event;
pub mod lines;
pub mod output;
pub mod parent;
pub mod progress;
pub mod record;
pub mod shortage;
pub mod summary;
pub mod tensorboard;

pub use directory::RunDir;
