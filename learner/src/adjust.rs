//! Settings that may change while a run trains: its pace, how much its replay keeps, which shards it goes on without.
//!
//! A change is checked as a whole before any of it is done, and kept ([`run::adjusted`]).

use envs::Spec;
use proto::StoreSpec;
use replay::rate::{RateError, RateLimiter};
use run::adjusted::Changes;
use settings::Resolved;
use settings::Settings;

use crate::setup;

/// What may be changed.
pub const ADJUSTABLE: [&str; 5] =
    ["samples_per_insert", "min_size", "capacity", "priority_exponent", "without_shards"];

/// Batches by which the ratio may drift besides what the prefetch needs: enough that neither side waits for a message.
const DRIFT_BATCHES: f64 = 2.0;

/// How the shards of a run stand, for judging a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many there are.
    pub shards: usize,
    /// Items in those that answer.
    pub items: u64,
    /// Bytes that these take.
    pub bytes: u64,
}

/// Items from which on their mean size is taken for that of items to come.
const ITEMS_TELLING: u64 = 1_000;

impl Held {
    /// Whether the shards that are left can hold `min_size` items, by number and, once it is known what an item takes, by
    /// bytes.
    fn check(&self, settings: &Settings) -> Result<(), String> {
        let absent = &settings.without_shards.0;
        if let Some(number) = absent.iter().find(|&&number| number >= self.shards) {
            return Err(format!(
                "without_shards names shard {number}: there are {}, the first is 0",
                self.shards
            ));
        }
        let left = (self.shards - absent.len()) as u64;
        if left == 0 {
            return Err("without_shards leaves no shard: keep one".into());
        }
        let (shards, min_size) = (self.shards as u64, settings.min_size.0);
        let capacity = settings.capacity.0.div_ceil(shards) * left;
        if min_size > capacity {
            return Err(format!(
                "min_size {min_size} is more than the {left} shards hold, {capacity}: raise capacity or lower min_size"
            ));
        }
        if self.items >= ITEMS_TELLING {
            let (each, most) = (self.bytes / self.items, settings.replay_bytes.0.div_ceil(shards) * left);
            if u128::from(min_size) * u128::from(each) > u128::from(most) {
                return Err(format!(
                    "min_size {min_size} is more than {most} bytes of replay_bytes hold: a transition takes {each}; \
                     lower min_size"
                ));
            }
        }
        Ok(())
    }
}

/// The settings after a change, or why it can't be.
pub fn changed(resolved: &Resolved, changes: &Changes, held: Held) -> Result<Resolved, String> {
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
    held.check(&changed.settings)?;
    Ok(changed)
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
    use settings::resolve::Layers;

    fn change(key: &str, text: &str) -> Result<Resolved, String> {
        change_of(Held { shards: 2, ..Held::default() }, key, text)
    }

    fn change_of(held: Held, key: &str, text: &str) -> Result<Resolved, String> {
        let resolved = Layers::default().resolve(Some("pong")).unwrap();
        changed(&resolved, &Changes::from([(key.to_owned(), text.to_owned())]), held)
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
    fn a_shard_can_be_gone_without_if_another_is_left_to_hold_enough() {
        assert_eq!(change("without_shards", "1").unwrap().settings.without_shards.0, [1].into());
        assert!(change("without_shards", "0,1").unwrap_err().contains("keep one"));
        assert!(change("without_shards", "2").unwrap_err().contains("shard 2"));
        let few = Held { shards: 1_000_000, ..Held::default() };
        assert!(change_of(few, "without_shards", "none").is_ok());
        let most: Vec<_> = (0..999_999).map(|number| number.to_string()).collect();
        assert!(change_of(few, "without_shards", &most.join(",")).unwrap_err().contains("min_size"));
    }

    #[test]
    fn what_the_bytes_can_not_hold_is_refused_once_the_size_of_an_item_is_known() {
        // Of 20 kB each, 1 GiB holds 50,000 and not 60,000.
        let held = |items| Held { shards: 2, items, bytes: items * 20_000 };
        assert!(change_of(held(999), "min_size", "60000").is_ok());
        assert!(change_of(held(1_000), "min_size", "60000").unwrap_err().contains("replay_bytes"));
        assert!(change_of(held(1_000), "min_size", "50000").is_ok());
        assert!(change_of(held(1_000), "without_shards", "1").unwrap_err().contains("replay_bytes"));
    }
}
