//! The private directory of a running cluster: its Unix sockets, the learner's settings, the children's status files.
//!
//! A socket's path has at most 107 bytes and a run directory's path may be longer. So this directory has a short name in the
//! system's directory for temporary files, derived from the run's path and the user. It belongs to one launcher and its
//! children: shards and players hold its lock, and the learner holds the run's lock. A new launcher therefore waits for the
//! last process of a launcher that was killed or is still exiting.
#![allow(clippy::disallowed_methods, reason = "the launcher polls its child processes")]

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{env, path, thread};

use anyhow::{Context, bail};
use run::directory::{RunDirError, check_free};
use sha2::{Digest, Sha256};

use crate::runs::existing_ancestor;

/// Bytes of a socket's path, without the terminating zero.
const PATH_BYTES_MAX: usize = 107;

/// How long a learner whose launcher was killed may take to exit. After that, the run counts as in use.
const FREE_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a launcher whose learner has exited may take to end the other processes and exit; it gives them 3 s itself.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(20);

/// The file whose lock decides who owns the directory. It is created first and deleted last.
const LOCK: &str = "lock";

/// The directory: locked while this value exists, deleted when it is dropped.
#[derive(Debug)]
pub struct Sockets {
    path: PathBuf,
    lock: File,
}

impl Sockets {
    /// Creates the directory for `run`, with a path short enough for sockets of these names. Waits for previous owners of the
    /// directory and of the run to exit.
    pub fn open(run: &Path, names: &[String]) -> anyhow::Result<Self> {
        let longest = names.iter().map(String::len).max().unwrap_or_default();
        let path = choose(&socket_folder(run)?, longest, &[env::temp_dir(), PathBuf::from("/tmp")])?;
        let started = Instant::now();
        loop {
            let (taken, free) = (Self::take(&path)?, check_free(run).is_ok());
            if let Some(sockets) = taken.filter(|_| free) {
                sockets.prepare().with_context(|| cannot(&path))?;
                return Ok(sockets);
            }
            if started.elapsed() >= if free { LEAVE_WAIT_MAX } else { FREE_WAIT_MAX } {
                return Err(RunDirError::InUse(run.display().to_string()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Creates and locks the directory; `None` if another process owns it.
    fn take(path: &Path) -> anyhow::Result<Option<Self>> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).context(cannot(path));
            }
            _ => {}
        }
        // Another user could create a directory of this name first, so check the owner and the mode.
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            // The previous owner has just deleted it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(cannot(path)),
        };
        let uid = rustix::process::getuid().as_raw();
        if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
            bail!(
                "{} is not a private directory of this user: delete it, or set TMPDIR to another directory",
                path.display()
            );
        }
        let lock_path = path.join(LOCK);
        let lock = match File::options().create(true).append(true).open(&lock_path) {
            Ok(lock) => lock,
            // The previous owner is deleting it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(cannot(path)),
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error).context(cannot(path)),
        }
        let same = |there: fs::Metadata| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino());
        let is_ours = fs::metadata(&lock_path).is_ok_and(same);
        Ok(is_ours.then(|| Self { path: path.to_owned(), lock }))
    }

    /// Deletes the leftovers of a killed launcher and creates the subdirectory for status files.
    fn prepare(&self) -> io::Result<()> {
        self.clear()?;
        fs::create_dir(self.path.join("processes"))
    }

    /// Deletes everything but the lock.
    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false if entry.file_name() == LOCK => {}
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }

    /// Deletes the directory. Once the lock file is deleted, another launcher may own the directory and create files there. So
    /// nothing else is deleted after that: a directory that is not empty stays.
    fn remove(&self) -> io::Result<()> {
        self.clear()?;
        fs::remove_file(self.path.join(LOCK))?;
        fs::remove_dir(&self.path)
    }

    /// A duplicate of the lock as a child's stdout: a child that prints nothing there holds the lock as long as it runs.
    pub fn share_of_lock(&self) -> io::Result<Stdio> {
        self.lock.try_clone().map(Stdio::from)
    }

    pub fn address(&self, name: &str) -> OsString {
        let mut address = OsString::from("unix:");
        address.push(self.path.join(name));
        address
    }

    /// The file with the learner's settings.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// The file in which a child writes the addresses that it listens on.
    pub fn status(&self, name: &str) -> PathBuf {
        self.path.join("processes").join(format!("{name}.json"))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// The directory's name: the same for every spelling of the run's path.
fn socket_folder(run: &Path) -> anyhow::Result<String> {
    let absolute = path::absolute(run).context("can't read the current directory")?;
    let ground = existing_ancestor(&absolute);
    let rest = absolute.strip_prefix(ground).unwrap_or(Path::new(""));
    // Joined from components, so that a path that already exists gets no trailing slash.
    let real = fs::canonicalize(ground).unwrap_or_else(|_| ground.to_owned());
    let real: PathBuf = real.components().chain(rest.components()).collect();
    let hash = Sha256::new()
        .chain_update(rustix::process::getuid().as_raw().to_le_bytes())
        .chain_update(real.as_os_str().as_bytes())
        .finalize();
    let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("quiver-{hash}"))
}

/// The first folder in which a socket's path is short enough.
fn choose(name: &str, longest: usize, folders: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let fits = |path: &PathBuf| path.as_os_str().len() + 1 + longest <= PATH_BYTES_MAX;
    let paths = folders.iter().filter_map(|folder| path::absolute(folder.join(name)).ok());
    paths.into_iter().find(fits).context(
        "the path of the directory for temporary files is too long for sockets: set TMPDIR to a shorter one",
    )
}

fn cannot(path: &Path) -> String {
    format!("can't use {} for sockets; set TMPDIR to a writable directory", path.display())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_spelling_of_a_path_gives_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a"), folder.path().join("b")).unwrap();
        let name = |path: &str| socket_folder(&folder.path().join(path)).unwrap();
        let before = name("a/run");
        assert_eq!(before, name("b/run"));
        fs::create_dir(folder.path().join("a/run")).unwrap();
        assert_eq!(before, name("a/run/"), "whether it exists or not");
        assert_ne!(name("a/run"), name("a/run2"));
        assert_eq!(name("a").len(), "quiver-".len() + 16);
    }

    #[test]
    fn a_folder_with_a_long_path_is_skipped() {
        let long = PathBuf::from(format!("/{}", "x".repeat(80)));
        let choose = |folders: [PathBuf; 2]| choose("quiver-0123456789abcdef", 9, &folders).ok();
        assert_eq!(
            choose([long.clone(), "/tmp".into()]),
            Some(PathBuf::from("/tmp/quiver-0123456789abcdef"))
        );
        assert_eq!(choose([long.clone(), long]), None);
    }

    #[test]
    fn a_directory_has_one_owner_and_is_deleted_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = Sockets::take(&path).unwrap().unwrap();
        assert!(Sockets::take(&path).unwrap().is_none());
        let child = first.share_of_lock().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        drop(first);
        assert!(!path.exists());
        drop(child);
        assert!(Sockets::take(&path).unwrap().is_some());
    }

    /// Launchers of one run start and exit: each owns the directory alone while it runs.
    #[test]
    fn an_exiting_launcher_deletes_nothing_of_its_successor() {
        const TURNS: usize = 300;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let left = AtomicUsize::new(TURNS);
        let come_and_go = || {
            while left.load(Ordering::Relaxed) > 0 {
                let Some(sockets) = Sockets::take(&path).unwrap() else { continue };
                sockets.prepare().unwrap();
                fs::write(sockets.config(), "settings").unwrap();
                thread::sleep(Duration::from_micros(100));
                assert!(sockets.config().is_file() && sockets.status("").parent().unwrap().is_dir());
                let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            }
        };
        thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(come_and_go))));
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_other_users_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        DirBuilder::new().mode(0o755).create(&path).unwrap();
        assert!(Sockets::take(&path).unwrap_err().to_string().contains("not a private directory"));
    }
}
