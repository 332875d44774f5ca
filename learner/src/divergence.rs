//! Stores in the run directory when training last diverged.
//!
//! A learner whose loss is NaN or infinite exits at once, before Prometheus could scrape it. The learner started after
//! it exports the time.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use run::directory::write_atomically;

use crate::learner::Diverged;
use crate::open::read_if_there;

/// One line: seconds since 1970, then the error.
const FILE: &str = "diverged.txt";

/// Stores the time and the error.
pub fn save(directory: &Path, diverged: &Diverged, now: SystemTime) -> Result<()> {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(write_atomically(&directory.join(FILE), format!("{seconds} {diverged}\n").as_bytes())?)
}

/// When training last diverged, in seconds since 1970; 0 if it never did.
pub fn last(directory: &Path) -> Result<f64> {
    let path = directory.join(FILE);
    let Some(text) = read_if_there(&path)? else { return Ok(0.0) };
    let seconds = text.split_whitespace().next().unwrap_or_default();
    seconds.parse().with_context(|| format!("{} is damaged: delete it", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_last_divergence_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(last(directory.path()).unwrap(), 0.0);
        for seconds in [1_700_000_000, 1_800_000_000] {
            let diverged =
                Diverged { update: 7, quantity: "the loss", loss: f64::NAN, gradient_norm: f64::INFINITY };
            save(directory.path(), &diverged, UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            assert_eq!(last(directory.path()).unwrap(), seconds as f64);
        }
        std::fs::write(directory.path().join(FILE), "").unwrap();
        assert!(last(directory.path()).unwrap_err().to_string().contains("damaged"));
    }
}
