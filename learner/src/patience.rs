//! Repeats a write that fails for a shortage (a full disk, no free file descriptor) until it succeeds.
//!
//! A run of days must not end because a disk was full for an hour. While a write waits, the training thread does nothing
//! else, so nothing accumulates: batches and reports wait in bounded queues, and the shards use up their allowances.

use std::time::Duration;

use anyhow::{Context, Result};
use run::shortage::{io_cause, is_shortage};

/// Time before the second attempt. It doubles with each further one.
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// The longest time between two attempts: so long may training stay paused after there is space again.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Calls `write` until it succeeds or fails for another reason. Before each repetition it calls `pause` with the error
/// and the time to wait, which waits and returns whether to try again: false if the process must stop.
pub fn until_written<T, S>(
    state: &mut S,
    mut write: impl FnMut(&mut S) -> Result<T>,
    mut pause: impl FnMut(&mut S, &anyhow::Error, Duration) -> bool,
) -> Result<T> {
    let mut wait = WAIT_FIRST;
    loop {
        let error = match write(state) {
            Ok(written) => return Ok(written),
            Err(error) => error,
        };
        if !io_cause(error.chain()).is_some_and(is_shortage) {
            return Err(error);
        }
        if !pause(state, &error, wait) {
            return Err(error).context("stopped while the run directory could not be written");
        }
        wait = (wait * 2).min(WAIT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Fails so often for this reason, then succeeds.
    fn written(failures: usize, kind: io::ErrorKind, stop_at: usize) -> (Result<usize>, Vec<u64>) {
        let mut waits = Vec::new();
        let result = until_written(
            &mut 0,
            |attempts| {
                *attempts += 1;
                if *attempts > failures {
                    Ok(*attempts)
                } else {
                    Err(io::Error::from(kind)).context("no record")
                }
            },
            |attempts, _, wait| {
                waits.push(wait.as_secs());
                *attempts < stop_at
            },
        );
        (result, waits)
    }

    #[test]
    fn a_full_disk_is_waited_for_with_growing_pauses() {
        let (result, waits) = written(8, io::ErrorKind::StorageFull, usize::MAX);
        assert_eq!((result.unwrap(), waits), (9, vec![1, 2, 4, 8, 16, 30, 30, 30]));
    }

    #[test]
    fn any_other_error_and_a_request_to_stop_end_the_wait() {
        let (result, waits) = written(8, io::ErrorKind::PermissionDenied, usize::MAX);
        assert!(result.is_err() && waits.is_empty());
        let (result, waits) = written(8, io::ErrorKind::StorageFull, 2);
        assert_eq!(waits.len(), 2);
        assert!(format!("{:#}", result.unwrap_err()).contains("stopped while the run directory"));
    }
}
