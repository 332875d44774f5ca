//! Maps errors to Python exceptions.

use std::fmt::Display;

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyConnectionError, PyException, PyTimeoutError, PyValueError};
use rpc::address::Address;
use rpc::shard::{describe, is_refusal};
use rpc::writer::WriterState;
use tonic::{Code, Status};

create_exception!(
    _core,
    Refused,
    PyException,
    "The shard permanently refuses this: another run, another shape, or a newer writer of the same actor."
);

/// The exception for an error status from a shard.
pub fn answered(address: &Address, status: &Status) -> PyErr {
    let text = format!("{address}: {}", describe(status));
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::OutOfRange => PyValueError::new_err(text),
        Code::DeadlineExceeded => PyTimeoutError::new_err(text),
        _ if is_refusal(status) => Refused::new_err(text),
        _ => PyConnectionError::new_err(text),
    }
}

/// The exception for a writer that has ended.
pub fn ended(address: &Address, state: &WriterState) -> PyErr {
    let why = match state {
        WriterState::Finished => "the run has ended",
        WriterState::Fenced(why) | WriterState::Refused(why) | WriterState::Waiting(why) => why,
        WriterState::Open => "the writer was closed",
    };
    Refused::new_err(format!("{address}: {why}"))
}

/// The exception for invalid arguments.
pub fn invalid(what: impl Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}
