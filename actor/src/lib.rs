//! The actor: many environments, one batched policy, chunks of experience with initial priorities.
//!
//! A [`lane::Lane`] is one environment with its state; [`lanes::Lanes`] steps all lanes of one process with one forward
//! pass. [`evaluation`] plays whole games for their scores. These modules do not know where chunks go, and lockstep
//! uses them unchanged.
//!
//! The process is built around them: [`start`] joins a run, [`worker`] produces experience in it, [`evaluator`] plays
//! for scores.
#![forbid(unsafe_code)]

pub mod baselines;
pub mod evaluation;
pub mod fire;
pub mod lane;
pub mod lanes;
pub mod rules;

pub mod evaluator;
pub mod metrics;
pub mod start;
pub mod worker;

pub use lane::EpisodeEnd;
pub use lanes::{Lanes, LanesStep};
pub use rules::Rules;
pub use settings::seed;
