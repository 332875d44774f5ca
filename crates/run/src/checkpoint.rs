//! Checkpoints: directories that are complete or absent, with the sha256 of each file.
//!
//! A checkpoint is written under a hidden name, synced, and renamed. A reader verifies the checksum of each file that it
//! reads. The trainer decides what the files contain.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "manifest.json";

/// Why a checkpoint can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file is missing, short or changed.
    #[error("checkpoint {path} is damaged ({what}): delete it to resume from an older one")]
    Damaged { path: String, what: String },
    #[error("checkpoint {0} was written by another version of quiver: resume the run with that version")]
    Version(String),
    /// There is no checkpoint.
    #[error("no checkpoint in {0}: train until the first one is written (see checkpoint_every_frames)")]
    None(String),
    /// There is no checkpoint of that name.
    #[error("no checkpoint '{name}' in {path}: choose from {known}")]
    Unknown { name: String, path: String, known: String },
    /// The file system reported an error.
    #[error("can't write checkpoint {path}: {error}; free space, then resume with --resume")]
    Io { path: String, error: io::Error },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    bytes: u64,
    sha256: String,
}

/// A checkpoint being written.
#[derive(Debug)]
pub struct CheckpointWriter {
    folder: PathBuf,
    manifest: BTreeMap<String, Entry>,
}

impl CheckpointWriter {
    /// Adds a file whose content `fill` writes.
    pub fn file(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let file = File::create(self.folder.join(name))?;
        let mut out =
            Hashing { inner: BufWriter::with_capacity(1 << 20, file), hash: Sha256::new(), bytes: 0 };
        fill(&mut out)?;
        let Hashing { inner, hash, bytes } = out;
        inner.into_inner()?.sync_all()?;
        self.manifest.insert(name.into(), Entry { bytes, sha256: hex(&hash.finalize()) });
        Ok(())
    }

    /// Adds a file of another checkpoint, as a hard link where the file system supports it.
    pub fn link(&mut self, from: &Checkpoint, name: &str) -> io::Result<()> {
        let entry = from
            .manifest
            .get(name)
            .ok_or_else(|| io::Error::other(format!("{name} is not in the manifest")))?;
        let (old, new) = (from.path.join(name), self.folder.join(name));
        fs::hard_link(&old, &new).or_else(|_| fs::copy(&old, &new).map(|_| ()))?;
        self.manifest.insert(name.into(), entry.clone());
        Ok(())
    }
}

/// Writes checkpoint `name` below `folder`, replacing an existing one. An error leaves the existing one unchanged.
pub fn write(
    folder: &Path,
    name: &str,
    fill: impl FnOnce(&mut CheckpointWriter) -> io::Result<()>,
) -> Result<PathBuf, CheckpointError> {
    let partial = folder.join(format!(".partial-{name}"));
    let path = folder.join(name);
    let written = (|| {
        remove_if_there(&partial)?;
        fs::create_dir_all(&partial)?;
        let mut writer = CheckpointWriter { folder: partial.clone(), manifest: BTreeMap::new() };
        fill(&mut writer)?;
        let manifest = serde_json::to_vec_pretty(&writer.manifest)?;
        let mut file = File::create(partial.join(MANIFEST))?;
        file.write_all(&manifest)?;
        file.sync_all()?;
        File::open(&partial)?.sync_all()?;
        put_in_place(folder, &partial, name)
    })();
    written.map_err(|error| {
        let _ = fs::remove_dir_all(&partial);
        CheckpointError::Io { path: path.display().to_string(), error }
    })?;
    Ok(path)
}

fn put_in_place(folder: &Path, partial: &Path, name: &str) -> io::Result<()> {
    let (path, old) = (folder.join(name), folder.join(format!(".old-{name}")));
    remove_if_there(&old)?;
    if path.exists() {
        fs::rename(&path, &old)?;
    }
    if let Err(error) = fs::rename(partial, &path) {
        let _ = fs::rename(&old, &path);
        return Err(error);
    }
    File::open(folder)?.sync_all()?;
    remove_if_there(&old)
}

/// Deletes checkpoint `name` if it exists.
pub fn remove(folder: &Path, name: &str) -> io::Result<()> {
    remove_if_there(&folder.join(name))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Cleans up after a killed process: deletes partial checkpoints, and restores a replaced checkpoint whose successor was not
/// put in place.
pub fn tidy(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(".partial-") {
            fs::remove_dir_all(&path)?;
        } else if let Some(name) = name.strip_prefix(".old-") {
            let current = folder.join(name);
            if current.exists() { fs::remove_dir_all(&path)? } else { fs::rename(&path, &current)? }
        }
    }
    Ok(())
}

/// Deletes all numbered checkpoints except the newest `kept`.
pub fn prune(folder: &Path, kept: usize) -> io::Result<()> {
    let numbers = numbers(folder);
    for number in &numbers[..numbers.len().saturating_sub(kept)] {
        fs::remove_dir_all(folder.join(number.to_string()))?;
    }
    Ok(())
}

/// The numbered checkpoints, oldest first.
pub fn numbers(folder: &Path) -> Vec<u64> {
    let mut numbers: Vec<u64> = names(folder).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// A checkpoint whose manifest is valid and whose files have the right lengths.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    manifest: BTreeMap<String, Entry>,
}

impl Checkpoint {
    /// Opens a checkpoint by its path.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let manifest =
            fs::read(path.join(MANIFEST)).map_err(|error| damaged(path, format!("{MANIFEST}: {error}")))?;
        let manifest: BTreeMap<String, Entry> = serde_json::from_slice(&manifest)
            .map_err(|error| damaged(path, format!("{MANIFEST}: {error}")))?;
        for (name, entry) in &manifest {
            let bytes = fs::metadata(path.join(name))
                .map_err(|error| damaged(path, format!("{name}: {error}")))?
                .len();
            if bytes != entry.bytes {
                return Err(damaged(path, format!("{name} has {bytes} bytes instead of {}", entry.bytes)));
            }
        }
        Ok(Self { path: path.to_owned(), manifest })
    }

    /// Opens a checkpoint by name; without a name the final one, else the best, else the newest.
    pub fn find(folder: &Path, name: Option<&str>) -> Result<Self, CheckpointError> {
        let names = names(folder);
        let newest = numbers(folder).last().map(u64::to_string);
        let chosen = match name {
            Some(name) if names.iter().any(|known| known == name) => name.to_owned(),
            Some(name) if !names.is_empty() => {
                let (path, known) = (folder.display().to_string(), names.join(", "));
                return Err(CheckpointError::Unknown { name: name.into(), path, known });
            }
            _ => ["final", "best"]
                .iter()
                .find(|name| folder.join(name).is_dir())
                .map(|name| (*name).to_owned())
                .or(newest)
                .ok_or_else(|| CheckpointError::None(folder.display().to_string()))?,
        };
        Self::open(&folder.join(chosen))
    }

    /// Opens the newest numbered checkpoint.
    pub fn newest(folder: &Path) -> Result<Self, CheckpointError> {
        let number = numbers(folder).last().copied();
        Self::open(
            &folder
                .join(number.ok_or_else(|| CheckpointError::None(folder.display().to_string()))?.to_string()),
        )
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file's content, verified.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = Vec::new();
        self.reader(name)?
            .read_to_end(&mut bytes)
            .map_err(|error| damaged(&self.path, format!("{name}: {error}")))?;
        Ok(bytes)
    }

    /// A file's content as a stream, after a first pass that verified all of it.
    pub fn reader(&self, name: &str) -> Result<impl Read + use<>, CheckpointError> {
        let fail = |what: String| damaged(&self.path, format!("{name}: {what}"));
        let entry = self.manifest.get(name).ok_or_else(|| fail("not in the manifest".into()))?;
        let open = || File::open(self.path.join(name)).map_err(|error| fail(error.to_string()));
        let mut hashing = Hashing { inner: io::sink(), hash: Sha256::new(), bytes: 0 };
        io::copy(&mut BufReader::with_capacity(1 << 20, open()?), &mut hashing)
            .map_err(|error| fail(error.to_string()))?;
        if hex(&hashing.hash.finalize()) != entry.sha256 {
            return Err(fail("its sha256 does not match the manifest".into()));
        }
        Ok(BufReader::with_capacity(1 << 20, open()?))
    }

    /// The error for a checkpoint in a format that this version does not read.
    pub fn other_version(&self) -> CheckpointError {
        CheckpointError::Version(self.path.display().to_string())
    }

    /// The error for content that is intact but invalid.
    pub fn invalid(&self, what: impl std::fmt::Display) -> CheckpointError {
        damaged(&self.path, what.to_string())
    }
}

fn damaged(path: &Path, what: String) -> CheckpointError {
    CheckpointError::Damaged { path: path.display().to_string(), what }
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
        write(folder, name, |writer| {
            writer.file("a", |out| out.write_all(content))?;
            writer.file("b", |out| out.write_all(b"b"))
        })
        .unwrap()
    }

    #[test]
    fn checkpoints_read_back_and_the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for number in [5, 10, 100] {
            save(folder.path(), &number.to_string(), format!("content {number}").as_bytes());
        }
        prune(folder.path(), 2).unwrap();
        assert_eq!(numbers(folder.path()), [10, 100]);
        assert_eq!(Checkpoint::newest(folder.path()).unwrap().read("a").unwrap(), b"content 100");
        let newest = Checkpoint::newest(folder.path()).unwrap();
        write(folder.path(), "final", |writer| writer.link(&newest, "a")).unwrap();
        assert!(write(folder.path(), "other", |writer| writer.link(&newest, "c")).is_err());
        let last = Checkpoint::find(folder.path(), None).unwrap();
        assert!(last.path().ends_with("final"));
        assert_eq!(last.read("a").unwrap(), b"content 100");
        assert!(last.read("b").is_err());
        assert!(matches!(Checkpoint::find(folder.path(), Some("7")), Err(CheckpointError::Unknown { .. })));
    }

    #[test]
    fn any_damage_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = save(folder.path(), "1", b"some content");
        fs::write(path.join("a"), b"some c0ntent").unwrap();
        assert!(matches!(Checkpoint::open(&path).unwrap().read("a"), Err(CheckpointError::Damaged { .. })));
        fs::write(path.join("a"), b"short").unwrap();
        assert!(matches!(Checkpoint::open(&path), Err(CheckpointError::Damaged { .. })));
        fs::write(path.join(MANIFEST), b"{").unwrap();
        assert!(matches!(Checkpoint::open(&path), Err(CheckpointError::Damaged { .. })));
    }

    #[test]
    fn a_failed_write_keeps_the_previous_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), "best", b"old");
        let failed = write(folder.path(), "best", |_| Err(io::Error::other("disk full")));
        assert!(matches!(failed, Err(CheckpointError::Io { .. })));
        assert_eq!(Checkpoint::find(folder.path(), Some("best")).unwrap().read("a").unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn cleaning_up_finishes_what_a_kill_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), "best", b"old");
        fs::rename(folder.path().join("best"), folder.path().join(".old-best")).unwrap();
        fs::create_dir(folder.path().join(".partial-best")).unwrap();
        tidy(folder.path()).unwrap();
        assert_eq!(Checkpoint::find(folder.path(), Some("best")).unwrap().read("a").unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
