//! Decides what follows from a child's exit: whether it is restarted, after which delay, and when to give up.
//!
//! Decisions only: [`super::child`] handles processes, and time is an argument.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Delay before the first restart; it doubles with each further restart.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// The longest delay before a restart.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// An uptime of this length resets the delay.
const UPTIME_LONG: Duration = Duration::from_secs(60);
/// A failure within this uptime counts as a failure at the start. Long enough for libtorch to load on a busy machine.
const UPTIME_SHORT: Duration = Duration::from_secs(10);
/// Consecutive failures at the start after which the launcher gives up.
pub const FAILURES_MAX: u32 = 5;

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// Signals by which users, tests and the kernel end healthy processes.
const FROM_OUTSIDE: [i32; 4] = [
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGKILL,
    signal_hook::consts::SIGTERM,
];

/// The task of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildRole {
    Shard,
    /// Trains. There is one, and its failure ends the run.
    Learner,
    /// Plays games: an actor or the evaluator. It exits by itself when the run is over.
    Player,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
}

/// What follows from an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    Again,
    /// Restart it unless the run is about to end, which may be why it exited.
    AgainUnlessOver,
    /// End the run: a restart would fail the same way.
    Fatal,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(0) => f.write_str("exited early"),
            Self::Code(PANICKED) => f.write_str("panicked"),
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::NotStarted(error) => write!(f, "could not be started ({error})"),
        }
    }
}

/// What follows from an unexpected exit.
pub fn restart_decision(role: ChildRole, exit: &Exit) -> RestartDecision {
    match (role, exit) {
        (ChildRole::Player, Exit::Code(0)) => RestartDecision::AgainUnlessOver,
        // A learner that reports an error would report it again; one that crashed resumes from its checkpoint.
        (ChildRole::Learner, Exit::Code(code)) if ![0, PANICKED].contains(code) => RestartDecision::Fatal,
        _ => RestartDecision::Again,
    }
}

/// Delays and limit of a child's restarts.
#[derive(Debug)]
pub struct RestartPolicy {
    wait: Duration,
    failures: u32,
}

impl RestartPolicy {
    pub fn new() -> Self {
        Self { wait: WAIT_FIRST, failures: 0 }
    }

    /// The delay before the next start, after an exit with this uptime; `None` to give up.
    pub fn after(&mut self, exit: &Exit, uptime: Duration) -> Option<Duration> {
        if uptime >= UPTIME_LONG {
            self.wait = WAIT_FIRST;
        }
        if uptime >= UPTIME_SHORT {
            self.failures = 0;
        } else if is_failure(exit) {
            self.failures += 1;
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(WAIT_MAX);
        (self.failures < FAILURES_MAX).then_some(wait)
    }
}

/// Whether the child itself failed.
fn is_failure(exit: &Exit) -> bool {
    match exit {
        Exit::Code(code) => *code != 0,
        Exit::Signal(signal) => !FROM_OUTSIDE.contains(signal),
        Exit::NotStarted(_) => true,
    }
}

/// `1st`, `2nd`, `3rd`, `4th`, ….
pub fn ordinal(number: u32) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Exit = Exit::Signal(9);
    const FAILED: Exit = Exit::Code(1);

    #[test]
    fn a_learner_that_exits_with_an_error_ends_the_run() {
        for code in [1, 2, 127] {
            assert_eq!(restart_decision(ChildRole::Learner, &Exit::Code(code)), RestartDecision::Fatal);
            assert_eq!(restart_decision(ChildRole::Shard, &Exit::Code(code)), RestartDecision::Again);
            assert_eq!(restart_decision(ChildRole::Player, &Exit::Code(code)), RestartDecision::Again);
        }
        for exit in [Exit::Code(0), Exit::Code(PANICKED), KILLED, Exit::NotStarted(String::new())] {
            assert_eq!(restart_decision(ChildRole::Learner, &exit), RestartDecision::Again, "{exit}");
        }
        assert_eq!(restart_decision(ChildRole::Player, &Exit::Code(0)), RestartDecision::AgainUnlessOver);
        assert_eq!(restart_decision(ChildRole::Shard, &Exit::Code(0)), RestartDecision::Again);
    }

    #[test]
    fn delays_double_up_to_a_bound_and_reset_after_a_long_uptime() {
        let mut policy = RestartPolicy::new();
        let mut wait = |seconds| policy.after(&KILLED, Duration::from_secs(seconds)).unwrap().as_millis();
        let waits: Vec<_> = [1, 1, 59, 1, 1, 1, 1, 60, 1].map(&mut wait).into();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000, 200, 400]);
    }

    #[test]
    fn repeated_failures_at_the_start_are_given_up() {
        let mut policy = RestartPolicy::new();
        let mut restarts = |exit: &Exit, seconds| policy.after(exit, Duration::from_secs(seconds)).is_some();
        assert!((0..4).all(|_| restarts(&FAILED, 0)));
        assert!(restarts(&FAILED, 20), "it worked for a while");
        assert!((0..4).all(|_| restarts(&Exit::Signal(11), 0)));
        assert!((0..100).all(|_| restarts(&KILLED, 0)), "being killed is not a failure");
        assert!(!restarts(&Exit::NotStarted("no such file".into()), 0));
    }

    #[test]
    fn an_exit_is_described_in_words() {
        for (exit, words) in [
            (KILLED, "was killed by signal 9"),
            (FAILED, "exited with code 1"),
            (Exit::Code(PANICKED), "panicked"),
            (Exit::Code(0), "exited early"),
        ] {
            assert_eq!(exit.to_string(), words);
        }
        let ordinals = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111].map(ordinal);
        assert_eq!(
            ordinals,
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th"]
        );
    }
}
