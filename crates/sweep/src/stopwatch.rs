//! The duration of a sweep over all its starts.
#![allow(clippy::disallowed_methods, reason = "it measures wall-clock time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use run::directory::write_atomically;

/// Time between two saves: at most this much is lost if the sweep is killed.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// A stopwatch that continues from the time of the last start.
#[derive(Debug)]
pub struct Stopwatch {
    path: PathBuf,
    before: f64,
    started: Instant,
    saved: Instant,
}

impl Stopwatch {
    /// Starts, or continues from the saved time. An unreadable file counts as 0.
    pub fn start(out: &Path) -> Self {
        let (path, now) = (out.join("sweep.seconds"), Instant::now());
        let before = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        Self { path, before: before.unwrap_or_default(), started: now, saved: now }
    }

    /// Time over all starts.
    pub fn seconds(&self) -> f64 {
        self.before + self.started.elapsed().as_secs_f64()
    }

    /// Saves the time if a save is due. A failure to write is ignored.
    pub fn tick(&mut self) {
        if self.saved.elapsed() >= SAVE_EVERY {
            self.save();
        }
    }

    /// Saves the time.
    pub fn save(&mut self) {
        self.saved = Instant::now();
        let _ = write_atomically(&self.path, self.seconds().to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_continues_from_start_to_start() {
        let out = tempfile::tempdir().unwrap();
        assert!(Stopwatch::start(out.path()).seconds() < 100.0);
        fs::write(out.path().join("sweep.seconds"), "1000").unwrap();
        let mut second = Stopwatch::start(out.path());
        second.save();
        let third = Stopwatch::start(out.path());
        assert!((1000.0..1100.0).contains(&third.seconds()));
    }
}
