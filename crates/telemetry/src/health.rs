//! The health of a process, as it reports it on `/healthz`.

use std::sync::{Arc, Mutex, PoisonError};

/// The state that `/healthz` reports. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Clone, Debug, PartialEq)]
enum State {
    Starting(&'static str),
    Ready,
    Waiting(String),
    Stopping,
}

impl Health {
    /// The process is starting and not ready for work: 503.
    #[expect(clippy::new_without_default, reason = "the initial state should be explicit at the call site")]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Starting("starting"))))
    }

    /// The process is still starting and busy with this: 503. For a start that can take long, such as a recovery.
    pub fn starting(&self, work: &'static str) {
        self.set(State::Starting(work));
    }

    /// The process works: 200.
    pub fn ready(&self) {
        self.set(State::Ready);
    }

    /// The process is blocked on another process: 200, with the reason in the body ("the learner to come back"). A
    /// restart would not help, so a blocked process must not report an error.
    pub fn waiting(&self, reason: impl Into<String>) {
        self.set(State::Waiting(reason.into()));
    }

    /// The process is shutting down: 503. This state is final.
    pub fn stopping(&self) {
        self.set(State::Stopping);
    }

    fn set(&self, state: State) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != State::Stopping {
            *now = state;
        }
    }

    /// HTTP status and body.
    pub(crate) fn answer(&self) -> (u16, String) {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Starting(work) => (503, (*work).into()),
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
    fn a_waiting_process_is_healthy_and_a_stopping_one_stays_unhealthy() {
        let health = Health::new();
        assert_eq!(health.answer(), (503, "starting".into()));
        health.starting("recovering");
        assert_eq!(health.answer(), (503, "recovering".into()));
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
