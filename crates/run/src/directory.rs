//! `runs/<name>/`: where each file of a run is, and that only one process writes it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use settings::resolve::{ConfigError, Resolved};

/// A run's directory, held by an exclusive lock for as long as this value lives.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    made: bool,
    _lock: File,
}

/// Why a run's directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A fresh run would mix with another.
    #[error("{0} already holds a run: go on with it by --resume {0}, or choose another --run-dir")]
    Exists(String),
    /// Nothing to go on with.
    #[error("{0} holds no run: start one with 'quiver train', or name another directory")]
    Missing(String),
    /// Another process has it.
    #[error("{0} is in use by another process: wait for it to end, or choose another --run-dir")]
    InUse(String),
    /// The file system said no.
    #[error("can't write to {path}: {error}; choose another --run-dir or free some space")]
    Io {
        /// The file or directory.
        path: String,
        /// What the file system said.
        error: io::Error,
    },
    /// A record was changed by someone else.
    #[error("{path} is damaged in line {line}: {what}; restore or delete that line")]
    Damaged {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The run's own configuration can't be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl RunDir {
    /// Makes the directory of a new run and writes its settings there. Leaves nothing behind if it fails.
    pub fn create(path: &Path, resolved: &Resolved) -> Result<Self, DirectoryError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| io_error(path, error))?;
        }
        // Who makes the directory may delete it again; whoever comes second may not.
        let made = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => false,
            Err(error) => return Err(io_error(path, error)),
        };
        let mut directory = Self::lock(path)?;
        directory.made = made;
        if directory.config().exists() {
            return Err(DirectoryError::Exists(path.display().to_string()));
        }
        let filled = write_whole(&directory.config(), resolved.to_toml(true).as_bytes()).and_then(|()| {
            fs::create_dir_all(directory.checkpoints()).map_err(|error| io_error(path, error))
        });
        match filled {
            Ok(()) => Ok(directory),
            Err(error) => {
                directory.discard();
                Err(error)
            }
        }
    }

    /// Takes back [`RunDir::create`]: what failed at its start leaves nothing behind.
    pub fn discard(&self) {
        let _ = if self.made { fs::remove_dir_all(&self.path) } else { fs::remove_file(self.config()) };
    }

    /// Opens a run to go on with it, and reads its settings.
    pub fn open(path: &Path) -> Result<(Self, Resolved), DirectoryError> {
        let resolved = read_settings(path)?;
        Ok((Self::lock(path)?, resolved))
    }

    fn lock(path: &Path) -> Result<Self, DirectoryError> {
        let lock_path = path.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|error| io_error(&lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), made: false, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse(path.display().to_string())),
            Err(TryLockError::Error(error)) => Err(io_error(&lock_path, error)),
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The settings in force.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// Checkpoints by number, and `best` and `final`.
    pub fn checkpoints(&self) -> PathBuf {
        checkpoints(&self.path)
    }

    /// Replaces the settings, for a run that goes on with others.
    pub fn write_config(&self, resolved: &Resolved) -> Result<(), DirectoryError> {
        write_whole(&self.config(), resolved.to_toml(true).as_bytes())
    }
}

/// Where a run keeps its checkpoints.
pub fn checkpoints(run: &Path) -> PathBuf {
    run.join("checkpoints")
}

/// Checks that no process holds the run; there need not be one. Whoever goes on still has to take the lock.
pub fn check_free(run: &Path) -> Result<(), DirectoryError> {
    if run.join("lock").exists() { RunDir::lock(run).map(drop) } else { Ok(()) }
}

/// A run's settings, read without taking the lock.
pub fn read_settings(run: &Path) -> Result<Resolved, DirectoryError> {
    let config = run.join("config.toml");
    if !config.is_file() {
        return Err(DirectoryError::Missing(run.display().to_string()));
    }
    Ok(Resolved::from_run(&config)?)
}

/// The first of `runs/<stem>`, `runs/<stem>-2`, … that does not exist.
pub fn fresh_name(runs: &Path, stem: &str) -> PathBuf {
    let mut path = runs.join(stem);
    let mut number = 2;
    while path.exists() {
        path = runs.join(format!("{stem}-{number}"));
        number += 1;
    }
    path
}

/// Writes a file so that it is there whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), DirectoryError> {
    let partial = path.with_extension("partial");
    let written = (|| {
        fs::write(&partial, bytes)?;
        File::open(&partial)?.sync_all()?;
        fs::rename(&partial, path)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        io_error(path, error)
    })
}

pub(crate) fn io_error(path: &Path, error: io::Error) -> DirectoryError {
    DirectoryError::Io { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::resolve::Layers;

    fn resolved() -> Resolved {
        Layers::default().resolve(Some("cartpole")).unwrap()
    }

    #[test]
    fn a_directory_is_held_by_one_owner_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let held = RunDir::create(&path, &resolved()).unwrap();
        assert!(matches!(RunDir::open(&path), Err(DirectoryError::InUse(_))));
        assert!(matches!(check_free(&path), Err(DirectoryError::InUse(_))));
        drop(held);
        assert!(check_free(&path).is_ok() && check_free(&folder.path().join("none")).is_ok());
        let (held, settings) = RunDir::open(&path).unwrap();
        assert_eq!(settings, resolved());
        drop(held);
        assert!(matches!(RunDir::create(&path, &resolved()), Err(DirectoryError::Exists(_))));
    }

    #[test]
    fn who_comes_second_leaves_the_first_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let held = RunDir::create(&path, &resolved()).unwrap();
        assert!(matches!(RunDir::create(&path, &resolved()), Err(DirectoryError::InUse(_))));
        assert!(held.config().is_file());
        held.discard();
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_can_not_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(RunDir::create(&file.join("run"), &resolved()), Err(DirectoryError::Io { .. })));
        assert!(matches!(RunDir::open(&folder.path().join("none")), Err(DirectoryError::Missing(_))));
    }

    #[test]
    fn fresh_names_count_up() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(fresh_name(folder.path(), "x"), folder.path().join("x"));
        fs::create_dir(folder.path().join("x")).unwrap();
        assert_eq!(fresh_name(folder.path(), "x"), folder.path().join("x-2"));
    }
}
