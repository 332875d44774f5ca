//! The compiled part of the Python client: connections, compression, decompression and waiting, without the GIL.
//!
//! `quiver_replay/` contains the public Python API. Here arrays are byte slices, and every wait can be interrupted.
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
