//! The directory under which shards keep their stores.
//!
//! ```text
//! DATA_DIR/slot-0/lock         locked as long as a shard uses the slot
//!                 shard.json   the shard's id, and the manifest of its store
//!                 flush-failed whether changes may be lost that the system took for written
//!                 ring, table-0, marks, state
//! DATA_DIR/slot-1/…
//! ```
//!
//! A shard locks the first free slot, so the same command line serves any number of shards. The permanent id is in
//! `shard.json`: the next process that locks the slot continues as that shard.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::options::StoreOptions;
use crate::store::Storage;
use crate::store::flush_marker::FlushMarker;
use crate::ticket_key::TicketKey;

/// The version of all files together.
pub const FORMAT: u32 = 2;

/// The most slots of a directory, and so the most shards that can share it.
const SLOTS_MAX: usize = 1024;

const SNAPSHOT_MAGIC: [u8; 8] = *b"quivsnap";
const SNAPSHOT_HEAD_MAX: usize = 1 << 20;

const IDENTITY: &str = "shard.json";
const LOCK: &str = "lock";

/// A slot that this process has locked.
#[derive(Debug)]
pub struct SlotDirectory {
    directory: PathBuf,
    identity: Identity,
    marker: Arc<FlushMarker>,
    /// Dropping it releases the lock.
    _lock: File,
}

/// The contents of `shard.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    format: u32,
    /// The shard's permanent id.
    pub id: String,
    /// The store, once the shard is configured.
    #[serde(rename = "holds")]
    pub manifest: Option<StoreManifest>,
}

/// What a shard holds, and for which run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreManifest {
    pub run: String,
    /// How frames are compressed.
    pub codec: String,
    /// Size of the action set.
    pub actions: u16,
    pub options: StoreOptions,
    /// Part of every key that the store has given out.
    pub incarnation: u32,
    /// Incarnation of the newest learner that called.
    pub learner: u32,
    /// The run has ended.
    pub finished: bool,
    /// The key of the run's tickets. Absent in files of version 0.1 and in snapshots: the next grant brings it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_key: Option<TicketKey>,
    /// See [`Storage::directory`].
    salt: u64,
    /// The boot of the machine in which the store was last used. After another boot, everything that was not flushed to
    /// disk is lost.
    boot: String,
    /// All files have been created.
    ready: bool,
}

impl StoreManifest {
    /// The manifest of a new store, with a random incarnation and salt.
    pub fn new(run: String, codec: String, actions: u16, options: StoreOptions) -> io::Result<Self> {
        let incarnation = random_incarnation()?;
        let salt = u64::from_le_bytes(random()?) | 1;
        let (learner, finished, ready) = (0, false, false);
        Ok(Self {
            run,
            codec,
            actions,
            options,
            incarnation,
            learner,
            finished,
            ticket_key: None,
            salt,
            boot: boot(),
            ready,
        })
    }

    /// Whether the machine has booted since the store was last used.
    pub fn is_of_another_boot(&self) -> bool {
        self.boot != boot()
    }
}

impl SlotDirectory {
    /// Locks the first free slot of a directory. Creates directory and slot if they do not exist.
    pub fn take(directory: &Path) -> Result<Self, DirectoryError> {
        for number in 0..SLOTS_MAX {
            let slot = directory.join(format!("slot-{number}"));
            let cannot = |what| move |source| DirectoryError::Io { what, source };
            fs::create_dir_all(&slot).map_err(cannot("create a slot"))?;
            let lock = OpenOptions::new().write(true).create(true).truncate(false).open(slot.join(LOCK));
            let lock = lock.map_err(cannot("open the lock"))?;
            match lock.try_lock() {
                Ok(()) => return Self::open(slot, lock),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(cannot("lock a slot")(source)),
            }
        }
        Err(DirectoryError::Full)
    }

    fn open(directory: PathBuf, lock: File) -> Result<Self, DirectoryError> {
        let cannot = |what| move |source| DirectoryError::Io { what, source };
        let identity = match fs::read(directory.join(IDENTITY)) {
            Ok(bytes) => parse(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let bytes: [u8; 16] = random().map_err(cannot("create an id"))?;
                let id = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let identity = Identity { format: FORMAT, id, manifest: None };
                write(&directory, &identity).map_err(cannot("write shard.json"))?;
                identity
            }
            Err(error) => return Err(cannot("read shard.json")(error)),
        };
        let marker = FlushMarker::open(&directory).map_err(cannot("open flush-failed"))?;
        Ok(Self { directory, identity, marker: Arc::new(marker), _lock: lock })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Remembers whether a flush of the slot's store failed.
    pub fn flush_marker(&self) -> &FlushMarker {
        &self.marker
    }

    pub fn save_manifest(&mut self, manifest: StoreManifest) -> Result<(), DirectoryError> {
        let identity =
            Identity { manifest: Some(StoreManifest { boot: boot(), ..manifest }), ..self.identity.clone() };
        let cannot = |source| DirectoryError::Io { what: "write shard.json", source };
        write(&self.directory, &identity).map_err(cannot)?;
        self.identity = identity;
        Ok(())
    }

    /// Persists a changed manifest of the same store, whose salt and files stay the same.
    pub fn update_manifest(&mut self, manifest: StoreManifest) -> Result<(), DirectoryError> {
        match &self.identity.manifest {
            Some(StoreManifest { salt, ready, .. }) => {
                self.save_manifest(StoreManifest { salt: *salt, ready: *ready, ..manifest })
            }
            None => self.save_manifest(manifest),
        }
    }

    /// The head of a snapshot, which precedes the store's own bytes.
    pub fn snapshot_head(id: &str, manifest: &StoreManifest) -> Result<Vec<u8>, DirectoryError> {
        // Both are secret: with the salt, a reader of the snapshot could forge frames that look like records; with the
        // key, tickets.
        let manifest = StoreManifest { salt: 0, ticket_key: None, ..manifest.clone() };
        let identity = Identity { format: FORMAT, id: id.to_owned(), manifest: Some(manifest) };
        let text =
            serde_json::to_vec(&identity).map_err(|error| DirectoryError::Damaged(error.to_string()))?;
        let length = (text.len() as u32).to_le_bytes();
        Ok([&SNAPSHOT_MAGIC[..], &length, &text].concat())
    }

    /// The inverse of [`SlotDirectory::snapshot_head`]: the shard's id, and the manifest with a new salt.
    pub fn read_snapshot_head(input: &mut impl Read) -> Result<(String, StoreManifest), DirectoryError> {
        let mut head = [0; 12];
        input.read_exact(&mut head).map_err(|_| DirectoryError::NoSnapshot)?;
        let (magic, length) = head.split_at(8);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        if magic != SNAPSHOT_MAGIC || length > SNAPSHOT_HEAD_MAX {
            return Err(DirectoryError::NoSnapshot);
        }
        let mut text = vec![0; length];
        input.read_exact(&mut text).map_err(|_| DirectoryError::NoSnapshot)?;
        let Identity { id, manifest, .. } = parse(&text)?;
        let manifest = manifest.ok_or(DirectoryError::NoSnapshot)?;
        Ok((
            id,
            StoreManifest {
                salt: u64::from_le_bytes(random().map_err(|_| DirectoryError::NoSnapshot)?) | 1,
                ready: false,
                ticket_key: None,
                ..manifest
            },
        ))
    }

    /// Persists the manifest of a new store, whose files at [`SlotDirectory::storage_of`] are complete and flushed.
    pub fn mark_ready(&mut self, manifest: StoreManifest) -> Result<(), DirectoryError> {
        let cannot = |source| DirectoryError::Io { what: "write flush-failed", source };
        if self.marker.is_set().map_err(cannot)? {
            // An earlier attempt to create the store failed; this one wrote everything again.
            self.marker.clear().map_err(cannot)?;
        }
        self.save_manifest(StoreManifest { ready: true, ..manifest })
    }

    /// Takes over the id of another shard, which this one replaces.
    pub fn rename(&mut self, id: String) {
        self.identity.id = id;
    }

    /// The storage of the slot's store, if it has one.
    pub fn storage(&self) -> Option<Storage> {
        self.identity.manifest.as_ref().map(|manifest| self.storage_of(manifest))
    }

    /// The storage of the store that a manifest describes. Create the files before persisting the manifest: then a
    /// manifest on disk always describes a store that can be opened.
    pub fn storage_of(&self, manifest: &StoreManifest) -> Storage {
        Storage::directory(&self.directory, manifest.salt, !manifest.ready).with_marker(self.marker.clone())
    }
}

/// Parses `shard.json`.
pub fn parse(bytes: &[u8]) -> Result<Identity, DirectoryError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let damaged = |error: serde_json::Error| DirectoryError::Damaged(error.to_string());
    let Version { format } = serde_json::from_slice(bytes).map_err(damaged)?;
    if format != FORMAT {
        return Err(DirectoryError::Format(format));
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

fn write(directory: &Path, identity: &Identity) -> io::Result<()> {
    let new = directory.join(format!("{IDENTITY}.new"));
    // Only the owner may read the key and the salt. A leftover of an interrupted write may have another mode.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec_pretty(identity)?)?;
    file.sync_all()?;
    fs::rename(new, directory.join(IDENTITY))?;
    File::open(directory)?.sync_all()
}

/// A random incarnation, different from all former ones.
pub fn random_incarnation() -> io::Result<u32> {
    Ok(u32::from_le_bytes(random()?).max(1))
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Identifies this boot of the machine.
fn boot() -> String {
    // Read once, at the start: without a free file descriptor it would look like another boot.
    static BOOT: OnceLock<String> = OnceLock::new();
    let read = || {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| String::new(), |id| id.trim().to_owned())
    };
    BOOT.get_or_init(read).clone()
}

/// Why a slot cannot be locked or opened.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot {what} in the data directory; check the permissions and free space of --data-dir")]
    Io { what: &'static str, source: io::Error },
    /// All slots are locked.
    #[error("{SLOTS_MAX} shards already use this data directory: give another one")]
    Full,
    /// Written by another version.
    #[error(
        "the data directory has format {0}, but this version reads {FORMAT}: use the version of quiver that wrote it, \
         or another directory"
    )]
    Format(u32),
    #[error(
        "the file is not a snapshot of a replay shard, or it is truncated: take a new one with 'quiver snapshot'"
    )]
    NoSnapshot,
    #[error(
        "shard.json is damaged ({0}): move the slot away to start with an empty one, or restore a snapshot"
    )]
    Damaged(String),
}
