//! Discovers the shards behind the addresses that the learner is configured with.
//!
//! A name may resolve to several addresses, and to different ones an hour later: `--shard replay:7701`, where `replay`
//! is a service of many containers. So each server behind a name is asked for its shard id, and shards are identified
//! by that. Their number is determined once, when a run first starts. Later the names are looked up again whenever a
//! shard is missing; [`crate::pool`] uses the result.
#![allow(clippy::disallowed_methods, reason = "name lookup retries in wall-clock time")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::shard::fetch_shard_id;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tracing::{info, warn};

use crate::hosts::Hosts;

/// Time between two lookups while a shard is missing. A restarted container is back in seconds.
const LOOKUP_EVERY: Duration = Duration::from_secs(1);

/// Consecutive lookups that must find the same shards before their number is fixed for the run: shards that start
/// together do not appear all at once.
const STABLE_LOOKUPS: u32 = 3;

/// Time between two log lines while shards are missing at the start.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Addresses at which shards were found, by shard id.
pub type ShardAddresses = BTreeMap<String, Address>;

/// The learner's configuration of its shards.
#[derive(Clone, Debug)]
pub struct Discovery {
    configured: Vec<Address>,
    hosts: Hosts,
    credentials: Credentials,
}

/// The shards of a run, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shards {
    /// One shard at each configured address.
    ByAddress(Vec<Address>),
    /// Shards with known ids, whose addresses may change.
    ById {
        ids: Vec<String>,
        /// Where each was found; [`unknown_address`] if it was not.
        addresses: Vec<Address>,
    },
}

impl Shards {
    /// The shards' addresses, as far as they are known.
    pub fn addresses(&self) -> &[Address] {
        match self {
            Shards::ByAddress(addresses) | Shards::ById { addresses, .. } => addresses,
        }
    }
}

/// The result of one lookup of all configured addresses.
#[derive(Clone, Debug, Default)]
struct Lookup {
    /// The addresses behind each configured one; empty if the name does not resolve.
    resolved: Vec<Vec<Address>>,
    /// The shards that answered.
    answered: ShardAddresses,
    /// Why a shard did not answer, for people.
    reason: Option<String>,
    /// A shard rejects the learner's credentials, so a retry can't succeed.
    denied: bool,
}

impl Lookup {
    fn has_several_addresses(&self) -> bool {
        self.resolved.iter().any(|addresses| addresses.len() > 1)
    }
}

impl Discovery {
    /// Discovers the shards behind these addresses. Names are resolved with the file `hosts` if there is one.
    pub fn new(configured: &[Address], hosts: Option<PathBuf>, credentials: Credentials) -> Self {
        Self { configured: configured.to_vec(), hosts: Hosts(hosts), credentials }
    }

    /// The shards of a run whose directory stores `saved_ids`. At a run's first start there are none: then this waits
    /// until all names resolve and every server behind them has answered. Fails if a shard rejects the learner's
    /// credentials.
    pub async fn shards(&self, saved_ids: &[String]) -> Result<Shards, String> {
        if !self.configured.iter().any(is_name) {
            return Ok(Shards::ByAddress(self.configured.clone()));
        }
        if saved_ids.is_empty() {
            return self.stable().await;
        }
        // With more shards than configured addresses, only ids tell them apart.
        let lookup = self.look_up().await;
        let known = saved_ids.iter().all(|id| !id.is_empty());
        if known && (saved_ids.len() > self.configured.len() || lookup.has_several_addresses()) {
            return Ok(by_id(saved_ids.to_vec(), &lookup.answered));
        }
        Ok(Shards::ByAddress(self.configured.clone()))
    }

    /// Waits until the number of shards is stable.
    async fn stable(&self) -> Result<Shards, String> {
        let (mut stable, mut logged) = (StableLookup::default(), None);
        loop {
            let lookup = self.look_up().await;
            if stable.is_complete(&lookup) {
                let ids: Vec<_> = lookup.answered.keys().collect();
                info!(shards = ids.len(), ?ids, "shard discovery completed: the run keeps these shards");
                return Ok(match lookup.has_several_addresses() {
                    true => by_id(lookup.answered.keys().cloned().collect(), &lookup.answered),
                    false => Shards::ByAddress(self.configured.clone()),
                });
            }
            if let Some(reason) = lookup.reason.clone().filter(|_| lookup.denied) {
                return Err(reason);
            }
            if logged.is_none_or(|at: Instant| at.elapsed() >= LOG_EVERY) {
                logged = Some(Instant::now());
                info!(
                    configured = ?self.configured,
                    resolved = ?lookup.resolved,
                    answered = lookup.answered.len(),
                    last_error = lookup.reason,
                    "shard discovery waiting for all shards to answer"
                );
            }
            sleep(LOOKUP_EVERY).await;
        }
    }

    /// Resolves all configured addresses, and asks the server at each for its shard id.
    async fn look_up(&self) -> Lookup {
        let resolved = join_all(self.configured.iter().map(|address| self.resolve(address))).await;
        let asked = resolved.iter().flatten().map(|address| async move {
            let answer = fetch_shard_id(address, &self.credentials).await;
            answer.map(|id| (id, address.clone())).map_err(|status| (address, status))
        });
        let mut lookup = Lookup::default();
        for answer in join_all(asked).await {
            match answer {
                Ok((id, address)) => drop(lookup.answered.insert(id, address)),
                Err((address, status)) => {
                    lookup.denied |= matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
                    lookup.reason = Some(self.credentials.describe_at(address, &status));
                }
            }
        }
        Lookup { resolved, ..lookup }
    }

    async fn resolve(&self, address: &Address) -> Vec<Address> {
        let Some(authority) = address.authority().filter(|_| is_name(address)) else {
            return vec![address.clone()];
        };
        match self.hosts.resolve(authority).await {
            Ok(mut addresses) => {
                // Sorted, so that two lookups compare equal.
                addresses.sort();
                addresses.dedup();
                addresses.into_iter().map(|resolved| address.at(resolved)).collect()
            }
            // The name of a service whose containers are all down does not resolve.
            Err(_) => Vec::new(),
        }
    }

    /// Repeats the lookup in the background while a shard is missing.
    pub fn watch(self) -> AddressWatcher {
        let (missing, mut wanted) = watch::channel(false);
        let (report, addresses) = watch::channel(ShardAddresses::new());
        tokio::spawn(async move {
            let mut logged = None;
            while wanted.wait_for(|&missing| missing).await.is_ok() {
                let lookup = self.look_up().await;
                if lookup.reason.is_some() && lookup.reason != logged {
                    logged.clone_from(&lookup.reason);
                    info!(
                        last_error = lookup.reason,
                        "missing shard not found, looking up its address again"
                    );
                }
                report.send_replace(lookup.answered);
                sleep(LOOKUP_EVERY).await;
            }
        });
        AddressWatcher { missing, addresses, unused: Vec::new() }
    }
}

fn by_id(ids: Vec<String>, found: &ShardAddresses) -> Shards {
    let addresses = ids.iter().map(|id| found.get(id).cloned().unwrap_or_else(unknown_address)).collect();
    Shards::ById { ids, addresses }
}

/// An address at which no server can listen, for a shard that was not found yet.
pub fn unknown_address() -> Address {
    Address::Tcp("0.0.0.0:0".into())
}

/// Whether the address has a name that may resolve to several addresses. Names of this machine do not count.
fn is_name(address: &Address) -> bool {
    let host = address.authority().and_then(|authority| authority.rsplit_once(':')).map(|(host, _)| host);
    let is_ip = |host: &str| host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    !address.is_local() && host.is_some_and(|host| !is_ip(host))
}

/// Decides when all shards of a run have been found.
#[derive(Debug, Default)]
struct StableLookup {
    resolved: Vec<Vec<Address>>,
    /// Consecutive lookups with this result in which all shards answered.
    stable: u32,
}

impl StableLookup {
    /// Whether all names resolve and all shards answer, and did so in enough lookups in a row.
    fn is_complete(&mut self, lookup: &Lookup) -> bool {
        let addresses: usize = lookup.resolved.iter().map(Vec::len).sum();
        let all_resolved = lookup.resolved.iter().all(|addresses| !addresses.is_empty());
        // Fewer ids than addresses: a shard did not answer, or two addresses lead to one shard.
        let all = all_resolved && lookup.answered.len() == addresses;
        let again = lookup.resolved == self.resolved;
        self.stable = if !all {
            0
        } else if again {
            self.stable + 1
        } else {
            1
        };
        self.resolved.clone_from(&lookup.resolved);
        self.stable >= STABLE_LOOKUPS
    }
}

/// Handle to the background lookup.
#[derive(Debug)]
pub struct AddressWatcher {
    missing: watch::Sender<bool>,
    addresses: watch::Receiver<ShardAddresses>,
    /// Ids of the shards that were found and are not part of the run.
    unused: Vec<String>,
}

impl AddressWatcher {
    /// Starts or stops the lookups by whether a shard is missing, and returns a result that is new since the last call.
    pub fn poll(&mut self, missing: bool) -> Option<ShardAddresses> {
        self.missing.send_if_modified(|before| std::mem::replace(before, missing) != missing);
        let changed = self.addresses.has_changed().unwrap_or(false);
        (missing && changed).then(|| self.addresses.borrow_and_update().clone())
    }

    /// Warns, once for each shard, of one that was found and is not part of the run.
    pub fn warn_unused(&mut self, id: &str, address: &Address) {
        if !self.unused.iter().any(|known| known == id) {
            warn!(id, %address, "shard ignored: the number of shards was fixed when the run first started");
            self.unused.push(id.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// A lookup in which one name resolved to these addresses, and these ids answered.
    fn lookup(resolved: &[&str], ids: &[&str]) -> Lookup {
        let resolved = addresses(resolved);
        let answered = ids.iter().map(ToString::to_string).zip(resolved.iter().cloned()).collect();
        Lookup { resolved: vec![resolved], answered, ..Lookup::default() }
    }

    #[test]
    fn the_number_is_fixed_when_all_shards_have_answered_several_times() {
        let mut stable = StableLookup::default();
        let mut complete = |resolved: &[&str], ids: &[&str]| stable.is_complete(&lookup(resolved, ids));
        assert!(!complete(&[], &[]), "the name does not resolve yet");
        assert!(!complete(&["10.0.0.1:1"], &["a"]));
        assert!(!complete(&["10.0.0.1:1"], &["a"]));
        assert!(!complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a"]), "a second shard that does not answer yet");
        assert!(!complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a", "b"]));
        assert!(!complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a", "b"]));
        assert!(complete(&["10.0.0.1:1", "10.0.0.2:1"], &["a", "b"]));
    }

    #[test]
    fn two_addresses_of_one_shard_do_not_make_two() {
        let mut stable = StableLookup::default();
        assert!(!(0..9).any(|_| stable.is_complete(&lookup(&["10.0.0.1:1", "10.0.0.2:1"], &["a"]))));
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
    async fn addresses_without_a_name_are_used_as_configured() {
        let configured = addresses(&["unix:/tmp/a", "127.0.0.1:1", "10.0.0.1:1"]);
        let discovery = Discovery::new(&configured, None, Credentials::none());
        assert_eq!(discovery.shards(&[]).await, Ok(Shards::ByAddress(configured)));
    }

    #[tokio::test]
    async fn a_run_that_knows_its_shards_does_not_wait_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        std::fs::write(&hosts, "").unwrap();
        let configured = addresses(&["replay:7701"]);
        let discovery = Discovery::new(&configured, Some(hosts), Credentials::none());
        let ids = ["a", "b"].map(String::from).to_vec();
        let expected =
            Shards::ById { ids: ids.clone(), addresses: vec![unknown_address(), unknown_address()] };
        assert_eq!(discovery.shards(&ids).await, Ok(expected));
        // With as many shards as addresses, each address is one shard, whatever its id.
        assert_eq!(discovery.shards(&ids[..1]).await, Ok(Shards::ByAddress(configured)));
    }
}
