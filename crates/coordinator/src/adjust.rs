//! Settings that an operator may change while a run trains: its pace, the size of its replay, and which shards it does
//! without.
//!
//! All changes of a request are checked before any is applied; [`run::adjusted`] saves them.

use envs::Spec;
use proto::StoreSpec;
use replay::{Remover, ReplayStatus, Sampler, StoreOptions, TableOptions};
use rpc::shard_entry::ShardEntry;
use run::adjusted::Changes;
use settings::Resolved;
use settings::Settings;

use crate::rate::{RateError, RateLimiter};

/// The settings that may be changed.
pub const ADJUSTABLE: [&str; 5] =
    ["samples_per_insert", "min_size", "capacity", "priority_exponent", "without_shards"];

/// Batches of slack besides those for prefetching: enough that neither side blocks on the latency of messages.
const DRIFT_BATCHES: f64 = 2.0;

/// From this number of items on, their mean size is an estimate for future items.
const ITEMS_FOR_ESTIMATE: u64 = 1_000;

/// Checks that the remaining of `shards` shards can hold `min_size` items: by number and, once the size of an item can
/// be estimated, by bytes.
fn check_room(settings: &Settings, shards: usize, held: &ReplayStatus) -> Result<(), String> {
    let excluded = &settings.without_shards.0;
    if let Some(number) = excluded.iter().find(|&&number| number >= shards) {
        return Err(format!(
            "without_shards has shard {number}, but the run has {shards}: use numbers from 0 to {}",
            shards.saturating_sub(1)
        ));
    }
    let left = (shards - excluded.len()) as u64;
    if left == 0 {
        return Err("without_shards leaves no shard: keep at least one".into());
    }
    let (shards, min_size) = (shards as u64, settings.min_size.0);
    let capacity = settings.capacity.0.div_ceil(shards) * left;
    if min_size > capacity {
        return Err(format!(
            "min_size {min_size} is more than the capacity of the {left} remaining shards, {capacity}: raise capacity or lower min_size"
        ));
    }
    if held.items >= ITEMS_FOR_ESTIMATE {
        let (each, most) = (held.bytes / held.items, settings.replay_bytes.0.div_ceil(shards) * left);
        if u128::from(min_size) * u128::from(each) > u128::from(most) {
            return Err(format!(
                "min_size {min_size} does not fit into the remaining {most} bytes of replay_bytes at {each} bytes per \
                 transition: lower min_size"
            ));
        }
    }
    Ok(())
}

/// Checks that a change of `without_shards` leaves a shard to write to. That is one that answers now. While none answers,
/// it is one that the run does not do without already, because such a shard may be gone.
pub fn check_remaining(
    before: &Settings,
    after: &Settings,
    shards: &[ShardEntry],
    reachable: &[usize],
) -> Result<(), String> {
    let without = &after.without_shards.0;
    if *without == before.without_shards.0 {
        return Ok(());
    }
    let used = (0..shards.len()).filter(|&shard| !shards[shard].excluded);
    let live: Vec<usize> = if reachable.is_empty() { used.collect() } else { reachable.to_vec() };
    if live.iter().any(|shard| !without.contains(shard)) {
        return Ok(());
    }
    let text = |shards: Vec<usize>| shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let remaining = (0..shards.len()).filter(|shard| !without.contains(shard)).collect();
    Err(format!(
        "without_shards leaves only shard {}, which does not answer or is not part of the run now; the run has shard {}. The \
         value replaces the whole list: name only shards that are lost. To exchange one shard for another, first include \
         the other and wait until it answers",
        text(remaining),
        text(live)
    ))
}

/// The settings after `changes` to a run of `shards` shards that hold `held`, or why the changes are refused.
pub fn changed(
    resolved: &Resolved,
    changes: &Changes,
    shards: usize,
    held: &ReplayStatus,
) -> Result<Resolved, String> {
    let mut changed = resolved.clone();
    for (key, text) in changes {
        if !ADJUSTABLE.contains(&key.as_str()) {
            return Err(format!(
                "{key} can't be changed while a run trains, only {}: start a new run with another value",
                ADJUSTABLE.join(", ")
            ));
        }
        if let Some(Err(error)) = changed.settings.set(key, text) {
            return Err(format!("{key}: {error}"));
        }
    }
    changed.settings.validate(&changed.game)?;
    limiter(&changed.settings).map_err(|error| error.to_string())?;
    check_room(&changed.settings, shards, held)?;
    Ok(changed)
}

/// The rate limiter for these settings.
pub fn limiter(settings: &Settings) -> Result<RateLimiter, RateError> {
    let (batch, ratio) = (settings.batch_size as f64, settings.samples_per_insert.0);
    let drift = batch * (DRIFT_BATCHES + settings.prefetch_batches as f64);
    let slack = (ratio.unwrap_or(1.0) + batch) / 2.0 + drift;
    RateLimiter::new(ratio, settings.min_size.0, settings.batch_size as u64, Some(slack))
}

/// The options of a store for a whole run's replay.
pub fn store_options(settings: &Settings, spec: &Spec) -> StoreOptions {
    let table = TableOptions {
        name: "transitions".into(),
        capacity: settings.capacity.0 as usize,
        sampler: if settings.strategy.uses_priorities { Sampler::Proportional } else { Sampler::Uniform },
        remover: Remover::Fifo,
        max_times_sampled: 0,
        priority_exponent: settings.priority_exponent,
        priority_constant: settings.priority_constant,
        first_priority: settings.first_priority,
    };
    StoreOptions {
        bytes_max: settings.replay_bytes.0 as usize,
        stack: settings.frame_stack,
        frame_bytes: spec.observation.bytes(),
        // An actor sends items of n steps, and shorter ones at the end of an episode.
        max_length: u8::try_from(settings.n_step).unwrap_or(u8::MAX),
        tables: vec![table],
    }
}

/// The options of each of `shards` shards: its part of the run's replay.
pub fn shard_spec(settings: &Settings, spec: &Spec, shards: usize) -> StoreSpec {
    let mut options = store_options(settings, spec);
    options.bytes_max = options.bytes_max.div_ceil(shards);
    options.tables.iter_mut().for_each(|table| table.capacity = table.capacity.div_ceil(shards));
    StoreSpec { options, codec: settings.frame_codec, actions: spec.actions.len() as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::resolve::Layers;

    fn change(key: &str, text: &str) -> Result<Resolved, String> {
        change_of(2, 0, key, text)
    }

    /// A change to a run of `shards` shards that hold `items` items of 20 kB each.
    fn change_of(shards: usize, items: u64, key: &str, text: &str) -> Result<Resolved, String> {
        let resolved = Layers::default().resolve(Some("pong")).unwrap();
        let held = ReplayStatus { items, bytes: items * 20_000, ..ReplayStatus::default() };
        changed(&resolved, &Changes::from([(key.to_owned(), text.to_owned())]), shards, &held)
    }

    #[test]
    fn pace_and_size_can_change_and_nothing_else() {
        assert_eq!(change("samples_per_insert", "4").unwrap().settings.samples_per_insert.0, Some(4.0));
        assert_eq!(change("capacity", "2000000").unwrap().settings.capacity.0, 2_000_000);
        assert!(change("learning_rate", "0.1").unwrap_err().contains("can't be changed"));
        assert!(change("samples_per_insert", "many").unwrap_err().contains("samples_per_insert"));
    }

    #[test]
    fn a_change_that_would_stall_the_run_is_refused() {
        assert!(change("min_size", "8").unwrap_err().contains("batch_size"));
        assert!(change("capacity", "1000").unwrap_err().contains("min_size"));
    }

    #[test]
    fn a_run_can_do_without_a_shard_if_the_others_hold_enough() {
        assert_eq!(change("without_shards", "1").unwrap().settings.without_shards.0, [1].into());
        assert!(change("without_shards", "0,1").unwrap_err().contains("keep at least one"));
        assert!(change("without_shards", "2").unwrap_err().contains("shard 2"));
        let few = 1_000_000;
        assert!(change_of(few, 0, "without_shards", "none").is_ok());
        let most: Vec<_> = (0..999_999).map(|number| number.to_string()).collect();
        assert!(change_of(few, 0, "without_shards", &most.join(",")).unwrap_err().contains("min_size"));
    }

    #[test]
    fn a_change_that_leaves_no_live_shard_is_refused() {
        let entry = |excluded| ShardEntry { excluded, ..ShardEntry::unnamed("shard:1".parse().unwrap()) };
        let before = Layers::default().resolve(Some("pong")).unwrap().settings;
        // Shard 1 is excluded: by the settings, or because it has not rejoined yet.
        let shards = [entry(false), entry(true), entry(false)];
        let check = |without: &str, reachable: &[usize]| {
            let mut after = before.clone();
            after.set("without_shards", without).unwrap().unwrap();
            check_remaining(&before, &after, &shards, reachable)
        };
        assert!(check("0", &[0, 2]).is_ok());
        let refused = check("0", &[0]).unwrap_err();
        assert!(
            refused.contains("leaves only shard 1, 2,") && refused.contains("the run has shard 0."),
            "{refused}"
        );
        assert!(check("0,2", &[0, 2]).is_err());
        // While none answers, one that may come back is enough.
        assert!(check("0", &[]).is_ok());
        assert!(check("0,2", &[]).is_err());
        assert!(check("none", &[]).is_ok(), "other settings can still be changed");
    }

    #[test]
    fn a_min_size_beyond_the_bytes_is_refused_once_the_size_of_an_item_is_known() {
        // 1 GiB holds 50,000 items of 20 kB and not 60,000.
        assert!(change_of(2, 999, "min_size", "60000").is_ok());
        assert!(change_of(2, 1_000, "min_size", "60000").unwrap_err().contains("replay_bytes"));
        assert!(change_of(2, 1_000, "min_size", "50000").is_ok());
        assert!(change_of(2, 1_000, "without_shards", "1").unwrap_err().contains("replay_bytes"));
    }
}
