//! The settings of a run: the list, the presets, and how preset, file, environment variables and flags combine.
//!
//! Read [`Settings`] for the list, [`presets`] for named settings and [`resolve`] for the order of precedence.
//! [`algorithms`] and [`networks`] list the choices without libtorch, so that `quiver config show` and the trainer agree. The
//! `run` crate handles a run's files.
#![forbid(unsafe_code)]

pub mod algorithms;
pub mod choices;
pub mod nearest;
pub mod networks;
pub mod presets;
pub mod resolve;
pub mod resume;
pub mod seed;
mod settings;
pub mod text;
pub mod units;
pub mod validate;

pub use resolve::{Layers, Resolved};
pub use settings::{SETTINGS, Setting, Settings};
