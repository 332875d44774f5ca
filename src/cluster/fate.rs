//! What the end of a child means: whether it is started again, when, and when that is pointless.
//!
//! Decisions only. Processes are [`super::child`]'s business, and time is an argument.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Wait before the first new start; each further one waits twice as long.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// The longest wait before a new start.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// After a life of this length the waits begin anew.
const LIFE_LONG: Duration = Duration::from_secs(60);
/// A failure this early is one at the start: enough for libtorch to load on a busy machine.
const LIFE_SHORT: Duration = Duration::from_secs(10);
/// Failures at the start, one after the other, after which a further one would be the same again.
pub const FAILURES_MAX: u32 = 5;

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// Signals by which people, tests and the kernel end processes that have nothing wrong with them.
const FROM_OUTSIDE: [i32; 4] = [
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGKILL,
    signal_hook::consts::SIGTERM,
];

/// What a child is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Keeps experience.
    Shard,
    /// Trains; there is one, and its end is the run's.
    Learner,
    /// Plays, an actor or the evaluator; it ends by itself when the run has.
    Player,
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It could not even be started.
    NotStarted(String),
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is started again.
    Again,
    /// It is started again unless the run is about to end, which is why it may have ended.
    AgainUnlessOver,
    /// The whole run ends: starting it again would end the same.
    Fatal,
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(0) => f.write_str("ended early"),
            Self::Code(PANICKED) => f.write_str("panicked"),
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::NotStarted(error) => write!(f, "could not be started ({error})"),
        }
    }
}

/// What follows from an unexpected end.
pub fn fate(role: Role, end: &End) -> Fate {
    match (role, end) {
        (Role::Player, End::Code(0)) => Fate::AgainUnlessOver,
        // A learner that says what is wrong would say it again; one that was cut off goes on from its checkpoint.
        (Role::Learner, End::Code(code)) if ![0, PANICKED].contains(code) => Fate::Fatal,
        _ => Fate::Again,
    }
}

/// How often one child is started again, and after what wait.
#[derive(Debug)]
pub struct Patience {
    wait: Duration,
    failures: u32,
}

impl Patience {
    pub fn new() -> Self {
        Self { wait: WAIT_FIRST, failures: 0 }
    }

    /// The wait before the next start after a life that ended so; `None` once it is pointless.
    pub fn after(&mut self, end: &End, lived: Duration) -> Option<Duration> {
        if lived >= LIFE_LONG {
            self.wait = WAIT_FIRST;
        }
        if lived >= LIFE_SHORT {
            self.failures = 0;
        } else if is_failure(end) {
            self.failures += 1;
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(WAIT_MAX);
        (self.failures < FAILURES_MAX).then_some(wait)
    }
}

/// Whether the child itself is to blame.
fn is_failure(end: &End) -> bool {
    match end {
        End::Code(code) => *code != 0,
        End::Signal(signal) => !FROM_OUTSIDE.contains(signal),
        End::NotStarted(_) => true,
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

    const KILLED: End = End::Signal(9);
    const FAILED: End = End::Code(1);

    #[test]
    fn a_learner_that_says_what_is_wrong_ends_the_run() {
        for code in [1, 2, 127] {
            assert_eq!(fate(Role::Learner, &End::Code(code)), Fate::Fatal);
            assert_eq!(fate(Role::Shard, &End::Code(code)), Fate::Again);
            assert_eq!(fate(Role::Player, &End::Code(code)), Fate::Again);
        }
        for end in [End::Code(0), End::Code(PANICKED), KILLED, End::NotStarted(String::new())] {
            assert_eq!(fate(Role::Learner, &end), Fate::Again, "{end}");
        }
        assert_eq!(fate(Role::Player, &End::Code(0)), Fate::AgainUnlessOver);
        assert_eq!(fate(Role::Shard, &End::Code(0)), Fate::Again);
    }

    #[test]
    fn waits_double_up_to_a_bound_and_begin_anew_after_a_long_life() {
        let mut patience = Patience::new();
        let mut wait = |seconds| patience.after(&KILLED, Duration::from_secs(seconds)).unwrap().as_millis();
        let waits: Vec<_> = [1, 1, 59, 1, 1, 1, 1, 60, 1].map(&mut wait).into();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000, 200, 400]);
    }

    #[test]
    fn failing_at_the_start_again_and_again_is_pointless() {
        let mut patience = Patience::new();
        let mut goes_on = |end: &End, seconds| patience.after(end, Duration::from_secs(seconds)).is_some();
        assert!((0..4).all(|_| goes_on(&FAILED, 0)));
        assert!(goes_on(&FAILED, 20), "it worked for a while");
        assert!((0..4).all(|_| goes_on(&End::Signal(11), 0)));
        assert!((0..100).all(|_| goes_on(&KILLED, 0)), "being killed is no failure");
        assert!(!goes_on(&End::NotStarted("no such file".into()), 0));
    }

    #[test]
    fn an_end_is_told_in_words() {
        for (end, words) in [
            (KILLED, "was killed by signal 9"),
            (FAILED, "ended with exit code 1"),
            (End::Code(PANICKED), "panicked"),
            (End::Code(0), "ended early"),
        ] {
            assert_eq!(end.to_string(), words);
        }
        let told = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111].map(ordinal);
        assert_eq!(
            told,
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th"]
        );
    }
}
