//! Remembers, beside a store's files, that a flush to disk failed.
//!
//! After a failed fsync the kernel may have dropped the changes and marked their pages as clean: the next fsync reports
//! success for what is not on disk. So a failed flush counts as damage, also for the next process. The marker need not
//! reach the disk itself: it matters until the machine boots again, and after a boot every store is treated like this.
//! Therefore it is a file whose blocks exist before anything fails: marking overwrites a byte in place, which needs no
//! space, no file descriptor and no working disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Name of the file.
pub(crate) const NAME: &str = "flush-failed";

/// What the file says. All have the same length, so that one overwrites another completely.
const NEVER: &[u8; 16] = b"never           ";
const FAILED: &[u8; 16] = b"changes lost?   ";
const REPAIRED: &[u8; 16] = b"written again   ";

/// The open marker of one store.
#[derive(Debug)]
pub struct FlushMarker(File);

impl FlushMarker {
    /// Opens the marker in a directory, and creates it if there is none.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(NAME);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let marker = Self(file);
        if marker.0.metadata()?.len() == 0 {
            marker.0.write_all_at(NEVER, 0)?;
            marker.0.sync_all()?;
        }
        Ok(marker)
    }

    /// Records that a flush failed.
    pub(crate) fn set(&self) {
        // If even this fails, the file system has become read-only, and no shard can open the store again before it is
        // repaired.
        let _ = self.0.write_all_at(FAILED, 0);
        let _ = self.0.sync_data();
    }

    /// Whether a flush failed since the store was last known to be on disk.
    pub fn is_set(&self) -> io::Result<bool> {
        Ok(self.read()? == *FAILED)
    }

    /// Records that everything is on disk again. Keeps the time of the failure.
    pub fn clear(&self) -> io::Result<()> {
        let failed = self.0.metadata()?.modified()?;
        self.0.write_all_at(REPAIRED, 0)?;
        self.0.set_modified(failed)?;
        self.0.sync_all()
    }

    /// When a flush last failed, in seconds since 1970; 0 if none ever did.
    pub fn last_failure(&self) -> io::Result<f64> {
        if ![*FAILED, *REPAIRED].contains(&self.read()?) {
            return Ok(0.0);
        }
        let modified = self.0.metadata()?.modified()?;
        Ok(modified.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()))
    }

    fn read(&self) -> io::Result<[u8; 16]> {
        let mut text = [0; 16];
        // A shorter file, left by a kill at its creation, says nothing.
        self.0.read_at(&mut text, 0)?;
        Ok(text)
    }
}
