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
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rpc::address::Address;
use rpc::place::Place;
use run::directory::write_whole;

use crate::discovery::{Shards, nowhere};

/// Names of the shards by number and who is expected back, in the run's directory.
const FILE: &str = "shards.json";

/// How long a shard is looked for where others are, before two addresses of one shard are the only explanation left.
const ASTRAY_MAX: Duration = Duration::from_secs(10);

/// Where each shard is.
#[derive(Debug)]
pub struct Places {
    file: PathBuf,
    places: Vec<Place>,
    /// They are sought by name, so a place is its shard's and nobody else's.
    sought: bool,
    /// The run did without these and shall not any more. It does until they answer: nobody waits for them.
    returning: BTreeSet<usize>,
    /// Whether each has answered in this life of the learner.
    heard: Vec<bool>,
    /// How often each was looked for where another was, one address after the other, and since when.
    astray: Vec<Option<(usize, Instant)>>,
}

/// What the run's directory remembers.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Kept {
    names: Vec<String>,
    #[serde(default)]
    returning: BTreeSet<usize>,
}

/// Who answered at a shard's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The shard.
    Itself,
    /// The shard, for the first time in this life of the learner.
    Again,
    /// A shard that nobody knew: it has this number from now on. What had it before, if anything did, is lost.
    Newcomer {
        /// The name of the former one.
        instead_of: Option<String>,
    },
    /// One that is not of the run, where shards are sought by name: it gets no number, and the shard is nowhere for now.
    Stranger,
    /// Another one of the run: the two have changed places.
    Neighbour {
        /// Its number.
        other: usize,
        /// How often this shard was looked for in vain, one address after the other.
        tries: usize,
    },
    /// Another one, wherever it is looked for: two addresses lead to one shard.
    Twice,
}

/// Names of the shards by number, as the run's directory remembers them; none before its first start.
pub fn remembered(run: &Path) -> Result<Vec<String>> {
    Ok(kept(run)?.names)
}

fn kept(run: &Path) -> Result<Kept> {
    match fs::read(run.join(FILE)) {
        Ok(text) => serde_json::from_slice(&text)
            .with_context(|| format!("{FILE} is damaged: delete it if no shard has moved since")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Kept::default()),
        Err(error) => Err(error).with_context(|| format!("can't read {FILE}")),
    }
}

impl Places {
    /// Shards where they were found, with the names that the run's directory remembers, or remembers from now on.
    pub fn open(run: &Path, shards: &Shards) -> Result<Self> {
        let mut places: Vec<Place> = shards.addresses().iter().cloned().map(Place::unheard).collect();
        let Kept { names, mut returning } = kept(run)?;
        let names = match shards {
            Shards::Fixed(_) => names,
            Shards::Sought { names, .. } => names.clone(),
        };
        for (place, name) in places.iter_mut().zip(names) {
            place.id = name;
        }
        returning.retain(|&number| number < places.len());
        let (heard, astray) = (vec![false; places.len()], vec![None; places.len()]);
        let sought = matches!(shards, Shards::Sought { .. });
        let places = Self { file: run.join(FILE), places, sought, returning, heard, astray };
        if sought {
            places.keep()?;
        }
        Ok(places)
    }

    fn keep(&self) -> Result<()> {
        let names = self.places.iter().map(|place| place.id.clone()).collect();
        let kept = Kept { names, returning: self.returning.clone() };
        write_whole(&self.file, serde_json::to_string(&kept)?.as_bytes())?;
        Ok(())
    }

    /// All of them, by number.
    pub fn all(&self) -> &[Place] {
        &self.places
    }

    /// All of them, those that have not answered yet without a name: what an earlier life of the learner told them may be
    /// out of date, so nobody shall turn to them.
    pub fn heard(&self) -> Vec<Place> {
        let known = |(place, &heard): (&Place, &bool)| {
            let id = if heard { place.id.clone() } else { String::new() };
            Place { id, ..place.clone() }
        };
        self.places.iter().zip(&self.heard).map(known).collect()
    }

    /// Goes on without these.
    pub fn set_absent(&mut self, absent: &BTreeSet<usize>) {
        for (number, place) in self.places.iter_mut().enumerate() {
            place.absent = absent.contains(&number);
        }
    }

    /// Those that are part of the run as soon as they answer.
    pub fn returning(&self) -> &BTreeSet<usize> {
        &self.returning
    }

    /// Changes who is expected back.
    pub fn expect_back(&mut self, returning: BTreeSet<usize>) -> Result<()> {
        if self.returning != returning {
            self.returning = returning;
            self.keep()?;
        }
        Ok(())
    }

    /// Nobody answered where a shard was looked for.
    pub fn silent(&mut self, number: usize) {
        self.astray[number] = None;
    }

    /// A shard was seen here.
    pub fn seen(&mut self, number: usize, address: Address) {
        self.places[number].address = address;
    }

    /// A shard was asked for, and `name` answered. An error means that a new name could not be kept.
    pub fn answered(&mut self, number: usize, name: &str, now: Instant) -> Result<Found> {
        if self.places[number].id == name {
            self.astray[number] = None;
            let before = std::mem::replace(&mut self.heard[number], true);
            return Ok(if before { Found::Itself } else { Found::Again });
        }
        if let Some(other) = self.places.iter().position(|place| place.id == name) {
            let (before, since) = self.astray[number].unwrap_or((0, now));
            let tries = before + 1;
            self.astray[number] = Some((tries, since));
            // Each exchange puts one shard right, unless there is nobody to be found.
            if tries > 2 * self.places.len() && now - since >= ASTRAY_MAX {
                return Ok(Found::Twice);
            }
            let address = self.places[other].address.clone();
            self.places[other].address = std::mem::replace(&mut self.places[number].address, address);
            return Ok(Found::Neighbour { other, tries });
        }
        if self.sought {
            self.places[number].address = nowhere();
            return Ok(Found::Stranger);
        }
        let former = std::mem::replace(&mut self.places[number].id, name.to_owned());
        (self.astray[number], self.heard[number]) = (None, true);
        self.keep()?;
        Ok(Found::Newcomer { instead_of: Some(former).filter(|former| !former.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Asks every shard at its address, once a second, until all have answered as themselves.
    fn settle(places: &mut Places, world: &BTreeMap<&str, &str>) -> bool {
        let start = Instant::now();
        for second in 0..50 {
            let now = start + Duration::from_secs(second);
            let mut all = true;
            for number in 0..places.all().len() {
                let address = places.all()[number].address.to_string();
                all &= match places.answered(number, world[address.as_str()], now).unwrap() {
                    Found::Itself | Found::Again | Found::Newcomer { .. } => true,
                    Found::Neighbour { .. } | Found::Stranger => false,
                    Found::Twice => return false,
                };
            }
            if all {
                return true;
            }
        }
        panic!("nobody ever finds its place");
    }

    fn fixed(count: usize) -> Shards {
        let texts = &["http://a:1", "http://b:1", "http://c:1"][..count];
        Shards::Fixed(texts.iter().map(|text| text.parse().unwrap()).collect())
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
            let mut places = Places::open(folder.path(), &fixed(3)).unwrap();
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
    fn two_addresses_of_one_shard_are_noticed_when_it_lasts() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = Places::open(folder.path(), &fixed(2)).unwrap();
        let now = Instant::now();
        places.answered(0, "x", now).unwrap();
        for tries in 1..100 {
            assert_eq!(places.answered(1, "x", now).unwrap(), Found::Neighbour { other: 0, tries });
        }
        assert_eq!(places.answered(1, "x", now + ASTRAY_MAX).unwrap(), Found::Twice);
        // One that moves about beside one that is gone is another matter.
        places.silent(1);
        assert_eq!(
            places.answered(1, "x", now + ASTRAY_MAX).unwrap(),
            Found::Neighbour { other: 0, tries: 1 }
        );
        let mut places = Places::open(folder.path(), &fixed(2)).unwrap();
        assert!(!settle(&mut places, &[("http://a:1", "x"), ("http://b:1", "x")].into()));
    }

    #[test]
    fn a_shard_that_comes_back_with_nothing_takes_the_place_of_the_lost_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = Places::open(folder.path(), &fixed(1)).unwrap();
        let mut answered = |name: &str| places.answered(0, name, Instant::now()).unwrap();
        assert_eq!(answered("x"), Found::Newcomer { instead_of: None });
        assert_eq!(answered("x"), Found::Itself);
        assert_eq!(answered("y"), Found::Newcomer { instead_of: Some("x".into()) });
        assert_eq!(answered("x"), Found::Newcomer { instead_of: Some("y".into()) });
    }

    #[test]
    fn nobody_is_sent_to_a_shard_that_this_learner_has_not_heard() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        Places::open(folder.path(), &fixed(1)).unwrap().answered(0, "x", now).unwrap();
        let mut again = Places::open(folder.path(), &fixed(1)).unwrap();
        assert_eq!((again.all()[0].id.as_str(), again.heard()[0].id.as_str()), ("x", ""));
        assert_eq!(again.answered(0, "x", now).unwrap(), Found::Again);
        assert_eq!(again.heard(), again.all());
        again.set_absent(&[0].into());
        assert!(again.heard()[0].absent);
        again.expect_back([0].into()).unwrap();
        assert_eq!(*Places::open(folder.path(), &fixed(1)).unwrap().returning(), [0].into());
    }

    #[test]
    fn where_shards_are_sought_by_name_nobody_else_gets_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["x", "y"].map(String::from).to_vec();
        let addresses = ["http://a:1", "http://b:1"].map(|text| text.parse().unwrap()).to_vec();
        let mut places =
            Places::open(folder.path(), &Shards::Sought { names: names.clone(), addresses }).unwrap();
        assert_eq!(
            remembered(folder.path()).unwrap(),
            names,
            "the number is fixed before anyone has answered"
        );
        let now = Instant::now();
        assert_eq!(places.answered(0, "x", now).unwrap(), Found::Again);
        assert_eq!(places.answered(1, "z", now).unwrap(), Found::Stranger);
        assert_eq!((places.all()[1].id.as_str(), &places.all()[1].address), ("y", &nowhere()));
        places.seen(1, "http://c:1".parse().unwrap());
        assert_eq!(places.answered(1, "y", now).unwrap(), Found::Again);
        assert_eq!(remembered(folder.path()).unwrap(), names);
    }
}
