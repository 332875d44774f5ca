//! The settings of a run: every key once, the presets, and how preset, file, environment and flags combine.
//!
//! Start at [`Settings`] for the list, [`presets`] for the named ones and [`resolve`] for the order of precedence.
//! [`algorithms`] and [`networks`] list what can be chosen, without libtorch, so that `quiver config show` and the
//! trainer agree. A run's files are the business of the `run` crate.
#![forbid(unsafe_code)]

pub mod algorithms;
pub mod choices;
pub mod nearest;
pub mod networks;
pub mod presets;
pub mod resolve;
pub mod seed;
mod settings;
pub mod text;
pub mod units;
pub mod validate;

pub use resolve::{Layers, Resolved};
pub use settings::{SETTINGS, Setting, Settings};
