//! Finds runs by name, and checks that a new run can be written before anything is written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::bail;
use run::directory::{RunDirError, read_settings};
use settings::nearest::hint;
use settings::resolve::Resolved;

/// The default parent directory of runs.
pub const RUNS: &str = "runs";

/// Opens the run `name`, a directory or a name below `runs/`: its path and its settings.
pub fn open(name: &Path) -> anyhow::Result<(PathBuf, Resolved)> {
    let path = find(name);
    if !path.exists() {
        bail!("{}; start one with 'quiver train', or name another", not_found(name));
    }
    let resolved = read_settings(&path)?;
    Ok((path, resolved))
}

/// The directory that `name` refers to, whether it exists or not.
pub fn find(name: &Path) -> PathBuf {
    let below = Path::new(RUNS).join(name);
    if !name.exists() && below.exists() { below } else { name.to_owned() }
}

/// States that there is no run `name`, where it was searched for, and the nearest name.
pub fn not_found(name: &Path) -> String {
    let (known, below) = (names(), Path::new(RUNS).join(name));
    let hint = hint(&name.to_string_lossy(), known.iter().map(String::as_str));
    let name = name.display();
    format!("no run {name}{hint}: there is no directory {name} or {}", below.display())
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(RUNS).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Checks that a new run can be created at `path`. Leaves nothing there.
pub fn check_fresh(path: &Path) -> Result<(), RunDirError> {
    if path.join("config.toml").exists() {
        return Err(RunDirError::Exists(path.display().to_string()));
    }
    check_writable(path)
}

/// Checks that `path` can be created or, if it exists, that files can be created in it. Leaves nothing there.
pub fn check_writable(path: &Path) -> Result<(), RunDirError> {
    // Permission bits decide nothing for root, on a read-only file system or in /proc, so try it.
    let trial = existing_ancestor(path).join(format!(".quiver-{}", process::id()));
    fs::create_dir(&trial)
        .and_then(|()| fs::remove_dir(&trial))
        .map_err(|error| RunDirError::Io { path: path.display().to_string(), error })
}

/// [`check_writable`] for a folder that is given as --out.
pub fn check_out(path: &Path) -> anyhow::Result<()> {
    match check_writable(path) {
        Err(RunDirError::Io { path, error }) => bail!("can't write to {path}: {error}; choose another --out"),
        other => Ok(other?),
    }
}

/// The deepest ancestor of `path` that exists, or `path` itself.
pub fn existing_ancestor(path: &Path) -> &Path {
    path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checking_a_directory_does_not_create_it() {
        let folder = tempfile::tempdir().unwrap();
        check_fresh(&folder.path().join("a/b/c")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_below_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(check_fresh(&file.join("run")), Err(RunDirError::Io { .. })));
        assert!(matches!(check_fresh(&file), Err(RunDirError::Io { .. })));
    }

    #[test]
    fn a_relative_path_without_existing_parts_falls_back_to_the_current_directory() {
        assert_eq!(existing_ancestor(Path::new("no-such/run")), Path::new("."));
    }
}
