//! Memory, optionally backed by a file, and prefetch hints. The only module of the crate with `unsafe`.
//!
//! A mapped file outlives the process: everything written to it is in the system's page cache, however the process
//! dies, and on disk after [`Memory::sync`].

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// A block of memory, aligned to a page and initially zero.
pub(crate) struct Memory {
    map: MmapMut,
}

impl Memory {
    /// Memory of the process. The system provides pages when they are first written.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        Ok(Self { map: MmapMut::map_anon(bytes.max(1))? })
    }

    /// Maps a file, which must have exactly this size.
    #[allow(
        unsafe_code,
        reason = "mapping a file is unsafe; the directory's lock keeps others from changing it"
    )]
    pub fn file(file: &File, bytes: usize) -> io::Result<Self> {
        let length = file.metadata()?.len();
        if length != bytes as u64 {
            let what = format!("the file has {length} bytes, expected {bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        // SAFETY: others must not change the file while it is mapped. It lies in a directory that this
        // process holds by an exclusive lock, and it was allocated whole, so no write can lack a block.
        let map = unsafe { MmapOptions::new().len(bytes).map_mut(file)? };
        Ok(Self { map })
    }

    /// Flushes everything written so far to disk.
    pub fn sync(&self) -> io::Result<()> {
        self.map.flush()
    }
}

/// Hints to the processor that this will be read soon, up to two cache lines of it. Reads nothing.
#[inline]
#[allow(unsafe_code, reason = "the intrinsic is unsafe; it only hints and reads nothing")]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start: *const i8 = std::ptr::from_ref(value).cast();
        // SAFETY: a prefetch never faults, whatever the address, and changes nothing.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(start);
            if size_of::<T>() > 64 {
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(64));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}
