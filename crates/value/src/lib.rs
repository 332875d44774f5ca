//! The mathematics of *Revisiting Prioritized Experience Replay: A Value Perspective*
//! (Li, Lu, Miao, 2021) in f64 on plain slices.
//!
//! The paper analyses the value of one experience. Replaying it changes one number, Q(s,a), by the
//! actual change `td` = α·TD; the value of the state then changes by EVB, which splits into what
//! a better policy brings (PIV) and what a better estimate brings (EIV). |TD| bounds all three,
//! and for soft Q-learning ρ·|TD| is a tighter bound: that product is the priority of valuable
//! experience replay.
//!
//! Nothing here knows of tensors, threads, time or chance. The actors pick actions with these
//! functions and the learner's tensors are tested against them, so they favour accuracy over
//! speed: every result is meant to be right to about twelve digits for temperatures from 1e-3 to
//! 1e3, values up to 1e12 and TD errors down to 1e-300. Contracts (a non-empty `q`, an action in
//! range, a temperature above zero) are debug assertions: breaking one is the caller's bug, and
//! configuration is where a person's input is checked. A NaN among the values makes the soft functions
//! and [`hard::value`] NaN, which [`Priority::try_new`] refuses; [`hard::greedy`] and
//! [`experience_value::hard`] only compare values, and want none.
//!
//! | in the paper | here |
//! |---|---|
//! | soft value V(s) = β·log Σ exp(Q/β), policy π = softmax(Q/β) | [`soft::value`], [`soft::policy`] |
//! | the same value as E\[Q − β·log π\] (the text drops the β) | [`target::double_soft_value`] with one Q twice |
//! | TD error of Q-learning and of soft Q-learning | [`target::td_error`] of [`target::n_step`] and [`target::n_step_soft`] |
//! | EVB = V_new(s) − V_old(s), PIV, EIV for Q-learning | [`experience_value::hard`] |
//! | theorem 1: \|EVB\|, \|PIV\|, \|EIV\| ≤ α·\|TD\| | [`experience_value::bounds_hard`] |
//! | EVB, PIV, EIV for soft Q-learning | [`experience_value::soft`] |
//! | theorem 2: the three are at most ρ^max·\|TD\| | [`experience_value::bounds_soft`], `upper` |
//! | theorem 3: \|EVB\| and \|EIV\| are at least ρ^min·\|TD\| | [`experience_value::bounds_soft`], `lower` |
//! | valuable experience replay: priority ρ^max·\|TD\| (section 5) | [`Strategy::VER`], [`rho::rho`] |
//!
//! We count the theorems in that order: Q-learning, then soft Q-learning from above and from below.
//! Read [`experience_value`] first: it is the heart of the paper.

#![forbid(unsafe_code)]

pub mod experience_value;
pub mod hard;
mod odds;
pub mod priority;
pub mod registry;
pub mod rho;
pub mod soft;
pub mod strategy;
pub mod target;

pub use priority::Priority;
pub use registry::{Choice, Listed};
pub use rho::Rho;
pub use strategy::Strategy;
