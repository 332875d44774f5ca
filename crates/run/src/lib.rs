//! What a run is: its settings, its directory and its record.
//!
//! Everything that reads or writes `runs/<name>/` goes through here, with or without libtorch, so that the
//! trainer, `quiver plot` and `quiver config show` agree. Of environments, algorithms and networks it knows their lists.
//!
//! Read [`settings`] for the list of settings, [`presets`] for the named ones, [`resolve`] for how
//! preset, file, environment and flags are laid over one another, [`directory`] for the files, [`event`] and
//! [`progress`] for how people are told.
#![forbid(unsafe_code)]

pub mod adjusted;
pub mod algorithms;
pub mod averages;
pub mod checkpoint;
pub mod choices;
pub mod curve;
pub mod directory;
pub mod event;
pub mod nearest;
pub mod networks;
pub mod order;
pub mod output;
pub mod presets;
pub mod progress;
pub mod record;
pub mod resolve;
pub mod seed;
pub mod settings;
pub mod summary;
pub mod tensorboard;
pub mod text;
pub mod units;
pub mod validate;

pub use directory::RunDir;
pub use resolve::{Layers, Resolved};
pub use settings::Settings;
