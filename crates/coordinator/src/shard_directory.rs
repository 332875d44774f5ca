//! The shard directory: which shard is at which address.
//!
//! A shard has a number in the run and an id of its own. The id is authoritative: it is stored with the shard's data,
//! so the server that reports it holds that shard's transitions, at whatever address. Numbers are bound to ids when a
//! shard first answers, and stored in the run directory. If shards swap addresses, the directory detects it by their
//! ids, and each shard's writers follow it.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rpc::address::Address;
use rpc::shard_entry::ShardEntry;
use run::directory::write_atomically;

use crate::discovery::{Shards, unknown_address};

/// File in the run directory with the shards' ids by number, and which of them are returning.
const FILE: &str = "shards.json";

/// How long a shard may be searched for at the other shards' addresses. After that, the only explanation left is that
/// two addresses lead to one shard.
const SEARCH_MAX: Duration = Duration::from_secs(10);

/// The shards of a run by number, with their addresses.
#[derive(Debug)]
pub struct ShardDirectory {
    file: PathBuf,
    shards: Vec<ShardEntry>,
    /// Shards are discovered by id, so an unknown shard never takes the number of a missing one.
    by_id: bool,
    /// Shards that were excluded and rejoin the run when they answer. Until then nothing waits for them.
    returning: BTreeSet<usize>,
    /// Whether each shard has answered since this start of the learner.
    confirmed: Vec<bool>,
    /// For a shard whose address another shard answers at: the number of addresses tried, and since when.
    searches: Vec<Option<(usize, Instant)>>,
}

/// The contents of the file.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Saved {
    #[serde(rename = "names")]
    ids: Vec<String>,
    #[serde(default)]
    returning: BTreeSet<usize>,
}

/// Which shard answered at the address of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifyOutcome {
    Expected,
    /// The expected shard, for the first time since this start of the learner.
    FirstAnswer,
    /// A shard that is not in the directory. It gets the number from now on; the shard that had it, if any, is lost.
    New {
        /// The id of the lost shard.
        replaces: Option<String>,
    },
    /// A shard that is not in the directory, where shards are discovered by id. It gets no number; the address of the
    /// expected shard is unknown for now.
    Foreign,
    /// Another shard of the run: the directory has swapped the addresses of the two.
    Swapped {
        /// The other shard's number.
        other: usize,
        /// Number of addresses at which the expected shard was searched for in vain.
        tries: usize,
    },
    /// Another shard of the run, at every address tried: two addresses lead to one shard.
    Duplicate,
}

/// Ids of the shards by number, as stored in the run directory; empty before the run's first start.
pub fn saved_ids(run: &Path) -> Result<Vec<String>> {
    Ok(load(run)?.ids)
}

fn load(run: &Path) -> Result<Saved> {
    match fs::read(run.join(FILE)) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| {
            let path = run.join(FILE);
            format!(
                "{} is damaged, so shard numbers are unknown. Restore it from a backup; or, if no shard address has changed, \
                 delete it and restart the learner",
                path.display()
            )
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Saved::default()),
        Err(error) => Err(error)
            .with_context(|| format!("can't read {}; check its permissions", run.join(FILE).display())),
    }
}

impl ShardDirectory {
    /// The directory of these shards, with the ids stored in the run directory. Ids that were just discovered are
    /// stored.
    pub fn open(run: &Path, shards: &Shards) -> Result<Self> {
        let mut entries: Vec<ShardEntry> =
            shards.addresses().iter().cloned().map(ShardEntry::unnamed).collect();
        let Saved { ids, mut returning } = load(run)?;
        let ids = match shards {
            Shards::ByAddress(_) => ids,
            Shards::ById { ids, .. } => ids.clone(),
        };
        for (shard, id) in entries.iter_mut().zip(ids) {
            shard.id = id;
        }
        // The run may have fewer shards than at its last start.
        returning.retain(|&number| number < entries.len());
        let (confirmed, searches) = (vec![false; entries.len()], vec![None; entries.len()]);
        let by_id = matches!(shards, Shards::ById { .. });
        let directory = Self { file: run.join(FILE), shards: entries, by_id, returning, confirmed, searches };
        if by_id {
            directory.save()?;
        }
        Ok(directory)
    }

    fn save(&self) -> Result<()> {
        let ids = self.shards.iter().map(|shard| shard.id.clone()).collect();
        let saved = Saved { ids, returning: self.returning.clone() };
        write_atomically(&self.file, serde_json::to_string(&saved)?.as_bytes())?;
        Ok(())
    }

    /// All shards, by number.
    pub fn all(&self) -> &[ShardEntry] {
        &self.shards
    }

    /// All shards by number, as members may use them: a shard that has not answered since this start of the learner has
    /// no id, because its configuration, from an earlier start, may be out of date.
    pub fn confirmed(&self) -> Vec<ShardEntry> {
        let entry = |(shard, &confirmed): (&ShardEntry, &bool)| {
            let id = if confirmed { shard.id.clone() } else { String::new() };
            ShardEntry { id, ..shard.clone() }
        };
        self.shards.iter().zip(&self.confirmed).map(entry).collect()
    }

    /// Sets which shards the run does without.
    pub fn set_excluded(&mut self, excluded: &BTreeSet<usize>) {
        for (number, shard) in self.shards.iter_mut().enumerate() {
            shard.excluded = excluded.contains(&number);
        }
    }

    /// Shards that rejoin the run when they answer.
    pub fn returning(&self) -> &BTreeSet<usize> {
        &self.returning
    }

    /// Sets which shards rejoin the run when they answer, and stores that.
    pub fn set_returning(&mut self, returning: BTreeSet<usize>) -> Result<()> {
        if self.returning != returning {
            let before = std::mem::replace(&mut self.returning, returning);
            // What is not on disk does not hold, so that a retry stores it.
            self.save().inspect_err(|_| self.returning = before)?;
        }
        Ok(())
    }

    /// Records that no server answered at a shard's address, which ends the search for it.
    pub fn unreachable(&mut self, number: usize) {
        self.searches[number] = None;
    }

    /// Sets the address at which a shard was discovered.
    pub fn set_address(&mut self, number: usize, address: Address) {
        self.shards[number].address = address;
    }

    /// Records which shard id answered at the address of shard `number`, and corrects the directory if it is another
    /// one. An error means that a new id could not be stored.
    pub fn identify(&mut self, number: usize, id: &str, now: Instant) -> Result<IdentifyOutcome> {
        if self.shards[number].id == id {
            self.searches[number] = None;
            let before = std::mem::replace(&mut self.confirmed[number], true);
            return Ok(if before { IdentifyOutcome::Expected } else { IdentifyOutcome::FirstAnswer });
        }
        if let Some(other) = self.shards.iter().position(|shard| shard.id == id) {
            let (before, since) = self.searches[number].unwrap_or((0, now));
            let tries = before + 1;
            self.searches[number] = Some((tries, since));
            // Each swap corrects one shard's address, unless the searched shard is at none of them.
            if tries > 2 * self.shards.len() && now - since >= SEARCH_MAX {
                return Ok(IdentifyOutcome::Duplicate);
            }
            let address = self.shards[other].address.clone();
            self.shards[other].address = std::mem::replace(&mut self.shards[number].address, address);
            return Ok(IdentifyOutcome::Swapped { other, tries });
        }
        if self.by_id {
            self.shards[number].address = unknown_address();
            return Ok(IdentifyOutcome::Foreign);
        }
        let former = std::mem::replace(&mut self.shards[number].id, id.to_owned());
        // An id that is not on disk does not hold, so that the next answer stores it.
        self.save().inspect_err(|_| self.shards[number].id.clone_from(&former))?;
        (self.searches[number], self.confirmed[number]) = (None, true);
        Ok(IdentifyOutcome::New { replaces: Some(former).filter(|former| !former.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "the test needs points in time to compute with")]

    use super::*;
    use std::collections::BTreeMap;

    /// Asks every shard at its address, once a second, until all have answered as themselves.
    fn settle(directory: &mut ShardDirectory, servers: &BTreeMap<&str, &str>) -> bool {
        let start = Instant::now();
        for second in 0..50 {
            let now = start + Duration::from_secs(second);
            let mut all = true;
            for number in 0..directory.all().len() {
                let address = directory.all()[number].address.to_string();
                all &= match directory.identify(number, servers[address.as_str()], now).unwrap() {
                    IdentifyOutcome::Expected
                    | IdentifyOutcome::FirstAnswer
                    | IdentifyOutcome::New { .. } => true,
                    IdentifyOutcome::Swapped { .. } | IdentifyOutcome::Foreign => false,
                    IdentifyOutcome::Duplicate => return false,
                };
            }
            if all {
                return true;
            }
        }
        panic!("the directory never settles");
    }

    fn fixed(count: usize) -> Shards {
        let texts = &["a:1", "b:1", "c:1"][..count];
        Shards::ByAddress(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn entries(directory: &ShardDirectory) -> Vec<(String, String)> {
        directory.all().iter().map(|shard| (shard.id.clone(), shard.address.to_string())).collect()
    }

    #[test]
    fn shards_that_swapped_addresses_are_found_in_every_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |names: [&'static str; 3]| ["a:1", "b:1", "c:1"].into_iter().zip(names).collect();
        for order in [["x", "y", "z"], ["y", "x", "z"], ["y", "z", "x"], ["z", "x", "y"], ["z", "y", "x"]] {
            let mut directory = ShardDirectory::open(folder.path(), &fixed(3)).unwrap();
            // The first order binds numbers to ids; later ones read them from the run directory.
            let servers: BTreeMap<_, _> = at(order);
            assert!(settle(&mut directory, &servers));
            for (name, address) in entries(&directory) {
                assert_eq!(servers[address.as_str()], name);
            }
            assert_eq!(
                entries(&directory).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
                ["x", "y", "z"]
            );
        }
    }

    #[test]
    fn two_addresses_of_one_shard_are_detected_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = ShardDirectory::open(folder.path(), &fixed(2)).unwrap();
        let now = Instant::now();
        directory.identify(0, "x", now).unwrap();
        for tries in 1..100 {
            assert_eq!(
                directory.identify(1, "x", now).unwrap(),
                IdentifyOutcome::Swapped { other: 0, tries }
            );
        }
        assert_eq!(directory.identify(1, "x", now + SEARCH_MAX).unwrap(), IdentifyOutcome::Duplicate);
        // After a failed call the search starts over: a shard that moves is not a duplicate.
        directory.unreachable(1);
        assert_eq!(
            directory.identify(1, "x", now + SEARCH_MAX).unwrap(),
            IdentifyOutcome::Swapped { other: 0, tries: 1 }
        );
        let mut directory = ShardDirectory::open(folder.path(), &fixed(2)).unwrap();
        assert!(!settle(&mut directory, &[("a:1", "x"), ("b:1", "x")].into()));
    }

    #[test]
    fn a_shard_that_comes_back_empty_gets_the_number_of_the_lost_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = ShardDirectory::open(folder.path(), &fixed(1)).unwrap();
        let mut identify = |id: &str| directory.identify(0, id, Instant::now()).unwrap();
        assert_eq!(identify("x"), IdentifyOutcome::New { replaces: None });
        assert_eq!(identify("x"), IdentifyOutcome::Expected);
        assert_eq!(identify("y"), IdentifyOutcome::New { replaces: Some("x".into()) });
        assert_eq!(identify("x"), IdentifyOutcome::New { replaces: Some("y".into()) });
    }

    #[test]
    fn an_id_that_cannot_be_stored_does_not_hold_and_is_stored_later() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = ShardDirectory::open(folder.path(), &fixed(1)).unwrap();
        let now = Instant::now();
        // A directory in the place of the new file fails the write, as a full disk does.
        let partial = folder.path().join("shards.partial");
        fs::create_dir(&partial).unwrap();
        for _ in 0..2 {
            assert!(directory.identify(0, "x", now).is_err());
            assert!(directory.set_returning([0].into()).is_err());
            assert!(directory.confirmed()[0].id.is_empty() && directory.returning().is_empty());
        }
        fs::remove_dir(&partial).unwrap();
        assert_eq!(directory.identify(0, "x", now).unwrap(), IdentifyOutcome::New { replaces: None });
        assert_eq!(saved_ids(folder.path()).unwrap(), ["x"]);
    }

    #[test]
    fn members_are_not_sent_to_a_shard_that_has_not_answered_this_learner() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        ShardDirectory::open(folder.path(), &fixed(1)).unwrap().identify(0, "x", now).unwrap();
        let mut again = ShardDirectory::open(folder.path(), &fixed(1)).unwrap();
        assert_eq!((again.all()[0].id.as_str(), again.confirmed()[0].id.as_str()), ("x", ""));
        assert_eq!(again.identify(0, "x", now).unwrap(), IdentifyOutcome::FirstAnswer);
        assert_eq!(again.confirmed(), again.all());
        again.set_excluded(&[0].into());
        assert!(again.confirmed()[0].excluded);
        again.set_returning([0].into()).unwrap();
        assert_eq!(*ShardDirectory::open(folder.path(), &fixed(1)).unwrap().returning(), [0].into());
    }

    #[test]
    fn where_shards_are_discovered_by_id_an_unknown_shard_gets_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let ids = ["x", "y"].map(String::from).to_vec();
        let addresses = ["a:1", "b:1"].map(|text| text.parse().unwrap()).to_vec();
        let mut directory =
            ShardDirectory::open(folder.path(), &Shards::ById { ids: ids.clone(), addresses }).unwrap();
        assert_eq!(saved_ids(folder.path()).unwrap(), ids, "numbers are bound before any shard has answered");
        let now = Instant::now();
        assert_eq!(directory.identify(0, "x", now).unwrap(), IdentifyOutcome::FirstAnswer);
        assert_eq!(directory.identify(1, "z", now).unwrap(), IdentifyOutcome::Foreign);
        assert_eq!((directory.all()[1].id.as_str(), &directory.all()[1].address), ("y", &unknown_address()));
        directory.set_address(1, "c:1".parse().unwrap());
        assert_eq!(directory.identify(1, "y", now).unwrap(), IdentifyOutcome::FirstAnswer);
        assert_eq!(saved_ids(folder.path()).unwrap(), ids);
    }
}
