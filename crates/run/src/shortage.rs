//! Shortages that pass: a full disk, or no free file descriptor. Training pauses until they are over, instead of ending.

use std::io;

use rustix::io::Errno;

use crate::checkpoint::CheckpointError;
use crate::directory::RunDirError;

/// Whether a write that failed like this can succeed later without a change of anything but free space or open files.
/// Any other error (permissions, a failing disk) needs an operator, and a retry would hide it.
pub fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let too_many_files = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    // `FileTooLarge` is what a limit of the process (ulimit -f) answers with.
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
        || too_many_files.contains(&error.raw_os_error())
}

/// The error of the file system among an error and its causes.
pub fn io_cause<'a>(
    causes: impl IntoIterator<Item = &'a (dyn std::error::Error + 'static)>,
) -> Option<&'a io::Error> {
    causes.into_iter().find_map(|cause| {
        let checkpoint = || match cause.downcast_ref() {
            Some(CheckpointError::Io { error, .. }) => Some(error),
            _ => None,
        };
        let directory = || match cause.downcast_ref() {
            Some(RunDirError::Io { error, .. }) => Some(error),
            _ => None,
        };
        cause.downcast_ref().or_else(checkpoint).or_else(directory)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_by_itself_is_a_shortage() {
        for (errno, passes) in [
            (Errno::NOSPC, true),
            (Errno::DQUOT, true),
            (Errno::FBIG, true),
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::IO, false),
            (Errno::ROFS, false),
            (Errno::ACCESS, false),
            (Errno::NOENT, false),
        ] {
            assert_eq!(is_shortage(&errno.into()), passes, "{errno}");
        }
    }

    #[test]
    fn the_error_of_the_file_system_is_found_in_every_wrapping() {
        let full = || io::Error::from(Errno::NOSPC);
        let checkpoint = CheckpointError::Io { path: "x".into(), error: full() };
        let directory = RunDirError::Io { path: "x".into(), error: full() };
        let other = CheckpointError::None("x".into());
        let cause = |error: &(dyn std::error::Error + 'static)| io_cause([error]).is_some_and(is_shortage);
        assert!(cause(&full()) && cause(&checkpoint) && cause(&directory) && !cause(&other));
    }
}
