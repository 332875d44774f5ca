//! Plays: many environments, one batched policy, chunks of experience with initial priorities.
//!
//! A [`lane::Lane`] is one environment and what is remembered of it; a [`player::Player`] steps all lanes of one
//! process with one forward pass. [`evaluation`] plays whole games for their scores. Nothing here knows where
//! chunks go.
#![forbid(unsafe_code)]

pub mod behaviour;
pub mod evaluation;
pub mod lane;
pub mod player;
pub mod rules;
pub mod seed;

pub use lane::EpisodeEnd;
pub use player::{Played, Player};
pub use rules::Rules;
