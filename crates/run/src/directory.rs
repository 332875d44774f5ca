//! `runs/<name>/`: the run directory, its files, and the lock that admits one writer.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use settings::resolve::{ConfigError, Resolved};

/// A run directory, locked exclusively while this value exists.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    made: bool,
    _lock: File,
}

/// Why a run directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// A new run would mix with an existing one.
    #[error("{0} already holds a run: resume it with --resume {0}, or choose another --run-dir")]
    Exists(String),
    /// There is no run to resume.
    #[error("{0} holds no run: start one with 'quiver train', or name another directory")]
    Missing(String),
    /// Another process holds the lock.
    #[error("{0} is in use by another process: wait until it exits, or choose another --run-dir")]
    InUse(String),
    /// The file system reported an error.
    #[error("can't write to {path}: {error}; choose another --run-dir or free space")]
    Io {
        /// The file or directory.
        path: String,
        error: io::Error,
    },
    /// The run's configuration can't be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl RunDir {
    /// Creates the directory of a new run and writes its settings. Leaves nothing behind on an error.
    pub fn create(path: &Path, resolved: &Resolved) -> Result<Self, RunDirError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| io_error(path, error))?;
        }
        // Only the process that created the directory may delete it again.
        let made = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => false,
            Err(error) => return Err(io_error(path, error)),
        };
        let mut directory = Self::lock(path)?;
        directory.made = made;
        if directory.config().exists() {
            return Err(RunDirError::Exists(path.display().to_string()));
        }
        if made {
            // Every later sync below a directory whose own entry is lost would be in vain.
            sync_parent(path).map_err(|error| io_error(path, error))?;
        }
        let filled =
            write_atomically(&directory.config(), resolved.to_toml(true).as_bytes()).and_then(|()| {
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

    /// Undoes [`RunDir::create`], for a run that fails before it has trained.
    pub fn discard(&self) {
        let _ = if self.made { fs::remove_dir_all(&self.path) } else { fs::remove_file(self.config()) };
    }

    /// Locks a run to resume it, and reads its settings.
    pub fn open(path: &Path) -> Result<(Self, Resolved), RunDirError> {
        let resolved = read_settings(path)?;
        Ok((Self::lock(path)?, resolved))
    }

    fn lock(path: &Path) -> Result<Self, RunDirError> {
        let lock_path = path.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|error| io_error(&lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), made: false, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(RunDirError::InUse(path.display().to_string())),
            Err(TryLockError::Error(error)) => Err(io_error(&lock_path, error)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file with the run's settings.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// The folder of checkpoints: numbered ones, `best` and `final`.
    pub fn checkpoints(&self) -> PathBuf {
        checkpoints(&self.path)
    }

    /// Replaces the settings, for a run that is resumed with other settings.
    pub fn write_config(&self, resolved: &Resolved) -> Result<(), RunDirError> {
        write_atomically(&self.config(), resolved.to_toml(true).as_bytes())
    }
}

/// The folder of a run's checkpoints.
pub fn checkpoints(run: &Path) -> PathBuf {
    run.join("checkpoints")
}

/// Checks that no process holds the run; the run need not exist. The caller must still take the lock to write.
pub fn check_free(run: &Path) -> Result<(), RunDirError> {
    if run.join("lock").exists() { RunDir::lock(run).map(drop) } else { Ok(()) }
}

/// A run's settings, read without taking the lock.
pub fn read_settings(run: &Path) -> Result<Resolved, RunDirError> {
    let config = run.join("config.toml");
    if !config.is_file() {
        return Err(RunDirError::Missing(run.display().to_string()));
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

/// Writes a file atomically: it has either its old content or the new one. After a return without error it has the new
/// one, whatever happens to the machine.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunDirError> {
    let partial = path.with_extension("partial");
    let written = (|| {
        fs::write(&partial, bytes)?;
        File::open(&partial)?.sync_all()?;
        fs::rename(&partial, path)?;
        // A rename is on disk only with its directory: without this, a loss of power can bring the old content back.
        sync_parent(path)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        io_error(path, error)
    })
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

pub(crate) fn io_error(path: &Path, error: io::Error) -> RunDirError {
    RunDirError::Io { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::resolve::Layers;

    fn resolved() -> Resolved {
        Layers::default().resolve(Some("cartpole")).unwrap()
    }

    #[test]
    fn a_directory_has_one_owner_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let held = RunDir::create(&path, &resolved()).unwrap();
        assert!(matches!(RunDir::open(&path), Err(RunDirError::InUse(_))));
        assert!(matches!(check_free(&path), Err(RunDirError::InUse(_))));
        drop(held);
        assert!(check_free(&path).is_ok() && check_free(&folder.path().join("none")).is_ok());
        let (held, settings) = RunDir::open(&path).unwrap();
        assert_eq!(settings, resolved());
        drop(held);
        assert!(matches!(RunDir::create(&path, &resolved()), Err(RunDirError::Exists(_))));
    }

    #[test]
    fn a_second_owner_is_refused_and_deletes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let held = RunDir::create(&path, &resolved()).unwrap();
        assert!(matches!(RunDir::create(&path, &resolved()), Err(RunDirError::InUse(_))));
        assert!(held.config().is_file());
        held.discard();
        assert!(!path.exists());
    }

    #[test]
    fn a_failed_creation_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(RunDir::create(&file.join("run"), &resolved()), Err(RunDirError::Io { .. })));
        assert!(matches!(RunDir::open(&folder.path().join("none")), Err(RunDirError::Missing(_))));
    }

    #[test]
    fn new_names_count_up() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(fresh_name(folder.path(), "x"), folder.path().join("x"));
        fs::create_dir(folder.path().join("x")).unwrap();
        assert_eq!(fresh_name(folder.path(), "x"), folder.path().join("x-2"));
    }
}
