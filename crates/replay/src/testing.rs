//! Builders of test data, shared by the tests of every crate that talks to a store.
//!
//! Start from [`options`] and [`table`] and override the fields that the test is about:
//! `TableOptions { capacity: 20, ..table("main") }`. A [`LaneBuilder`] builds the successive chunks of one lane; [`taken`],
//! [`step`] and [`item`] build their parts, also invalid ones. [`contents`] lists what a store holds, and [`statistics`]
//! judges frequencies of draws. Compiled for tests only: other crates enable the feature `testing` in their
//! dev-dependencies.

pub mod contents;
mod lane;
pub mod statistics;

use value::priority::Priority;

use crate::{
    InitialPriority, NewItem, Remover, Sampler, Step, StoreOptions, TableOptions, Taken, WeightsVersion,
};

pub use lane::LaneBuilder;

/// One table `main`, room for plenty, frames of up to 8 bytes in stacks of 4, items of any length.
pub fn options() -> StoreOptions {
    StoreOptions {
        bytes_max: 1 << 20,
        stack: 4,
        frame_bytes: 8,
        max_length: 255,
        tables: vec![table("main")],
    }
}

/// A table of 1000 items whose weights equal their priorities.
pub fn table(name: &str) -> TableOptions {
    TableOptions {
        name: name.into(),
        capacity: 1000,
        sampler: Sampler::Proportional,
        remover: Remover::Fifo,
        max_times_sampled: 0,
        priority_exponent: 1.0,
        priority_constant: 0.0,
        first_priority: 1.0,
    }
}

/// A priority.
///
/// # Panics
///
/// If it is NaN, infinite or negative.
pub fn priority(value: f64) -> Priority {
    Priority::try_new(value).expect("priorities of tests are finite and not negative")
}

/// Action 0 in the middle of an episode, without reward. Valid whatever the number of actions.
pub const NOOP: Taken = Taken {
    action: 0,
    reward: 0.0,
    terminated: false,
    truncated: false,
    life_lost: false,
    log_probability: 0.0,
    weights: WeightsVersion { incarnation: 0, number: 0 },
};

/// A step in the middle of an episode whose fields all depend on its number, so that mix-ups show.
pub fn taken(number: u64) -> Taken {
    Taken {
        action: number as u16,
        reward: number as f32,
        life_lost: number.is_multiple_of(3),
        log_probability: -(number as f32),
        weights: WeightsVersion { incarnation: 1, number },
        ..NOOP
    }
}

/// A step with [`taken`] and a key frame of one byte. `ends` ends the episode: `Some(true)` terminates it, `Some(false)`
/// truncates it.
pub fn step(number: u64, starts_episode: bool, ends: Option<bool>) -> Step {
    let taken = Taken { terminated: ends == Some(true), truncated: ends == Some(false), ..taken(number) };
    Step { frame_bytes: 1, key_frame: true, starts_episode, taken: Some(taken) }
}

/// The observation after the last step of an episode, a key frame of one byte.
pub fn final_observation() -> Step {
    Step { frame_bytes: 1, key_frame: true, starts_episode: false, taken: None }
}

/// An item of the first table with priority 1.
pub fn item(first: u64, length: u8) -> NewItem {
    NewItem { length, ..one_step(first, 1.0) }
}

/// A one-step item of the first table with this priority.
pub fn one_step(first: u64, value: f64) -> NewItem {
    NewItem { first, length: 1, priority: InitialPriority::Of(priority(value)), table: 0 }
}
