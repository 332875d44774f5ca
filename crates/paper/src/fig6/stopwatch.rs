//! How long a sweep has taken, over all its starts.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use run::directory::write_whole;

use crate::options::Options;

/// How often the time is written down: so much is lost if the sweep is killed.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// Counts on from where the last start was when it ended.
#[derive(Debug)]
pub struct Stopwatch {
    path: PathBuf,
    before: f64,
    started: Instant,
    kept: Instant,
}

impl Stopwatch {
    /// Starts, or goes on. A file that can't be read counts as none.
    pub fn start(options: &Options) -> Result<Self> {
        let (path, now) = (options.file("sweep.seconds")?, Instant::now());
        let before = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        Ok(Self { path, before: before.unwrap_or_default(), started: now, kept: now })
    }

    /// Of all starts together.
    pub fn seconds(&self) -> f64 {
        self.before + self.started.elapsed().as_secs_f64()
    }

    /// Writes it down, now and then. It is not worth a failure.
    pub fn tick(&mut self) {
        if self.kept.elapsed() >= KEEP_EVERY {
            self.keep();
        }
    }

    /// Writes it down.
    pub fn keep(&mut self) {
        self.kept = Instant::now();
        let _ = write_whole(&self.path, self.seconds().to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Effort;

    #[test]
    fn time_goes_on_from_start_to_start() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 0, out: out.path().to_owned() };
        assert!(Stopwatch::start(&options).unwrap().seconds() < 100.0);
        fs::write(out.path().join("sweep.seconds"), "1000").unwrap();
        let mut second = Stopwatch::start(&options).unwrap();
        second.keep();
        let third = Stopwatch::start(&options).unwrap();
        assert!((1000.0..1100.0).contains(&third.seconds()));
    }
}
