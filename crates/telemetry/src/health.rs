//! Whether a process is well, as it says itself.

use std::sync::{Arc, Mutex, PoisonError};

/// What `/healthz` answers. All clones are one.
#[derive(Clone, Debug)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Clone, Debug, PartialEq)]
enum State {
    Starting,
    Ready,
    Waiting(String),
    Stopping,
}

impl Health {
    /// A process that is starting, which is not ready for work: 503.
    #[expect(clippy::new_without_default, reason = "where health begins should be seen in the code")]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Starting)))
    }

    /// It works: 200.
    pub fn ready(&self) {
        self.set(State::Ready);
    }

    /// It is well, and waits for someone else: 200, and the answer says for what ("the learner to come back"). A
    /// restart would not help, so a waiting process must not look ill.
    pub fn waiting(&self, reason: impl Into<String>) {
        self.set(State::Waiting(reason.into()));
    }

    /// It is about to end: 503. Nothing changes that any more.
    pub fn stopping(&self) {
        self.set(State::Stopping);
    }

    fn set(&self, state: State) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != State::Stopping {
            *now = state;
        }
    }

    /// HTTP status and text.
    pub(crate) fn answer(&self) -> (u16, String) {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Starting => (503, "starting".into()),
            State::Ready => (200, "ok".into()),
            State::Waiting(reason) => (200, format!("waiting for {reason}")),
            State::Stopping => (503, "stopping".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_waits_is_healthy_and_one_that_stops_never_is_again() {
        let health = Health::new();
        assert_eq!(health.answer(), (503, "starting".into()));
        health.ready();
        assert_eq!(health.answer(), (200, "ok".into()));
        let other = health.clone();
        other.waiting("shard 2");
        assert_eq!(health.answer(), (200, "waiting for shard 2".into()));
        health.stopping();
        health.ready();
        assert_eq!(health.answer(), (503, "stopping".into()));
    }
}
