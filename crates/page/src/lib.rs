//! The live page of a run: its story at a glance, for a browser and no other software.
//!
//! A [`History`] of samples goes in, one HTML file comes out ([`html()`]), with its style, a few lines of script that fetch it
//! again, and pictures drawn here. It names no file, host or address, and loads nothing. [`Live`] is the two together,
//! shared by whoever measures and whoever serves. Knows nothing of sockets, clocks or metrics.
#![forbid(unsafe_code)]

mod charts;
mod history;
mod html;
mod live;
mod story;
mod tiles;
mod time;

pub use history::{History, Sample};
pub use html::html;
pub use live::Live;
