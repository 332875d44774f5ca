//! The key of the run's tickets, in the run directory.
//!
//! It outlives the learner, so that a restarted learner and its shards know the tickets of all members that joined
//! before. Deleting the file of a stopped learner rotates the key: all members then join as new ones.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use replay::TicketKey;

use crate::open::read_if_there;

/// File in the run directory, readable by its owner only.
const FILE: &str = "ticket-key";

/// The run's key, and whether a former start of the learner created it.
pub(crate) fn open(directory: &Path) -> Result<(TicketKey, bool)> {
    let path = directory.join(FILE);
    if let Some(text) = read_if_there(&path)? {
        let Some(key) = TicketKey::from_hex(text.trim()) else {
            bail!(
                "{} is damaged: restore it from a backup, or delete it; then all actors join as new ones",
                path.display()
            );
        };
        return Ok((key, true));
    }
    let key = TicketKey::random().context("can't get random bytes from the kernel for the key of tickets")?;
    write(directory, &path, &key).with_context(|| format!("can't write {}", path.display()))?;
    Ok((key, false))
}

/// On disk before any member has a ticket.
fn write(directory: &Path, path: &Path, key: &TicketKey) -> std::io::Result<()> {
    let part = directory.join(format!("{FILE}.part"));
    // A leftover of an interrupted start may have another mode.
    let _ = fs::remove_file(&part);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(key.to_hex().as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_restarted_learner_has_the_same_key_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let (first, known) = open(folder.path()).unwrap();
        assert!(!known);
        assert_eq!(open(folder.path()).unwrap(), (first.clone(), true));
        let path = folder.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "nonsense").unwrap();
        assert!(open(folder.path()).unwrap_err().to_string().contains("ticket-key is damaged"));
        fs::remove_file(&path).unwrap();
        assert_ne!(open(folder.path()).unwrap().0, first, "a new key after a deletion");
    }
}
