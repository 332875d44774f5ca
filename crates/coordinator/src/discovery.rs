//! Which shards are behind the names that the learner was given.
//!
//! A name may lead to several addresses, and to others an hour later: `--shard replay:7701`, where `replay` is a service of
//! many containers. So whoever is behind it is asked who it is, and shards are known by that. How many there are is found
//! out once, when a run first starts. From then on the names are looked up again whenever a shard is missing. What becomes
//! of what was seen is [`crate::pool`]'s business.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::shard::who;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tracing::{info, warn};

use crate::hosts::Hosts;

/// How often names are looked up while someone is missing. A container is back in seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// So many looks in a row must show the same shards before their number is fixed for the run: those that start together
/// appear one after the other.
const SAME_LOOKS: u32 = 3;

/// How often a log line repeats what is waited for.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Where shards were seen, by their names.
pub type Sightings = BTreeMap<String, Address>;

/// What the learner was told of its shards.
#[derive(Clone, Debug)]
pub struct Discovery {
    given: Vec<Address>,
    hosts: Hosts,
    credentials: Credentials,
}

/// The shards of a run, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shards {
    /// One at each address that was given.
    Fixed(Vec<Address>),
    /// These, by name, wherever they are.
    Sought {
        /// Who they are.
        names: Vec<String>,
        /// Where they were seen, or an address that leads nowhere.
        addresses: Vec<Address>,
    },
}

impl Shards {
    /// Where they are, as far as is known.
    pub fn addresses(&self) -> &[Address] {
        match self {
            Shards::Fixed(addresses) | Shards::Sought { addresses, .. } => addresses,
        }
    }
}

/// One look behind all names.
#[derive(Clone, Debug, Default)]
struct Look {
    /// Where each leads; nothing if it is not known.
    found: Vec<Vec<Address>>,
    /// Who answered there.
    seen: Sightings,
    /// Why someone did not, for people.
    reason: Option<String>,
    /// Someone does not want to talk to this learner, and never will.
    denied: bool,
}

impl Look {
    fn leads_to_several(&self) -> bool {
        self.found.iter().any(|places| places.len() > 1)
    }
}

impl Discovery {
    /// Shards behind these addresses; names are looked up in this file if there is one.
    pub fn new(given: &[Address], hosts: Option<PathBuf>, credentials: Credentials) -> Self {
        Self { given: given.to_vec(), hosts: Hosts(hosts), credentials }
    }

    /// The shards of a run that remembers these names, or none if it starts for the first time. Then it waits until the
    /// names lead somewhere and everyone there has answered. An error is a shard that will not talk to this learner.
    pub async fn shards(&self, remembered: &[String]) -> Result<Shards, String> {
        if !self.given.iter().any(is_name) {
            return Ok(Shards::Fixed(self.given.clone()));
        }
        if remembered.is_empty() {
            return self.census().await;
        }
        let look = self.look().await;
        let known = remembered.iter().all(|name| !name.is_empty());
        if known && (remembered.len() > self.given.len() || look.leads_to_several()) {
            return Ok(sought(remembered.to_vec(), &look.seen));
        }
        Ok(Shards::Fixed(self.given.clone()))
    }

    async fn census(&self) -> Result<Shards, String> {
        let (mut census, mut complained) = (Census::default(), None);
        loop {
            let look = self.look().await;
            if census.is_complete(&look) {
                info!(shards = look.seen.len(), "found as many shards as this run will have");
                return Ok(match look.leads_to_several() {
                    true => sought(look.seen.keys().cloned().collect(), &look.seen),
                    false => Shards::Fixed(self.given.clone()),
                });
            }
            if let Some(reason) = look.reason.clone().filter(|_| look.denied) {
                return Err(reason);
            }
            if complained.is_none_or(|at: Instant| at.elapsed() >= COMPLAIN_EVERY) {
                complained = Some(Instant::now());
                info!(given = ?self.given, found = ?look.found, answered = look.seen.len(), reason = look.reason, "looking for the shards");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Looks up all names, and asks whoever is there who it is.
    async fn look(&self) -> Look {
        let found = join_all(self.given.iter().map(|address| self.resolve(address))).await;
        let asked = found.iter().flatten().map(|address| async move {
            let answer = who(address, &self.credentials).await;
            answer.map(|name| (name, address.clone())).map_err(|status| (address, status))
        });
        let mut look = Look::default();
        for answer in join_all(asked).await {
            match answer {
                Ok((name, address)) => drop(look.seen.insert(name, address)),
                Err((address, status)) => {
                    look.denied |= matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
                    let reason = self.credentials.describe(address, &status);
                    look.reason = Some(format!("{address}: {reason}"));
                }
            }
        }
        Look { found, ..look }
    }

    async fn resolve(&self, address: &Address) -> Vec<Address> {
        let Some(authority) = address.authority().filter(|_| is_name(address)) else {
            return vec![address.clone()];
        };
        match self.hosts.resolve(authority).await {
            Ok(mut places) => {
                places.sort();
                places.dedup();
                places.into_iter().map(|place| address.at(place)).collect()
            }
            // That of a service whose containers are all down leads nowhere.
            Err(_) => Vec::new(),
        }
    }

    /// Looks behind the names in the background, as long as someone is missing.
    pub fn seek(self) -> Seeker {
        let (missing, mut wanted) = watch::channel(false);
        let (report, sightings) = watch::channel(Sightings::new());
        tokio::spawn(async move {
            let mut told = None;
            while wanted.wait_for(|&missing| missing).await.is_ok() {
                let look = self.look().await;
                if look.reason.is_some() && look.reason != told {
                    told.clone_from(&look.reason);
                    info!(reason = look.reason, "looking for a shard that is missing");
                }
                report.send_replace(look.seen);
                sleep(LOOK_EVERY).await;
            }
        });
        Seeker { missing, sightings, extra: Vec::new() }
    }
}

fn sought(names: Vec<String>, seen: &Sightings) -> Shards {
    let addresses = names.iter().map(|name| seen.get(name).cloned().unwrap_or_else(nowhere)).collect();
    Shards::Sought { names, addresses }
}

/// Where nobody is: the place of a shard that was not seen yet.
pub fn nowhere() -> Address {
    Address::Tcp("0.0.0.0:0".into())
}

/// Whether it is a name that may lead to several places. This machine is one place, whatever it is called.
fn is_name(address: &Address) -> bool {
    let host = address.authority().and_then(|authority| authority.rsplit_once(':')).map(|(host, _)| host);
    let is_ip = |host: &str| host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    !address.is_local() && host.is_some_and(|host| !is_ip(host))
}

/// When all shards of a run are there.
#[derive(Debug, Default)]
struct Census {
    found: Vec<Vec<Address>>,
    same: u32,
}

impl Census {
    /// Whether every name leads somewhere, everyone there has answered, and it was so before.
    fn is_complete(&mut self, look: &Look) -> bool {
        let addresses: usize = look.found.iter().map(Vec::len).sum();
        let all = look.found.iter().all(|places| !places.is_empty()) && look.seen.len() == addresses;
        let again = look.found == self.found;
        self.same = if !all {
            0
        } else if again {
            self.same + 1
        } else {
            1
        };
        self.found.clone_from(&look.found);
        self.same >= SAME_LOOKS
    }
}

/// Someone who looks behind the names.
#[derive(Debug)]
pub struct Seeker {
    missing: watch::Sender<bool>,
    sightings: watch::Receiver<Sightings>,
    /// Shards that are seen and not of the run.
    extra: Vec<String>,
}

impl Seeker {
    /// Says whether someone is missing, and gives what was seen since the last time.
    pub fn news(&mut self, missing: bool) -> Option<Sightings> {
        self.missing.send_if_modified(|before| std::mem::replace(before, missing) != missing);
        let changed = self.sightings.has_changed().unwrap_or(false);
        (missing && changed).then(|| self.sightings.borrow_and_update().clone())
    }

    /// Tells people once of each shard that the names lead to and the run has no use for.
    pub fn pass_over(&mut self, name: &str, address: &Address) {
        if !self.extra.iter().any(|known| known == name) {
            warn!(id = name, %address, "a shard that this run did not begin with; it is not used");
            self.extra.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// A look that found these places behind one name, where these answered.
    fn look(places: &[&str], names: &[&str]) -> Look {
        let found = addresses(places);
        let seen = names.iter().map(ToString::to_string).zip(found.iter().cloned()).collect();
        Look { found: vec![found], seen, ..Look::default() }
    }

    #[test]
    fn the_number_is_fixed_when_everyone_has_answered_several_times() {
        let mut census = Census::default();
        let mut complete = |places: &[&str], names: &[&str]| census.is_complete(&look(places, names));
        assert!(!complete(&[], &[]), "the name leads nowhere yet");
        assert!(!complete(&["10.0.0.1:1"], &["a"]));
        assert!(!complete(&["10.0.0.1:1"], &["a"]));
        assert!(!complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a"]), "another one, who is silent");
        assert!(!complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a", "b"]));
        assert!(!complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a", "b"]));
        assert!(complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a", "b"]));
    }

    #[test]
    fn two_addresses_of_one_shard_do_not_make_two() {
        let mut census = Census::default();
        assert!(!(0..9).any(|_| census.is_complete(&look(&["10.0.0.1:1", "10.0.0.2:1"], &["a"]))));
    }

    #[test]
    fn only_names_of_other_machines_are_looked_up() {
        for (text, expected) in [
            ("replay:7701", true),
            ("replay-0.replay.quiver.svc:7701", true),
            ("unix:/tmp/shard", false),
            ("localhost:7701", false),
            ("10.0.0.1:7701", false),
            ("[2001:db8::1]:7701", false),
        ] {
            assert_eq!(is_name(&text.parse().unwrap()), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn addresses_that_are_none_of_a_name_are_taken_as_they_are() {
        let given = addresses(&["unix:/tmp/a", "127.0.0.1:1", "10.0.0.1:1"]);
        let discovery = Discovery::new(&given, None, Credentials::none());
        assert_eq!(discovery.shards(&[]).await, Ok(Shards::Fixed(given)));
    }

    #[tokio::test]
    async fn a_run_that_knows_its_shards_waits_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        std::fs::write(&hosts, "").unwrap();
        let given = addresses(&["replay:7701"]);
        let discovery = Discovery::new(&given, Some(hosts), Credentials::none());
        let names = ["a", "b"].map(String::from).to_vec();
        let sought = Shards::Sought { names: names.clone(), addresses: vec![nowhere(), nowhere()] };
        assert_eq!(discovery.shards(&names).await, Ok(sought));
        // As many as were given: one for each, whoever it is.
        assert_eq!(discovery.shards(&names[..1]).await, Ok(Shards::Fixed(given)));
    }
}
