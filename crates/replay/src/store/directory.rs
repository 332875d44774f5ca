//! The directory under which shards keep their stores.
//!
//! ```text
//! DATA_DIR/slot-0/lock         held as long as a shard uses the slot
//!                 shard.json   who the shard is, and what it holds for which run
//!                 ring, table-0, marks, state
//! DATA_DIR/slot-1/…
//! ```
//!
//! A shard takes the first slot that is free, so the same command line serves any number of shards. The slot's
//! name for ever is in `shard.json`: whoever takes the slot next is that shard.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::options::StoreOptions;
use crate::store::Home;

/// The version of all files together.
pub const FORMAT: u32 = 1;

/// Slots that are looked at. More shards than this do not share a directory.
const SLOTS_MAX: usize = 1024;

const SNAPSHOT_MAGIC: [u8; 8] = *b"quivsnap";
const SNAPSHOT_HEAD_MAX: usize = 1 << 20;

const IDENTITY: &str = "shard.json";
const LOCK: &str = "lock";

/// A slot that this process holds.
#[derive(Debug)]
pub struct Slot {
    directory: PathBuf,
    identity: Identity,
    /// The lock goes with it.
    _lock: File,
}

/// Who a shard is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    format: u32,
    /// Its name for ever.
    pub id: String,
    /// What it holds, once it was told.
    pub holds: Option<Holds>,
}

/// What a shard holds, and for whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holds {
    /// The run that it belongs to.
    pub run: String,
    /// How frames are packed.
    pub codec: String,
    /// How many actions there are.
    pub actions: u16,
    /// Sizes and tables.
    pub options: StoreOptions,
    /// In all keys given out.
    pub incarnation: u32,
    /// The newest learner that was heard of.
    pub learner: u32,
    /// The run has ended.
    pub finished: bool,
    /// See [`Home::directory`].
    salt: u64,
    /// The start of the machine in which it was last used. After another start, what was not yet on the disk is gone.
    boot: String,
    /// The files were made.
    ready: bool,
}

impl Holds {
    /// What a shard is told for the first time.
    pub fn new(run: String, codec: String, actions: u16, options: StoreOptions) -> io::Result<Self> {
        let incarnation = random_incarnation()?;
        let salt = u64::from_le_bytes(random()?) | 1;
        let (learner, finished, ready) = (0, false, false);
        Ok(Self { run, codec, actions, options, incarnation, learner, finished, salt, boot: boot(), ready })
    }

    /// Whether the machine was started anew since.
    pub fn is_of_another_boot(&self) -> bool {
        self.boot != boot()
    }
}

impl Slot {
    /// Takes the first free slot of a directory, making both if need be.
    pub fn take(directory: &Path) -> Result<Self, DirectoryError> {
        for number in 0..SLOTS_MAX {
            let slot = directory.join(format!("slot-{number}"));
            let cannot = |what| move |source| DirectoryError::Io { what, source };
            fs::create_dir_all(&slot).map_err(cannot("make a slot"))?;
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
                let bytes: [u8; 16] = random().map_err(cannot("make a name"))?;
                let id = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let identity = Identity { format: FORMAT, id, holds: None };
                write(&directory, &identity).map_err(cannot("write shard.json"))?;
                identity
            }
            Err(error) => return Err(cannot("read shard.json")(error)),
        };
        Ok(Self { directory, identity, _lock: lock })
    }

    /// Who the shard is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where the slot is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Remembers what the shard holds.
    pub fn remember(&mut self, holds: Holds) -> Result<(), DirectoryError> {
        let identity = Identity { holds: Some(Holds { boot: boot(), ..holds }), ..self.identity.clone() };
        let cannot = |source| DirectoryError::Io { what: "write shard.json", source };
        write(&self.directory, &identity).map_err(cannot)?;
        self.identity = identity;
        Ok(())
    }

    /// Remembers what has changed of what it holds; salt and files stay.
    pub fn update(&mut self, holds: Holds) -> Result<(), DirectoryError> {
        match &self.identity.holds {
            Some(Holds { salt, ready, .. }) => self.remember(Holds { salt: *salt, ready: *ready, ..holds }),
            None => self.remember(holds),
        }
    }

    /// What stands at the beginning of a snapshot, before the store's own bytes.
    pub fn snapshot_head(id: &str, holds: &Holds) -> Result<Vec<u8>, DirectoryError> {
        // The salt stays here: whoever reads a snapshot could make frames that look like records.
        let holds = Holds { salt: 0, ..holds.clone() };
        let identity = Identity { format: FORMAT, id: id.to_owned(), holds: Some(holds) };
        let text =
            serde_json::to_vec(&identity).map_err(|error| DirectoryError::Damaged(error.to_string()))?;
        let length = (text.len() as u32).to_le_bytes();
        Ok([&SNAPSHOT_MAGIC[..], &length, &text].concat())
    }

    /// [`Slot::snapshot_head`] back: whose snapshot it is, and what it holds.
    pub fn read_snapshot_head(input: &mut impl Read) -> Result<(String, Holds), DirectoryError> {
        let mut head = [0; 12];
        input.read_exact(&mut head).map_err(|_| DirectoryError::NoSnapshot)?;
        let (magic, length) = head.split_at(8);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        if magic != SNAPSHOT_MAGIC || length > SNAPSHOT_HEAD_MAX {
            return Err(DirectoryError::NoSnapshot);
        }
        let mut text = vec![0; length];
        input.read_exact(&mut text).map_err(|_| DirectoryError::NoSnapshot)?;
        let Identity { id, holds, .. } = parse(&text)?;
        let holds = holds.ok_or(DirectoryError::NoSnapshot)?;
        Ok((
            id,
            Holds {
                salt: u64::from_le_bytes(random().map_err(|_| DirectoryError::NoSnapshot)?) | 1,
                ready: false,
                ..holds
            },
        ))
    }

    /// Remembers what the shard holds from now on: its store is at [`Slot::home_of`], whole.
    pub fn made(&mut self, holds: Holds) -> Result<(), DirectoryError> {
        self.remember(Holds { ready: true, ..holds })
    }

    /// Takes over the name of another shard, whose place this one takes.
    pub fn rename(&mut self, id: String) {
        self.identity.id = id;
    }

    /// Where the store of what it holds is.
    pub fn home(&self) -> Option<Home> {
        self.identity.holds.as_ref().map(|holds| self.home_of(holds))
    }

    /// Where the store of what it shall hold would be. What is remembered only once its store is there can always be
    /// opened again.
    pub fn home_of(&self, holds: &Holds) -> Home {
        Home::directory(&self.directory, holds.salt, !holds.ready)
    }
}

/// Reads what `shard.json` says.
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
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(identity)?)?;
    file.sync_all()?;
    fs::rename(new, directory.join(IDENTITY))?;
    File::open(directory)?.sync_all()
}

/// An incarnation that no former life had.
pub fn random_incarnation() -> io::Result<u32> {
    Ok(u32::from_le_bytes(random()?).max(1))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Names this start of the machine.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

/// Why a slot can't be had.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The file system does not let us.
    #[error("cannot {what} in the data directory")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// All slots are taken.
    #[error("{SLOTS_MAX} shards use this data directory already, give another one")]
    Full,
    /// Written by another version.
    #[error(
        "the data directory has format {0}, this version reads {FORMAT}; use the version that wrote it, or another directory"
    )]
    Format(u32),
    /// Not a snapshot.
    #[error("not a snapshot of a replay shard, or cut short")]
    NoSnapshot,
    /// Not what we wrote.
    #[error(
        "shard.json is damaged ({0}); move the slot away to start with an empty one, or restore a snapshot"
    )]
    Damaged(String),
}
