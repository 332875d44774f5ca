//! The clock, as an argument.
#![allow(clippy::disallowed_methods, reason = "this module is the clock of the others")]

use std::sync::Arc;
use std::time::Instant;

/// Reads the time. A simulated cluster passes a clock of its own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Instant + Send + Sync>);

impl Clock {
    /// A clock that calls `now`.
    pub fn new(now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The machine's monotonic clock.
    pub fn system() -> Self {
        Self::new(Instant::now)
    }

    pub fn now(&self) -> Instant {
        (self.0)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}
