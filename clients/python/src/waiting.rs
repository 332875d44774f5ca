//! Waiting with Python's lock released: Ctrl-C ends it, and who waits long says for what.

use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How often a wait looks whether somebody pressed Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often a wait says for what.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What is waited for, in words, as whoever waits comes to know it.
#[derive(Debug, Default)]
pub struct Reason(Mutex<String>);

impl Reason {
    pub fn new(what: impl Into<String>) -> Self {
        Self(Mutex::new(what.into()))
    }

    pub fn is(&self, what: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }

    pub fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The threads that everything of this process shares.
pub fn runtime() -> PyResult<&'static Runtime> {
    static SHARED: OnceLock<(u32, Runtime)> = OnceLock::new();
    let process = std::process::id();
    if SHARED.get().is_none() {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("quiver").enable_all().build()?;
        // Another thread may have been first; then this one is dropped again.
        SHARED.set((process, runtime)).ok();
    }
    let (owner, runtime) = SHARED.get().expect("just made");
    if *owner == process {
        return Ok(runtime);
    }
    // A fork has no threads but the one that called it, so nothing would ever move.
    Err(PyRuntimeError::new_err(
        "this process was forked from one that used quiver_replay: start it with the multiprocessing method \"spawn\"",
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
    let mut say_at = start + SAY_EVERY;
    loop {
        let left = deadline.map_or(LOOK_EVERY, |at| at.saturating_duration_since(Instant::now()));
        let part = left.min(LOOK_EVERY);
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
        if now >= say_at {
            say_at = now + SAY_EVERY;
            let text = format!("waiting for {} since {:.0} s", reason(), (now - start).as_secs_f64());
            py.import("logging")?
                .call_method1("getLogger", ("quiver_replay",))?
                .call_method1("warning", (text,))?;
        }
    }
}

/// A time from now, from seconds as Python gives them.
pub fn deadline(seconds: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = seconds.filter(|&seconds| seconds != f64::INFINITY) else { return Ok(None) };
    let wait = Duration::try_from_secs_f64(seconds)
        .map_err(|error| crate::error::invalid(format!("timeout {seconds}: {error}")))?;
    Ok(Instant::now().checked_add(wait))
}
