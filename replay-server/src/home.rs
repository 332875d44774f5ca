//! Where a shard lives: in a slot of a data directory, or in the memory of its process.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use replay::store::directory::{Holds, Slot, random_incarnation};
use replay::store::{Home, Recovered};
use replay::{LoadError, Store};

use crate::refusal::Refusal;

/// The place of one shard.
pub struct Place {
    id: String,
    slot: Option<Slot>,
    /// What was restored from a snapshot into a shard without a directory.
    restored: Option<(Holds, Store, Recovered)>,
}

impl Place {
    /// In memory, under a name for as long as the process lives.
    pub fn memory(id: String) -> Self {
        Self { id, slot: None, restored: None }
    }

    /// The first free slot of a directory. The slot knows the shard's name.
    pub fn directory(directory: &Path) -> Result<Self, Refusal> {
        let slot = Slot::take(directory)?;
        Ok(Self { id: slot.identity().id.clone(), slot: Some(slot), restored: None })
    }

    /// Fills a place that holds nothing with what a snapshot has, its name included.
    pub fn restore(&mut self, snapshot: &Path) -> Result<(), Refusal> {
        let cannot = Refusal::storage;
        let mut input =
            BufReader::with_capacity(1 << 20, File::open(snapshot).map_err(cannot("open the snapshot"))?);
        let (id, mut holds) = Slot::read_snapshot_head(&mut input)?;
        holds.incarnation = random_incarnation().map_err(cannot("read /dev/urandom"))?;
        let home = match &self.slot {
            None => Home::nowhere(),
            Some(slot) => {
                if let Some(holds) = &slot.identity().holds {
                    return Err(Refusal::Occupied { run: holds.run.clone() });
                }
                slot.home_of(&holds)
            }
        };
        let (store, recovered) = Store::restore(holds.incarnation, home, &mut input)?;
        if !input.fill_buf().map_err(cannot("read the snapshot"))?.is_empty() {
            return Err(LoadError::Damaged("more bytes than a store").into());
        }
        // A table may have been changed between the head and the store, and whose sizes the files have is the store's.
        holds.options.clone_from(store.options());
        // Until here the slot holds nothing, whatever goes wrong.
        self.id.clone_from(&id);
        match &mut self.slot {
            Some(slot) => {
                store.sync().map_err(cannot("write the restored replay"))?;
                drop(store);
                slot.rename(id);
                slot.made(holds)?;
            }
            None => self.restored = Some((holds, store, recovered)),
        }
        Ok(())
    }

    /// The shard's name for ever.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether what it holds survives the process.
    pub fn is_durable(&self) -> bool {
        self.slot.is_some()
    }

    /// What a former life left, taken up again. If anything of it is lost, counting and keys begin anew.
    pub fn found(&mut self) -> Result<Option<(Holds, Store, Recovered)>, Refusal> {
        if let Some(restored) = self.restored.take() {
            return Ok(Some(restored));
        }
        let Some(slot) = &mut self.slot else { return Ok(None) };
        let Some((home, holds)) = slot.home().zip(slot.identity().holds.clone()) else { return Ok(None) };
        let (mut store, recovered) =
            Store::open(holds.options.clone(), holds.incarnation, home).map_err(Refusal::home)?;
        let mut holds = holds;
        if holds.is_of_another_boot() || !recovered.is_whole() {
            holds.incarnation = random_incarnation().map_err(Refusal::storage("read /dev/urandom"))?;
            // In this order: totals of another incarnation are not believed, however the process ends in between.
            slot.remember(holds.clone())?;
            store.begin_anew(holds.incarnation);
        }
        Ok(Some((holds, store, recovered)))
    }

    /// Makes an empty store for what a shard is told to hold.
    pub fn make(&mut self, holds: Holds) -> Result<Store, Refusal> {
        let (options, incarnation) = (holds.options.clone(), holds.incarnation);
        let Some(slot) = &mut self.slot else { return Ok(Store::new(options, incarnation)?) };
        let (store, _) = Store::open(options, incarnation, slot.home_of(&holds)).map_err(Refusal::home)?;
        store.sync().map_err(Refusal::storage("write the new replay"))?;
        // Only now: a store that can't be made must not keep the next start from trying another.
        slot.made(holds)?;
        Ok(store)
    }

    /// Remembers what has changed, if there is a place for it.
    pub fn remember(&mut self, holds: Holds) -> Result<(), Refusal> {
        let Some(slot) = &mut self.slot else { return Ok(()) };
        Ok(slot.update(holds)?)
    }

    /// The beginning of a snapshot: who the shard is and what it holds.
    pub fn snapshot_head(&self, holds: &Holds) -> Result<Vec<u8>, Refusal> {
        Ok(Slot::snapshot_head(&self.id, holds)?)
    }
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
        let holds = Holds::new("run".into(), "none".into(), 4, options(50)).unwrap();
        let mut file = Slot::snapshot_head("shard", &holds).unwrap();
        Store::new(options(20), 1).unwrap().save(&mut file).unwrap();
        std::fs::write(&snapshot, file).unwrap();
        Place::directory(&data).unwrap().restore(&snapshot).unwrap();
        let (holds, store, recovered) = Place::directory(&data).unwrap().found().unwrap().unwrap();
        assert!(recovered.is_whole());
        assert_eq!((&holds.options, store.options()), (&options(20), &options(20)));
    }
}
