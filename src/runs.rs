//! Which run is meant, and whether a new one can be written, found out before anything is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::bail;
use run::directory::{DirectoryError, read_settings};
use settings::nearest::hint;
use settings::resolve::Resolved;

/// Where runs go unless told otherwise.
pub const RUNS: &str = "runs";

/// The run that `name` means, a directory or a name below `runs/`, with its settings.
pub fn open(name: &Path) -> anyhow::Result<(PathBuf, Resolved)> {
    let path = find(name);
    if !path.exists() {
        let known = names();
        let hint = hint(&name.to_string_lossy(), known.iter().map(String::as_str));
        bail!("there is no run {}{hint}: start one with 'quiver train', or name another", name.display());
    }
    let resolved = read_settings(&path)?;
    Ok((path, resolved))
}

/// The directory that `name` means, whether it is there or not.
pub fn find(name: &Path) -> PathBuf {
    let below = Path::new(RUNS).join(name);
    if !name.exists() && below.exists() { below } else { name.to_owned() }
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(RUNS).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Checks that a new run can be made at `path`. Leaves nothing there.
pub fn check_fresh(path: &Path) -> Result<(), DirectoryError> {
    if path.join("config.toml").exists() {
        return Err(DirectoryError::Exists(path.display().to_string()));
    }
    check_writable(path)
}

/// Checks that `path` could be made or, if it is there, that files can be made in it. Leaves nothing there.
pub fn check_writable(path: &Path) -> Result<(), DirectoryError> {
    // Permission bits say little to root, on a read-only file system or in /proc, so try.
    let trial = existing_ground(path).join(format!(".quiver-{}", process::id()));
    fs::create_dir(&trial)
        .and_then(|()| fs::remove_dir(&trial))
        .map_err(|error| DirectoryError::Io { path: path.display().to_string(), error })
}

/// The deepest part of `path` that exists.
pub fn existing_ground(path: &Path) -> &Path {
    path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_can_be_made_is_not_made_yet() {
        let folder = tempfile::tempdir().unwrap();
        check_fresh(&folder.path().join("a/b/c")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_can_be_made_below_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(check_fresh(&file.join("run")), Err(DirectoryError::Io { .. })));
        assert!(matches!(check_fresh(&file), Err(DirectoryError::Io { .. })));
    }

    #[test]
    fn a_relative_path_stands_on_the_current_directory() {
        assert_eq!(existing_ground(Path::new("no-such/run")), Path::new("."));
    }
}
