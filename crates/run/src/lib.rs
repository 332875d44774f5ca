//! A run's directory and what is recorded there, and how people are told of its progress.
//!
//! Everything that reads or writes `runs/<name>/` goes through here, with or without libtorch, so that the trainer and
//! `quiver plot` agree. Read [`directory`] for the files, [`checkpoint`] for how a checkpoint is written whole or not at
//! all, [`record`] for the files that only grow, [`event`] and [`progress`] for what people see.
#![forbid(unsafe_code)]

pub mod adjusted;
pub mod averages;
pub mod checkpoint;
pub mod curve;
pub mod directory;
pub mod event;
pub mod order;
pub mod output;
pub mod progress;
pub mod record;
pub mod summary;
pub mod tensorboard;

pub use directory::RunDir;
