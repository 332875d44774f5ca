//! Where a store keeps its memory: in files of a directory, or in the process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::options::OptionsError;
use crate::store::memory::Memory;

#[derive(Clone, Debug)]
pub struct Storage {
    directory: Option<PathBuf>,
    salt: u64,
    is_new: bool,
}

impl Storage {
    /// In the memory of this process.
    pub fn in_memory() -> Self {
        Self { directory: None, salt: 1, is_new: true }
    }

    /// In files of a directory that this process has locked. `salt` is a secret of the store and must be the same every
    /// time. With `is_new`, existing files are leftovers of a failed start, and are overwritten.
    pub fn directory(directory: &Path, salt: u64, is_new: bool) -> Self {
        Self { directory: Some(directory.to_owned()), salt, is_new }
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
            let file = if self.is_new { allocate(&path, bytes)? } else { open(&path)? };
            Memory::file(&file, bytes)
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
            let mut memory = Memory::file(&allocate(&new, bytes)?, bytes)?;
            memory[..old.len()].copy_from_slice(old);
            memory.sync()?;
            fs::rename(&new, &path)?;
            Ok(memory)
        };
        grow().map_err(failed)
    }

    /// Flushes everything written so far to disk. Needs no access to the store, so any thread can call it.
    pub fn sync(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !entry.file_type()?.is_file() {
                continue;
            }
            match open(&entry.path()) {
                Ok(file) => file.sync_data()?,
                // Renamed meanwhile by `larger`, which syncs the new file itself.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn allocate(path: &Path, bytes: usize) -> io::Result<File> {
    // A failed start may have left a file of any size.
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64);
    if let Err(error) = allocated {
        // Some file systems allocate all that is left of the disk before they fail.
        fs::remove_file(path)?;
        return Err(error.into());
    }
    Ok(file)
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
