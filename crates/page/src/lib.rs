//! The live page of a run, for a browser without other software.
//!
//! [`html()`] turns a [`History`] of samples into one HTML file with its style, charts, and a short script that refreshes it.
//! The file loads nothing and names no other file, host or address. [`Live`] combines history and page; the training thread
//! updates it and the HTTP server reads it. This crate knows nothing of sockets, clocks or metrics.
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
