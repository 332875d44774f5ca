//! Which processes a run has now, and where they listen.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use rpc::address::Address;
use serde_json::Value;

use crate::runs;

/// Addresses of those processes of a run that trains now whose names begin so, or the address itself that was given.
pub fn addresses(whose: &str, name: &str) -> anyhow::Result<Vec<Address>> {
    let path = runs::find(Path::new(whose));
    if !path.is_dir() {
        return match whose.parse::<Address>() {
            Ok(address) => Ok(vec![address]),
            Err(error) => bail!("there is no run {whose}, and as an address: {error}"),
        };
    }
    let text = fs::read(path.join("processes.json"));
    let Ok(text) = text else {
        bail!(
            "{} does not train now, or was not started by 'quiver train' on this machine: then name an address, host:port",
            path.display()
        );
    };
    let processes: Vec<Value> = serde_json::from_slice(&text).context("processes.json is no list")?;
    let named =
        processes.iter().filter(|process| process["name"].as_str().is_some_and(|own| own.starts_with(name)));
    let found: Vec<Address> = named.filter_map(|process| process["address"].as_str()?.parse().ok()).collect();
    ensure!(!found.is_empty(), "{} has no {name} that runs; with --lockstep there is none", path.display());
    Ok(found)
}
