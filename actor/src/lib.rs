//! Plays: many environments, one batched policy, chunks of experience with initial priorities.
//!
//! A [`lane::Lane`] is one environment and what is remembered of it; a [`player::Player`] steps all lanes of one
//! process with one forward pass. [`evaluation`] plays whole games for their scores. These know nothing of where chunks
//! go, and lockstep uses them as they are.
//!
//! Around them is the process: [`start`] joins a run, [`playing`] plays in it, [`evaluator`] plays for scores.
#![forbid(unsafe_code)]

pub mod baselines;
pub mod evaluation;
pub mod lane;
pub mod player;
pub mod rules;

pub mod evaluator;
pub mod metrics;
pub mod playing;
pub mod start;

pub use lane::EpisodeEnd;
pub use player::{Played, Player};
pub use rules::Rules;
pub use settings::seed;
