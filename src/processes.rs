//! Finds the addresses of a running run's processes.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use rpc::address::Address;
use serde_json::Value;

use crate::runs;

/// The addresses of all processes of a running run whose names begin with `prefix` (`learner`, `shard-`). If `target` is an
/// address, that address alone.
pub fn addresses(target: &str, prefix: &str) -> anyhow::Result<Vec<Address>> {
    let path = runs::find(Path::new(target));
    if !path.is_dir() {
        return match target.parse::<Address>() {
            Ok(address) => Ok(vec![address]),
            Err(_) => bail!(
                "{}; for a process elsewhere, give its address: host:port or unix:/path",
                runs::not_found(Path::new(target))
            ),
        };
    }
    let text = fs::read(path.join("processes.json"));
    let Ok(text) = text else {
        bail!(
            "{} is not running, or 'quiver train' did not start it on this machine: give an address instead, host:port",
            path.display()
        );
    };
    let processes: Vec<Value> = serde_json::from_slice(&text).with_context(|| {
        format!("{} is damaged: stop the run and resume it", path.join("processes.json").display())
    })?;
    let named = processes
        .iter()
        .filter(|process| process["name"].as_str().is_some_and(|own| own.starts_with(prefix)));
    let found: Vec<Address> = named.filter_map(|process| process["address"].as_str()?.parse().ok()).collect();
    ensure!(
        !found.is_empty(),
        "{} has no running {} (a lockstep run has none); see {}, or resume the run",
        path.display(),
        prefix.trim_end_matches('-'),
        path.join("logs").display()
    );
    Ok(found)
}
