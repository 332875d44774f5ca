//! Stores in the run directory when training last diverged.
//!
//! A learner whose loss is NaN or infinite exits at once, before Prometheus could scrape it. The learner started after
//! it exports the time.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use run::directory::{RunDirError, write_atomically};
use tracing::warn;

use crate::learner::Diverged;

/// One line: seconds since 1970, then the error.
const FILE: &str = "diverged.txt";

/// Stores the time and the error.
pub fn save(directory: &Path, diverged: &Diverged, now: SystemTime) -> Result<(), RunDirError> {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    write_atomically(&directory.join(FILE), format!("{seconds} {diverged}\n").as_bytes())
}

/// When training last diverged, in seconds since 1970; 0 if it never did. The file only feeds a metric, so a damaged one is
/// logged and counts as none.
pub fn last(directory: &Path) -> f64 {
    let path = directory.join(FILE);
    let seconds = match fs::read(&path) {
        Ok(bytes) => first_number(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => return 0.0,
        Err(error) => Err(error.to_string()),
    };
    seconds.unwrap_or_else(|error| {
        warn!(path = %path.display(), error, "damaged divergence file ignored");
        0.0
    })
}

fn first_number(bytes: &[u8]) -> Result<f64, String> {
    let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let number: f64 = text
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .ok_or("it does not begin with seconds since 1970")?;
    if number.is_finite() { Ok(number) } else { Err(format!("{number} is no time")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_last_divergence_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(last(directory.path()), 0.0);
        for seconds in [1_700_000_000, 1_800_000_000] {
            let diverged =
                Diverged { update: 7, quantity: "the loss", loss: f64::NAN, gradient_norm: f64::INFINITY };
            save(directory.path(), &diverged, UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            assert_eq!(last(directory.path()), seconds as f64);
        }
    }

    #[test]
    fn a_damaged_divergence_file_does_not_keep_a_run_from_resuming() {
        let directory = tempfile::tempdir().unwrap();
        for damaged in [&b""[..], b"\0\0\0\0", b"\xff\xfe", b"yesterday", b"NaN x", b"1e999"] {
            fs::write(directory.path().join(FILE), damaged).unwrap();
            assert_eq!(last(directory.path()), 0.0, "{damaged:?}");
        }
    }
}
