//! Settings that may change while a run trains: its pace, and how much its replay keeps.
//!
//! A change is checked as a whole before any of it is done. What was changed is kept beside the run's configuration, so
//! that a learner that comes back goes on with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use envs::Spec;
use proto::StoreSpec;
use replay::rate::{RateError, RateLimiter};
use run::Resolved;
use run::directory::write_whole;
use run::settings::Settings;

use crate::setup;

/// What may be changed.
pub const ADJUSTABLE: [&str; 4] = ["samples_per_insert", "min_size", "capacity", "priority_exponent"];

/// Batches by which the ratio may drift besides what the prefetch needs: enough that neither side waits for a message.
const DRIFT_BATCHES: f64 = 2.0;

/// Settings and their new values, as text.
pub type Changes = BTreeMap<String, String>;

/// The settings after a change, or why it can't be.
pub fn changed(resolved: &Resolved, changes: &Changes) -> Result<Resolved, String> {
    let mut changed = resolved.clone();
    for (key, text) in changes {
        if !ADJUSTABLE.contains(&key.as_str()) {
            return Err(format!("{key} can't be changed while a run trains, only {}", ADJUSTABLE.join(", ")));
        }
        if let Some(Err(error)) = changed.settings.set(key, text) {
            return Err(format!("{key}: {error}"));
        }
    }
    changed.settings.validate(&changed.game)?;
    limiter(&changed.settings).map_err(|error| error.to_string())?;
    Ok(changed)
}

fn path(run: &Path) -> PathBuf {
    run.join("adjusted.json")
}

/// Keeps changes beside the run's configuration, with those of before.
pub fn keep(run: &Path, changes: &Changes) -> Result<()> {
    let mut all = kept(run)?;
    all.extend(changes.clone());
    write_whole(&path(run), serde_json::to_string_pretty(&all)?.as_bytes())?;
    Ok(())
}

/// What was changed in this run so far.
pub fn kept(run: &Path) -> Result<Changes> {
    match std::fs::read(path(run)) {
        Ok(text) => serde_json::from_slice(&text)
            .context("adjusted.json is damaged: delete it to forget what was changed"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Changes::new()),
        Err(error) => Err(error).context("can't read adjusted.json"),
    }
}

/// The ratio that settings ask for.
pub fn limiter(settings: &Settings) -> Result<RateLimiter, RateError> {
    let (batch, ratio) = (settings.batch_size as f64, settings.samples_per_insert.0);
    let drift = batch * (DRIFT_BATCHES + settings.prefetch_batches as f64);
    let slack = (ratio.unwrap_or(1.0) + batch) / 2.0 + drift;
    RateLimiter::new(ratio, settings.min_size.0, settings.batch_size as u64, Some(slack))
}

/// What each of so many shards holds: its part of the whole.
pub fn store(settings: &Settings, spec: &Spec, shards: usize) -> StoreSpec {
    let mut options = setup::store(settings, spec);
    options.bytes_max = options.bytes_max.div_ceil(shards);
    options.tables.iter_mut().for_each(|table| table.capacity = table.capacity.div_ceil(shards));
    StoreSpec { options, codec: settings.frame_codec, actions: spec.actions.len() as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::resolve::Layers;

    fn change(key: &str, text: &str) -> Result<Resolved, String> {
        let resolved = Layers::default().resolve(Some("pong")).unwrap();
        changed(&resolved, &Changes::from([(key.to_owned(), text.to_owned())]))
    }

    #[test]
    fn pace_and_size_can_change_and_nothing_else() {
        assert_eq!(change("samples_per_insert", "4").unwrap().settings.samples_per_insert.0, Some(4.0));
        assert_eq!(change("capacity", "2000000").unwrap().settings.capacity.0, 2_000_000);
        assert!(change("learning_rate", "0.1").unwrap_err().contains("can't be changed"));
        assert!(change("samples_per_insert", "many").unwrap_err().contains("samples_per_insert"));
    }

    #[test]
    fn what_would_stall_the_run_is_refused() {
        assert!(change("min_size", "8").unwrap_err().contains("batch_size"));
        assert!(change("capacity", "1000").unwrap_err().contains("min_size"));
    }

    #[test]
    fn what_was_changed_is_kept_and_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        assert_eq!(kept(folder.path()).unwrap(), Changes::new());
        keep(folder.path(), &one("capacity", "1000")).unwrap();
        keep(folder.path(), &one("min_size", "100")).unwrap();
        keep(folder.path(), &one("capacity", "2000")).unwrap();
        let all = kept(folder.path()).unwrap();
        assert_eq!((all["capacity"].as_str(), all["min_size"].as_str(), all.len()), ("2000", "100", 2));
    }
}
