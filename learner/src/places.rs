//! Which shard is where, as the learner finds out.
//!
//! A shard has a number in the run and a name of its own. The name is what counts: it is kept with the shard's data, so
//! whoever answers to it has that shard's transitions, at whatever address. Numbers and names are bound when a shard is
//! first heard, and kept in the run's directory. Shards that come back at each other's addresses are told apart, and each
//! gets its own writers again.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rpc::address::Address;
use rpc::place::Place;
use run::directory::write_whole;

/// Names of the shards by number, in the run's directory.
const FILE: &str = "shards.json";

/// Where each shard is.
#[derive(Debug)]
pub struct Places {
    file: PathBuf,
    places: Vec<Place>,
    /// How often each was looked for in vain, one address after the other.
    tries: Vec<usize>,
}

/// Who answered at a shard's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The shard.
    Itself,
    /// A shard that nobody knew: it has this number from now on. What had it before, if anything did, is lost.
    Newcomer {
        /// The name of the former one.
        instead_of: Option<String>,
    },
    /// Another one of the run, by number: the two have changed places.
    Neighbour(usize),
    /// Another one, wherever it is looked for: two addresses lead to one shard.
    Twice,
}

impl Places {
    /// Shards at these addresses, with the names that the run's directory remembers.
    pub fn open(run: &Path, addresses: &[Address], absent: &BTreeSet<usize>) -> Result<Self> {
        let file = run.join(FILE);
        let names: Vec<String> = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{FILE} is damaged: delete it if no shard has moved since"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("can't read {FILE}")),
        };
        let mut places: Vec<Place> = addresses.iter().cloned().map(Place::unheard).collect();
        for (place, name) in places.iter_mut().zip(names) {
            place.id = name;
        }
        let tries = vec![0; places.len()];
        let mut places = Self { file, places, tries };
        places.set_absent(absent);
        Ok(places)
    }

    /// All of them, by number.
    pub fn all(&self) -> &[Place] {
        &self.places
    }

    /// Goes on without these.
    pub fn set_absent(&mut self, absent: &BTreeSet<usize>) {
        for (number, place) in self.places.iter_mut().enumerate() {
            place.absent = absent.contains(&number);
        }
    }

    /// A shard was asked for, and `name` answered. An error means that a new name could not be kept.
    pub fn answered(&mut self, number: usize, name: &str) -> Result<Found> {
        if self.places[number].id == name {
            self.tries[number] = 0;
            return Ok(Found::Itself);
        }
        if let Some(other) = self.places.iter().position(|place| place.id == name) {
            self.tries[number] += 1;
            // Each exchange puts one shard right, unless there is nobody to be found.
            if self.tries[number] > 2 * self.places.len() {
                return Ok(Found::Twice);
            }
            let address = self.places[other].address.clone();
            self.places[other].address = std::mem::replace(&mut self.places[number].address, address);
            return Ok(Found::Neighbour(other));
        }
        let former = std::mem::replace(&mut self.places[number].id, name.to_owned());
        let names: Vec<&str> = self.places.iter().map(|place| place.id.as_str()).collect();
        write_whole(&self.file, serde_json::to_string(&names)?.as_bytes())?;
        Ok(Found::Newcomer { instead_of: Some(former).filter(|former| !former.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Asks every shard at its address, again and again, until all have answered as themselves.
    fn settle(places: &mut Places, world: &BTreeMap<&str, &str>) -> bool {
        for _ in 0..50 {
            let mut all = true;
            for number in 0..places.all().len() {
                let address = places.all()[number].address.to_string();
                all &= match places.answered(number, world[address.as_str()]).unwrap() {
                    Found::Itself | Found::Newcomer { .. } => true,
                    Found::Neighbour(_) => false,
                    Found::Twice => return false,
                };
            }
            if all {
                return true;
            }
        }
        panic!("nobody ever finds its place");
    }

    fn addresses(count: usize) -> Vec<Address> {
        ["http://a:1", "http://b:1", "http://c:1"][..count].iter().map(|text| text.parse().unwrap()).collect()
    }

    fn names(places: &Places) -> Vec<(String, String)> {
        places.all().iter().map(|place| (place.id.clone(), place.address.to_string())).collect()
    }

    #[test]
    fn shards_that_changed_places_are_found_in_every_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |names: [&'static str; 3]| {
            ["http://a:1", "http://b:1", "http://c:1"].into_iter().zip(names).collect()
        };
        for order in [["x", "y", "z"], ["y", "x", "z"], ["y", "z", "x"], ["z", "x", "y"], ["z", "y", "x"]] {
            let mut places = Places::open(folder.path(), &addresses(3), &BTreeSet::new()).unwrap();
            // The first time they are bound, later they are remembered by the directory.
            let world: BTreeMap<_, _> = at(order);
            assert!(settle(&mut places, &world));
            for (name, address) in names(&places) {
                assert_eq!(world[address.as_str()], name);
            }
            assert_eq!(
                names(&places).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
                ["x", "y", "z"]
            );
        }
    }

    #[test]
    fn two_addresses_of_one_shard_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = Places::open(folder.path(), &addresses(2), &BTreeSet::new()).unwrap();
        assert!(!settle(&mut places, &[("http://a:1", "x"), ("http://b:1", "x")].into()));
    }

    #[test]
    fn a_shard_that_comes_back_with_nothing_takes_the_place_of_the_lost_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = Places::open(folder.path(), &addresses(1), &BTreeSet::new()).unwrap();
        assert_eq!(places.answered(0, "x").unwrap(), Found::Newcomer { instead_of: None });
        assert_eq!(places.answered(0, "x").unwrap(), Found::Itself);
        assert_eq!(places.answered(0, "y").unwrap(), Found::Newcomer { instead_of: Some("x".into()) });
        let again = Places::open(folder.path(), &addresses(1), &BTreeSet::from([0])).unwrap();
        assert_eq!((again.all()[0].id.as_str(), again.all()[0].absent), ("y", true));
    }
}
