//! Formats inspections as text and as JSON.

use std::fmt::Write;
use std::path::Path;

use proto::{BatchItem, v1};
use rpc::inspect::{Inspection, key};
use serde_json::{Value, json};

use super::run_shards::{Missing, RunShards};

/// Width of a histogram's longest bar.
const BAR: usize = 30;
/// Blocked callers that a page lists.
const BLOCKED_SHOWN: usize = 8;

/// A shard as text.
pub fn page(shards: &RunShards, before: &Inspection, now: &Inspection) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, shards, before, now);
    page
}

/// A shard as JSON.
pub fn shard_json(shards: &RunShards, before: &Inspection, now: &Inspection) -> Value {
    let number = shards.number(&now.status.id);
    let mut value = now.json(Some(before));
    value["number"] = number.into();
    value["exclusion"] = number.and_then(|number| shards.exclusion(number)).into();
    value
}

/// A missing shard as text.
pub fn missing(missing: &Missing) -> String {
    let Missing { number, id, why } = missing;
    let name = if id.is_empty() { String::new() } else { format!(" ({id})") };
    format!("shard {number}{name} is missing: {why}\n")
}

/// A missing shard as JSON.
pub fn missing_json(missing: &Missing) -> Value {
    json!({ "number": missing.number, "id": missing.id, "missing": missing.why })
}

fn write_page(
    page: &mut String,
    shards: &RunShards,
    before: &Inspection,
    now: &Inspection,
) -> std::fmt::Result {
    let shard = &now.status;
    let kept = if now.info.durable { "on disk" } else { "in memory" };
    let up = now.info.uptime_seconds;
    let number = shards.number(&shard.id);
    let name = number.map_or_else(|| shard.id.clone(), |number| format!("{number} ({})", shard.id));
    writeln!(page, "shard {name} at {}, {kept}, up {}", now.address, duration(up))?;
    if let Some(exclusion) = number.and_then(|number| shards.exclusion(number)) {
        writeln!(page, "  {exclusion}")?;
    }
    let Some(store) = &now.info.store else {
        return writeln!(page, "  not configured yet: no learner has connected");
    };
    writeln!(page, "  run        {}", now.info.run)?;
    let table = store.tables.get(now.table).cloned().unwrap_or_default();
    writeln!(
        page,
        "  table      {} (sampler {}, remover {}, exponent {})",
        table.name, table.sampler, table.remover, table.priority_exponent
    )?;
    if store.tables.len() > 1 {
        let names: Vec<&str> = store.tables.iter().map(|table| table.name.as_str()).collect();
        writeln!(page, "             all tables: {}", names.join(", "))?;
    }
    contents(page, before, now, store, table.capacity)?;
    damage(page, now)?;
    blocked_callers(page, now)?;
    let contents = now.contents.clone().unwrap_or_default();
    histogram(page, "priority", contents.priorities.as_ref())?;
    histogram(page, "age in inserts", contents.ages_inserts.as_ref())?;
    histogram(page, "times sampled", contents.times_sampled.as_ref())?;
    top_items(page, now)
}

/// Sizes, counters and rates of the shard.
fn contents(
    page: &mut String,
    before: &Inspection,
    now: &Inspection,
    store: &v1::Store,
    capacity: u64,
) -> std::fmt::Result {
    let (shard, held) = (&now.status, now.table());
    let counts = held.counters;
    let full = 100.0 * held.items as f64 / capacity.max(1) as f64;
    writeln!(page, "  items      {} of {} ({full:.1}%)", number(held.items), number(capacity))?;
    let each = shard.bytes_used as f64 / held.items.max(1) as f64;
    let part = 100.0 * shard.bytes_used as f64 / store.bytes_max.max(1) as f64;
    writeln!(
        page,
        "  ring       {:.1} MB ({part:.1}%), {each:.0} bytes per item",
        shard.bytes_used as f64 / 1e6
    )?;
    let (inserts, samples) = now.rates(before);
    let ratio = counts.samples as f64 / counts.inserts.max(1) as f64;
    writeln!(
        page,
        "  inserts    {} ({inserts:.0}/s), {} more allowed",
        number(counts.inserts),
        number(shard.allowance.saturating_sub(shard.inserts_charged()))
    )?;
    writeln!(
        page,
        "  samples    {} ({samples:.0}/s), {ratio:.2} per insert with filling",
        number(counts.samples)
    )?;
    writeln!(
        page,
        "  removed    {} by capacity, {} by the ring's size, {} at max_times_sampled, {} undecodable",
        number(counts.evicted),
        number(counts.reclaimed_items),
        number(counts.used_up),
        number(counts.removed_items)
    )?;
    writeln!(
        page,
        "  updates    {} of priorities, {} more for evicted items",
        number(counts.updates),
        number(counts.stale_updates)
    )?;
    writeln!(page, "  priorities sum of weights {:.4}, largest {:.4}", held.mass, held.largest_priority)?;
    Ok(())
}

/// Damage that the shard found when it started, if any.
fn damage(page: &mut String, now: &Inspection) -> std::fmt::Result {
    let recovered = now.info.recovered.unwrap_or_default();
    let damaged = [
        recovered.damaged_chunks,
        recovered.damaged_priorities,
        recovered.damaged_lanes,
        recovered.lost_items,
        recovered.damaged_state.into(),
    ];
    if damaged.iter().sum::<u64>() > 0 {
        writeln!(
            page,
            "  damage     {} chunks, {} priorities and {} lanes were damaged at startup; {} items were lost",
            recovered.damaged_chunks,
            recovered.damaged_priorities,
            recovered.damaged_lanes,
            recovered.lost_items
        )?;
    }
    Ok(())
}

fn blocked_callers(page: &mut String, now: &Inspection) -> std::fmt::Result {
    match now.info.blocked_callers.as_slice() {
        [] => writeln!(page, "  blocked    none")?,
        callers => {
            for caller in callers.iter().take(BLOCKED_SHOWN) {
                writeln!(
                    page,
                    "  blocked    {} for {:.1} s on {}",
                    caller.caller, caller.blocked_seconds, caller.blocked_on
                )?;
            }
            if callers.len() > BLOCKED_SHOWN {
                writeln!(page, "  blocked    and {} more", callers.len() - BLOCKED_SHOWN)?;
            }
        }
    }
    Ok(())
}

fn top_items(page: &mut String, now: &Inspection) -> std::fmt::Result {
    let top = now.top();
    if !top.is_empty() {
        writeln!(page, "  top        {:<28} {:>12} {:>8} {:>10}", "key", "priority", "sampled", "age")?;
        for item in top.items() {
            let (priority, times, age) = (item.priority().get(), item.times_sampled(), item.age_inserts());
            writeln!(page, "             {:<28} {priority:>12.5} {times:>8} {age:>10}", key(&item))?;
        }
    }
    Ok(())
}

fn histogram(page: &mut String, what: &str, histogram: Option<&v1::Histogram>) -> std::fmt::Result {
    let Some(v1::Histogram { bounds, counts }) = histogram else { return Ok(()) };
    let most = counts.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return Ok(());
    }
    writeln!(page, "  {what}")?;
    let first = counts.iter().position(|&count| count > 0).unwrap_or(0);
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
    for (bound, count) in bounds.iter().zip(counts).take(last + 1).skip(first) {
        let bar = "#".repeat((*count as f64 / most as f64 * BAR as f64).ceil() as usize);
        let label = match *bound {
            0.0 => "0".to_owned(),
            1.0.. => format!("< {}", number(*bound as u64)),
            small => format!("< 1/{}", number((1.0 / small).round() as u64)),
        };
        writeln!(page, "  {label:>16} {bar:<BAR$} {}", number(*count))?;
    }
    Ok(())
}

/// One item as a line of text.
pub fn item(item: &BatchItem<'_>) -> String {
    let lane = item.lane();
    let steps: Vec<String> = item
        .steps()
        .map(|step| {
            let end = match (step.terminated, step.truncated, step.life_lost) {
                (true, ..) => ", terminated",
                (_, true, _) => ", truncated",
                (.., true) => ", life lost",
                _ => "",
            };
            format!("action {} reward {}{end}", step.action, step.reward)
        })
        .collect();
    format!(
        "item {}: priority {:.5}, sampled {} times, {} inserts old; actor {} lane {} step {}: {}",
        key(item),
        item.priority().get(),
        item.times_sampled(),
        item.age_inserts(),
        lane.actor,
        lane.lane,
        item.first_step(),
        steps.join("; ")
    )
}

pub fn item_json(item: &BatchItem<'_>, picture: &Path) -> Value {
    let lane = item.lane();
    let steps = item.steps().map(|step| {
        json!({
            "action": step.action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "life_lost": step.life_lost,
            "log_probability": step.log_probability,
            "weights": [u64::from(step.weights.incarnation), step.weights.number],
        })
    });
    let mut value = rpc::inspect::item_json(item);
    value["actor"] = lane.actor.into();
    value["lane"] = lane.lane.into();
    value["first_step"] = item.first_step().into();
    value["steps"] = steps.collect::<Vec<_>>().into();
    value["picture"] = picture.display().to_string().into();
    value
}

/// Groups digits by three with commas.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole / 60),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_times_a_unit() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1.5, 200.0, 9000.0].map(duration), ["1 s", "3 min", "2.5 h"]);
    }

    #[test]
    fn the_ratio_of_all_inserts_is_not_named_like_the_learners_ratio() {
        let counters = replay::TableCounters { samples: 250, inserts: 100, ..Default::default() };
        let tables = vec![replay::TableStatus { counters, ..Default::default() }];
        let now = Inspection {
            address: "shard:1".parse().unwrap(),
            at: std::time::Instant::now(),
            info: v1::InfoReply::default(),
            status: replay::ShardStatus { tables, ..Default::default() },
            table: 0,
            contents: None,
        };
        let mut page = String::new();
        contents(&mut page, &now, &now, &v1::Store::default(), 1).unwrap();
        // The learner's ratio leaves out the inserts before sampling starts.
        assert!(page.contains("2.50 per insert with filling\n"), "{page}");
    }

    #[test]
    fn a_histogram_skips_empty_ends() {
        let mut page = String::new();
        let counts = v1::Histogram { bounds: vec![0.0, 0.5, 1.0, 2.0, 4.0], counts: vec![0, 5, 10, 0, 0] };
        histogram(&mut page, "priority", Some(&counts)).unwrap();
        assert!(page.contains("< 1/2 ###############  "), "{page}");
        assert!(page.contains(&"#".repeat(30)) && page.lines().count() == 3, "{page}");
    }
}
