//! Waits with the GIL released. Ctrl-C interrupts a wait, and a long wait logs its reason.
#![allow(clippy::disallowed_methods, reason = "Python callers wait in wall-clock time")]

use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How often a wait polls for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often a wait logs its reason.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The reason of a wait in words. The waiting future updates it as it learns more.
#[derive(Debug, Default)]
pub struct Reason(Mutex<String>);

impl Reason {
    pub fn new(what: impl Into<String>) -> Self {
        Self(Mutex::new(what.into()))
    }

    pub fn set(&self, what: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }

    pub fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The runtime that all clients of this process share.
pub fn runtime() -> PyResult<&'static Runtime> {
    static SHARED: OnceLock<(u32, Runtime)> = OnceLock::new();
    let process = std::process::id();
    if SHARED.get().is_none() {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("quiver").enable_all().build()?;
        // If another thread was first, this runtime is dropped.
        SHARED.set((process, runtime)).ok();
    }
    let (owner, runtime) = SHARED.get().expect("just set");
    if *owner == process {
        return Ok(runtime);
    }
    // A forked process has only the thread that called fork, so the runtime's worker thread does not exist there.
    Err(PyRuntimeError::new_err(
        "quiver_replay does not work in a forked process: use the multiprocessing start method \"spawn\"",
    ))
}

/// Waits for `future`, at most until `deadline`.
pub fn wait<T: Send>(
    py: Python<'_>,
    deadline: Option<Instant>,
    reason: impl Fn() -> String,
    future: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let runtime = runtime()?;
    let mut future = pin!(future);
    let start = Instant::now();
    let mut log_at = start + LOG_INTERVAL;
    loop {
        let left = deadline.map_or(POLL_INTERVAL, |at| at.saturating_duration_since(Instant::now()));
        let part = left.min(POLL_INTERVAL);
        let done = py.detach(|| runtime.block_on(async { timeout(part, future.as_mut()).await }));
        if let Ok(output) = done {
            return Ok(output);
        }
        py.check_signals()?;
        let now = Instant::now();
        if deadline.is_some_and(|at| now >= at) {
            let waited = (now - start).as_secs_f64();
            return Err(PyTimeoutError::new_err(format!("waited {waited:.1} s for {}", reason())));
        }
        if now >= log_at {
            log_at = now + LOG_INTERVAL;
            let text = format!("waiting for {}, {:.0} s so far", reason(), (now - start).as_secs_f64());
            py.import("logging")?
                .call_method1("getLogger", ("quiver_replay",))?
                .call_method1("warning", (text,))?;
        }
    }
}

/// Converts a timeout in seconds to a deadline; `None` and infinity mean no deadline.
pub fn deadline(seconds: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = seconds.filter(|&seconds| seconds != f64::INFINITY) else { return Ok(None) };
    let wait = Duration::try_from_secs_f64(seconds)
        .map_err(|error| crate::error::invalid(format!("timeout {seconds}: {error}")))?;
    Ok(Instant::now().checked_add(wait))
}
