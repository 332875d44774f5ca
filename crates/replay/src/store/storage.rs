//! Where a store keeps its memory: in files of a directory, or in the process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::options::OptionsError;
use crate::store::flush_marker::{self, FlushMarker};
use crate::store::memory::Memory;

/// Bytes read or written at a time where a whole file is.
const PIECE_BYTES: usize = 1 << 20;
/// Zeros written between two reports of progress, which take seconds on a slow disk.
const PROGRESS_BYTES: u64 = 1 << 30;

/// Receives the progress of filling a new file with zeros: its name, the bytes written and all bytes.
pub type ZerosProgress = fn(&str, u64, u64);

#[derive(Clone, Debug)]
pub struct Storage {
    directory: Option<PathBuf>,
    salt: u64,
    is_new: bool,
    /// The open files by name. They stay open, so that a flush needs no file descriptor, and because the kernel reports
    /// a failed write only to descriptors that were open before it.
    files: Arc<Mutex<BTreeMap<String, Arc<File>>>>,
    marker: Option<Arc<FlushMarker>>,
    progress: Option<ZerosProgress>,
}

impl Storage {
    /// In the memory of this process.
    pub fn in_memory() -> Self {
        let files = Arc::default();
        Self { directory: None, salt: 1, is_new: true, files, marker: None, progress: None }
    }

    /// In files of a directory that this process has locked. `salt` is a secret of the store and must be the same every
    /// time. With `is_new`, existing files are leftovers of a failed start, and are overwritten.
    pub fn directory(directory: &Path, salt: u64, is_new: bool) -> Self {
        Self { directory: Some(directory.to_owned()), salt, is_new, ..Self::in_memory() }
    }

    /// Sets this marker when a flush fails.
    #[must_use]
    pub fn with_marker(self, marker: Arc<FlushMarker>) -> Self {
        Self { marker: Some(marker), ..self }
    }

    /// Reports progress where new files are filled with zeros.
    #[must_use]
    pub fn with_progress(self, progress: ZerosProgress) -> Self {
        Self { progress: Some(progress), ..self }
    }

    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Memory by name. Allocates all blocks of a new file, so that a full disk is an error here and not a fault later.
    pub(crate) fn memory(&self, name: &str, bytes: usize) -> Result<Memory, StorageError> {
        let failed = |source| StorageError::Io { name: name.to_owned(), bytes, source };
        let Some(directory) = &self.directory else { return Memory::anonymous(bytes).map_err(failed) };
        let path = directory.join(name);
        let open = || -> io::Result<Memory> {
            let file = if self.is_new { self.allocate(&path, name, bytes)? } else { open(&path)? };
            self.map(name, file, bytes)
        };
        open().map_err(failed)
    }

    /// Like [`Storage::memory`], but keeps the size of a file that has grown, in multiples of `unit`.
    pub(crate) fn memory_at_least(
        &self,
        name: &str,
        bytes: usize,
        unit: usize,
    ) -> Result<Memory, StorageError> {
        let path = self.directory.as_ref().filter(|_| !self.is_new).map(|directory| directory.join(name));
        let length =
            path.and_then(|path| fs::metadata(path).ok()).map_or(0, |metadata| metadata.len() as usize);
        self.memory(name, bytes.max(length / unit * unit))
    }

    /// Replaces memory by larger memory with the same beginning. On failure the file is unchanged.
    pub(crate) fn larger(&self, name: &str, old: &[u8], bytes: usize) -> Result<Memory, StorageError> {
        let failed = |source| StorageError::Io { name: name.to_owned(), bytes, source };
        let Some(directory) = &self.directory else {
            let mut memory = Memory::anonymous(bytes).map_err(failed)?;
            memory[..old.len()].copy_from_slice(old);
            return Ok(memory);
        };
        let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
        let grow = || -> io::Result<Memory> {
            let file = self.allocate(&new, name, bytes)?;
            let mut memory = Memory::file(&file, bytes)?;
            memory[..old.len()].copy_from_slice(old);
            memory.sync()?;
            fs::rename(&new, &path)?;
            self.files().insert(name.to_owned(), Arc::new(file));
            Ok(memory)
        };
        grow().map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(error)
        })
    }

    /// Flushes everything written so far to disk. Needs no access to the store, so any thread can call it. After an error
    /// the store may have lost changes: do not use it any more, and do not flush it again.
    pub fn sync(&self) -> io::Result<()> {
        let files: Vec<_> = self.files().values().cloned().collect();
        let synced = files.iter().try_for_each(|file| file.sync_data());
        if let (Err(_), Some(marker)) = (&synced, &self.marker) {
            marker.set();
        }
        synced
    }

    /// Writes every file again as it is and flushes it, after a failed flush: the kernel may take changes for written
    /// that are not on disk. Call before the store is opened, which then checks what was left of it.
    pub fn rewrite(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut piece = vec![0; PIECE_BYTES];
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // The marker's time is that of the failure.
            if !entry.file_type()?.is_file() || entry.file_name() == flush_marker::NAME {
                continue;
            }
            let (file, mut at) = (open(&entry.path())?, 0);
            loop {
                let read = file.read_at(&mut piece, at)?;
                if read == 0 {
                    break;
                }
                file.write_all_at(&piece[..read], at)?;
                at += read as u64;
            }
            file.sync_all()?;
        }
        Ok(())
    }

    /// Makes the next flush fail.
    #[cfg(any(test, feature = "testing"))]
    pub fn break_flush(&self) {
        // A device that has no fsync.
        let device = File::open("/dev/null").expect("every system has it");
        self.files().insert("broken".to_owned(), Arc::new(device));
    }

    fn map(&self, name: &str, file: File, bytes: usize) -> io::Result<Memory> {
        let memory = Memory::file(&file, bytes)?;
        self.files().insert(name.to_owned(), Arc::new(file));
        Ok(memory)
    }

    fn files(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<File>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate(&self, path: &Path, name: &str, bytes: usize) -> io::Result<File> {
        // A failed start may have left a file of any size.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let bytes = bytes as u64;
        let reserve = |file: &File| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes);
        let report = |done| {
            if let Some(progress) = self.progress {
                progress(name, done, bytes);
            }
        };
        if let Err(error) = allocate_by(reserve, &file, bytes, report) {
            // Some file systems allocate all that is left of the disk before they fail.
            fs::remove_file(path)?;
            return Err(error);
        }
        Ok(file)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Allocates the blocks of an empty file by `reserve`. Where the file system cannot do that (NFS before 4.2, WSL, some FUSE),
/// zeros are written instead.
fn allocate_by(
    reserve: impl Fn(&File) -> rustix::io::Result<()>,
    file: &File,
    bytes: u64,
    report: impl Fn(u64),
) -> io::Result<()> {
    match reserve(file) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, bytes, report),
        reserved => Ok(reserved?),
    }
}

/// Fills a file with zeros, in bounded pieces.
fn write_zeros(file: &File, bytes: u64, report: impl Fn(u64)) -> io::Result<()> {
    let zeros = vec![0; PIECE_BYTES];
    for at in (0..bytes).step_by(PIECE_BYTES) {
        if at % PROGRESS_BYTES == 0 {
            report(at);
        }
        let piece = (bytes - at).min(PIECE_BYTES as u64) as usize;
        file.write_all_at(&zeros[..piece], at)?;
    }
    // Network file systems report a full disk only here.
    file.sync_all()
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The options are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("cannot allocate {bytes} bytes for {name:?}; free space, or lower replay_bytes or capacity")]
    Io {
        /// The part of the store.
        name: String,
        bytes: usize,
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_allocated_with_zeros_where_the_file_system_cannot_reserve_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = 3 * PIECE_BYTES as u64 + 7;
        for (number, missing) in [Errno::OPNOTSUPP, Errno::NOSYS].into_iter().enumerate() {
            let path = directory.path().join(number.to_string());
            let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
            let reported = RefCell::new(Vec::new());
            allocate_by(|_| Err(missing), &file, bytes, |done| reported.borrow_mut().push(done)).unwrap();
            let metadata = file.metadata().unwrap();
            assert_eq!(metadata.len(), bytes);
            assert!(metadata.blocks() * 512 >= bytes, "the blocks exist: no write to the map can lack one");
            assert_eq!(*reported.borrow(), [0], "progress is reported for large files");
        }
    }

    #[test]
    fn a_full_disk_is_found_when_a_file_is_allocated_however_that_is_done() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        for reserved in [Errno::NOSPC, Errno::OPNOTSUPP] {
            let error = allocate_by(|_| Err(reserved), &full, 10, |_| ()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
    }

    #[test]
    fn a_flush_needs_no_file_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::directory(directory.path(), 1, true);
        let _memory = storage.memory("ring", 4096).unwrap();
        // What is in the directory is not opened again.
        fs::remove_file(directory.path().join("ring")).unwrap();
        fs::create_dir(directory.path().join("ring")).unwrap();
        storage.sync().unwrap();
    }
}
