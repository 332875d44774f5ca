//! Statistics over the scores of runs that differ in their seed.
//!
//! Deep RL is compared with few runs, so point estimates alone mislead. This crate computes what Agarwal et al. (*Deep
//! Reinforcement Learning at the Edge of the Statistical Precipice*, 2021) recommend, with the conventions of their package
//! rliable: [`aggregate`] over tasks and runs, stratified [`bootstrap`] intervals, the performance [`profile`], and the
//! probability of [`improvement`]. A permutation test decides, because percentile intervals of few runs are too narrow
//! (`tests/coverage.rs` measures by how much).
//!
//! A task is usually a game. Knows nothing of files, games' names or settings; only [`atari`] has the published scores of
//! 57 games. Randomness is passed in.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod atari;
pub mod bootstrap;
pub mod curve;
pub mod improvement;
pub mod profile;
mod scores;
pub mod student;

pub use bootstrap::{Bootstrap, Interval};
pub use scores::{Scores, ScoresError};
