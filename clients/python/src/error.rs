//! What went wrong, as Python has it.

use std::fmt::Display;

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyConnectionError, PyException, PyTimeoutError, PyValueError};
use rpc::address::Address;
use rpc::shard::{describe, is_refusal};
use rpc::writer::State;
use tonic::{Code, Status};

create_exception!(
    _core,
    Refused,
    PyException,
    "The shard does not do this: another run, another shape, a newer writer in one's place."
);

/// What a shard answered instead.
pub fn answered(address: &Address, status: &Status) -> PyErr {
    let text = format!("{address}: {}", describe(status));
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::OutOfRange => PyValueError::new_err(text),
        Code::DeadlineExceeded => PyTimeoutError::new_err(text),
        _ if is_refusal(status) => Refused::new_err(text),
        _ => PyConnectionError::new_err(text),
    }
}

/// Why a writer ended.
pub fn ended(address: &Address, state: &State) -> PyErr {
    let why = match state {
        State::Finished => "the run has ended",
        State::Fenced(why) | State::Refused(why) | State::Waiting(why) => why,
        State::Open => "the writer was closed",
    };
    Refused::new_err(format!("{address}: {why}"))
}

/// What can never be right.
pub fn invalid(what: impl Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}
