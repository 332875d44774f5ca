//! Tests of the table as a whole. `claims` are small stories, `model` runs the table against a
//! naive one, `saving` is about bytes. All of them write through `writer`.

mod claims;
mod model;
mod naive;
mod saving;
mod writer;

use crate::{Sampler, TableOptions};

/// Room for plenty, frames of up to 8 bytes, weights equal to priorities.
fn options() -> TableOptions {
    TableOptions {
        capacity: 1000,
        bytes_max: 1 << 20,
        stack: 4,
        priority_exponent: 1.0,
        priority_constant: 0.0,
        sampler: Sampler::Proportional,
        incarnation: 7,
        first_priority: 1.0,
        frame_bytes: 8,
    }
}
