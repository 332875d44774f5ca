//! The compiled part of the Python client: connections, packing, unpacking and waiting, without Python's lock.
//!
//! `quiver_replay/` has what people see. Here arrays are byte slices, and whatever waits can be interrupted.
#![forbid(unsafe_code)]
#![allow(clippy::needless_pass_by_value, reason = "Python's arguments come by value")]

mod client;
mod error;
mod keeper;
mod lane;
mod lease;
mod sampler;
mod store;
mod waiting;
mod writer;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::error::Refused;
    #[pymodule_export]
    use super::sampler::Sampler;
    #[pymodule_export]
    use super::writer::Writer;
}
