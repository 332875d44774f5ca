//! How much of an episode's error is resolved behind an item, against a count over everything that is stored.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::writer::LaneWriter;
use crate::testing::{options, priority, table};
use crate::{ItemKey, LaneKey, Store, StoreOptions};

/// Every item of a table: its key, lane, first step and priority.
fn items(store: &Store, table: usize) -> Vec<(ItemKey, LaneKey, u64, f64)> {
    let of = &store.tables()[table];
    let key = |slot| ItemKey { incarnation: store.incarnation(), slot, generation: of.number(slot) };
    of.by_age()
        .map(|slot| {
            let item = store.item(table, key(slot)).unwrap();
            (key(slot), item.lane(), item.first_step(), item.priority().get())
        })
        .collect()
}

/// The step at which the episode of a step began.
fn began(writer: &LaneWriter, step: u64) -> u64 {
    (0..=step).rev().find(|&step| writer.played[step as usize].step.starts_episode).unwrap()
}

fn check(store: &Store, writers: &[LaneWriter]) -> usize {
    let writers: BTreeMap<_, _> = writers.iter().map(|writer| (writer.lane, writer)).collect();
    let mut between = 0;
    for table in 0..store.tables().len() {
        let all = items(store, table);
        for &(key, lane, first, _) in &all {
            let same = |other: &&(ItemKey, LaneKey, u64, f64)| {
                other.1 == lane && began(writers[&lane], other.2) == began(writers[&lane], first)
            };
            let total: f64 = all.iter().filter(same).map(|other| other.3).sum();
            let later: f64 =
                all.iter().filter(same).filter(|other| other.2 > first).map(|other| other.3).sum();
            let expected = if total > 0.0 { 1.0 - later / total } else { 1.0 };
            let episode = store.episode(table, key).unwrap();
            let got = episode.reliability(first);
            assert!((got - expected).abs() < 1e-12, "step {first} of {lane:?}: {got}, not {expected}");
            between += usize::from(got > 0.0 && got < 1.0);
            // It serves all items of the episode, and no others.
            for other in &all {
                assert_eq!(episode.holds(other.1, other.2), same(&other));
            }
        }
    }
    between
}

#[test]
fn the_share_behind_an_item_is_what_a_count_of_all_items_says() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    // A ring so small that the beginnings of episodes are gone, and two tables over the same steps.
    let small = StoreOptions { bytes_max: 12_000, tables: vec![table("main"), table("other")], ..options() };
    let mut store = Store::new(small, 7).unwrap();
    let lane = |lane| LaneKey { actor: 0, incarnation: 1, lane };
    let mut writers: Vec<_> = (0..3).map(|number| LaneWriter::new(lane(number), 2, 0.3, 2)).collect();
    let mut between = 0;
    for round in 0..400 {
        let chunk = writers[rng.random_range(0..3)].chunk(&mut rng);
        store.insert(&chunk).unwrap();
        if round % 10 == 0 && store.tables()[0].len() > 8 {
            let draws = store.sample(0, 8, true, &mut rng).unwrap_or_default();
            let updates: Vec<_> = draws.iter().map(|draw| (draw.key, priority(rng.random()))).collect();
            store.update_priorities(0, &updates);
            between += check(&store, &writers);
        }
    }
    assert!(store.table_counters().reclaimed_items > 0 && between > 100, "{between}");
}

#[test]
fn an_item_that_has_left_has_none() {
    let mut store = Store::new(options(), 7).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut writer = LaneWriter::new(LaneKey { actor: 0, incarnation: 1, lane: 0 }, 1, 1.0, 1);
    while store.tables()[0].is_empty() {
        store.insert(&writer.chunk(&mut rng)).unwrap();
    }
    let key = items(&store, 0)[0].0;
    assert!(store.episode(0, key).is_some());
    store.remove(0, &[key]);
    assert_eq!(store.episode(0, key), None);
}
