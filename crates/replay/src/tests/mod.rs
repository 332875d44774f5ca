//! Tests of the store as a whole. `claims` are small stories, `model` runs the store against a
//! naive one, `saving` is about bytes, `crashes` about files, `hostile` about forged ones. All of them write through
//! `writer`.

mod claims;
mod contents;
mod crashes;
mod hostile;
mod model;
mod naive;
mod reliability;
mod saving;
mod writer;

use crate::{Remover, Sampler, StoreOptions, TableOptions};

/// Room for plenty, frames of up to 8 bytes, weights equal to priorities.
fn options() -> StoreOptions {
    StoreOptions { bytes_max: 1 << 20, stack: 4, frame_bytes: 8, tables: vec![table("main")] }
}

fn table(name: &str) -> TableOptions {
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
