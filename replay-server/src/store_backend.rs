//! Where a shard keeps its store: in a slot directory of its data directory, or in the memory of its process.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use replay::store::directory::{SlotDirectory, StoreManifest, random_incarnation};
use replay::store::{Recovered, Storage};
use replay::{LoadError, Store};

use crate::refusal::Refusal;

/// Creates, recovers and restores the store of one shard, and holds the lock on its slot directory.
pub struct StoreBackend {
    id: String,
    slot: Option<SlotDirectory>,
    /// A restored snapshot, in a shard without a directory.
    restored: Option<(StoreManifest, Store, Recovered)>,
}

impl StoreBackend {
    /// In memory. The id is valid for the lifetime of the process.
    pub fn in_memory(id: String) -> Self {
        Self { id, slot: None, restored: None }
    }

    /// Locks the first free slot directory. It keeps the shard's id.
    pub fn lock_directory(directory: &Path) -> Result<Self, Refusal> {
        let slot = SlotDirectory::take(directory)?;
        Ok(Self { id: slot.identity().id.clone(), slot: Some(slot), restored: None })
    }

    /// Restores a snapshot into an empty backend, with the id of the shard it was taken from.
    pub fn restore(&mut self, snapshot: &Path) -> Result<(), Refusal> {
        let storage_error = Refusal::storage;
        let mut input = BufReader::with_capacity(
            1 << 20,
            File::open(snapshot).map_err(storage_error("open the snapshot"))?,
        );
        let (id, mut manifest) = SlotDirectory::read_snapshot_head(&mut input)?;
        manifest.incarnation = random_incarnation().map_err(storage_error("read /dev/urandom"))?;
        let storage = match &self.slot {
            None => Storage::in_memory(),
            Some(slot) => {
                if let Some(manifest) = &slot.identity().manifest {
                    return Err(Refusal::Occupied { run: manifest.run.clone() });
                }
                slot.storage_of(&manifest).with_progress(log_zeros)
            }
        };
        let (store, recovered) = Store::restore(manifest.incarnation, storage, &mut input)?;
        if !input.fill_buf().map_err(storage_error("read the snapshot"))?.is_empty() {
            return Err(LoadError::Damaged("extra bytes after the store").into());
        }
        // A table may have been reconfigured after the snapshot's head was written. The files have the store's sizes.
        manifest.options.clone_from(store.options());
        // Up to here the slot is still empty, so an error leaves it unchanged.
        self.id.clone_from(&id);
        match &mut self.slot {
            Some(slot) => {
                store.sync().map_err(storage_error("write the restored replay"))?;
                drop(store);
                slot.rename(id);
                slot.mark_ready(manifest)?;
            }
            None => self.restored = Some((manifest, store, recovered)),
        }
        Ok(())
    }

    /// The shard's permanent id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When a flush of the store last failed, in seconds since 1970; 0 if none ever did.
    pub fn last_failed_flush(&self) -> f64 {
        self.slot.as_ref().and_then(|slot| slot.flush_marker().last_failure().ok()).unwrap_or(0.0)
    }

    /// Whether the store survives the process.
    pub fn is_durable(&self) -> bool {
        self.slot.is_some()
    }

    /// Opens the store of a former process, if there is one. The store gets a new incarnation if anything of it was lost,
    /// after a failed flush, and after every reboot of the machine, because keys may have been issued that did not reach the disk: counters start
    /// at 0, and old keys become invalid.
    pub fn recover(&mut self) -> Result<Option<(StoreManifest, Store, Recovered)>, Refusal> {
        if let Some(restored) = self.restored.take() {
            return Ok(Some(restored));
        }
        let Some(slot) = &mut self.slot else { return Ok(None) };
        let Some((storage, manifest)) = slot.storage().zip(slot.identity().manifest.clone()) else {
            return Ok(None);
        };
        let storage_error = Refusal::storage;
        let failed_flush = slot.flush_marker().is_set().map_err(storage_error("read flush-failed"))?;
        if failed_flush {
            tracing::warn!("an earlier flush to disk failed, writing all files again");
            storage.rewrite().map_err(storage_error(
                "write all files of the shard again after a failed flush; repair or replace the disk of --data-dir",
            ))?;
        }
        let (mut store, mut recovered) = Store::open(manifest.options.clone(), manifest.incarnation, storage)
            .map_err(Refusal::store_error)?;
        recovered.failed_flush = failed_flush;
        let mut manifest = manifest;
        if manifest.is_of_another_boot() || !recovered.is_whole() {
            manifest.incarnation = random_incarnation().map_err(Refusal::storage("read /dev/urandom"))?;
            // The manifest first: if the process dies in between, the next start discards counters of the old
            // incarnation.
            slot.save_manifest(manifest.clone())?;
            store.start_incarnation(manifest.incarnation);
        }
        if failed_flush {
            // Last: if the process dies before, the next start does all this again.
            slot.flush_marker().clear().map_err(storage_error("write flush-failed"))?;
        }
        Ok(Some((manifest, store, recovered)))
    }

    /// Creates an empty store as configured.
    pub fn create(&mut self, manifest: StoreManifest) -> Result<Store, Refusal> {
        let (options, incarnation) = (manifest.options.clone(), manifest.incarnation);
        let Some(slot) = &mut self.slot else { return Ok(Store::new(options, incarnation)?) };
        let (store, _) =
            Store::open(options, incarnation, slot.storage_of(&manifest).with_progress(log_zeros))
                .map_err(Refusal::store_error)?;
        store.sync().map_err(Refusal::storage("write the new replay"))?;
        // Only after the files exist: a store that cannot be created must not block the next start from creating
        // another.
        slot.mark_ready(manifest)?;
        Ok(store)
    }

    /// Persists the manifest, if the backend is a directory.
    pub fn save_manifest(&mut self, manifest: StoreManifest) -> Result<(), Refusal> {
        let Some(slot) = &mut self.slot else { return Ok(()) };
        Ok(slot.update_manifest(manifest)?)
    }

    /// The head of a snapshot: the shard's id and manifest.
    pub fn snapshot_head(&self, manifest: &StoreManifest) -> Result<Vec<u8>, Refusal> {
        Ok(SlotDirectory::snapshot_head(&self.id, manifest)?)
    }
}

fn log_zeros(file: &str, written_bytes: u64, bytes: u64) {
    tracing::info!(file, written_bytes, bytes, "file system cannot reserve blocks, writing zeros");
}

#[cfg(test)]
mod tests {
    use super::*;
    use replay::testing::{self, table};
    use replay::{Sampler, StoreOptions, TableOptions};

    fn options(capacity: usize) -> StoreOptions {
        let table = TableOptions { capacity, sampler: Sampler::Uniform, ..table("main") };
        StoreOptions { bytes_max: 4096, stack: 1, tables: vec![table], ..testing::options() }
    }

    #[test]
    fn a_snapshot_of_a_table_that_shrank_meanwhile_can_be_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let (snapshot, data) = (folder.path().join("snapshot"), folder.path().join("data"));
        let manifest = StoreManifest::new("run".into(), "none".into(), 4, options(50)).unwrap();
        let mut file = SlotDirectory::snapshot_head("shard", &manifest).unwrap();
        Store::new(options(20), 1).unwrap().save(&mut file).unwrap();
        std::fs::write(&snapshot, file).unwrap();
        StoreBackend::lock_directory(&data).unwrap().restore(&snapshot).unwrap();
        let (manifest, store, recovered) =
            StoreBackend::lock_directory(&data).unwrap().recover().unwrap().unwrap();
        assert!(recovered.is_whole());
        assert_eq!((&manifest.options, store.options()), (&options(20), &options(20)));
    }

    #[test]
    fn a_failed_flush_counts_as_damage_after_a_restart_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let lock = || StoreBackend::lock_directory(folder.path()).unwrap();
        let manifest = StoreManifest::new("run".into(), "none".into(), 4, options(50)).unwrap();
        let mut backend = lock();
        let store = backend.create(manifest.clone()).unwrap();
        assert_eq!(backend.last_failed_flush(), 0.0);
        store.storage().break_flush();
        assert!(store.sync().is_err());
        drop((store, backend));

        let mut backend = lock();
        let (damaged, store, recovered) = backend.recover().unwrap().unwrap();
        assert!(recovered.failed_flush && !recovered.is_whole());
        assert_ne!(damaged.incarnation, manifest.incarnation, "keys may be of what is lost");
        let failed = backend.last_failed_flush();
        assert!(failed > 0.0);
        drop((store, backend));

        let mut backend = lock();
        let (whole, _, recovered) = backend.recover().unwrap().unwrap();
        assert!(recovered.is_whole(), "everything was written again");
        assert_eq!((whole.incarnation, backend.last_failed_flush()), (damaged.incarnation, failed));
    }
}
