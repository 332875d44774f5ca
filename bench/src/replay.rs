//! Calls per second of the sum tree alone and of the replay store around it, full, at a million items.
//!
//! What a call needs (masses, leaves, keys, priorities) is drawn beforehand at random over all items, so that caches
//! miss as they do in a run. An insert is into a full table, so it also evicts; making its chunk is part of it, for
//! the table consumes what it is given.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Result, ensure};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::codec::Codec;
use replay::{ItemKey, Remover, Sampler, Store, StoreOptions, SumTree, TableOptions};
use value::priority::Priority;

use crate::measure::{Rates, Side, interleaved};
use crate::section::{Row, Section};
use crate::writer::{Writer, priority};

/// Items in the table, leaves of the tree. The title says so in words.
const ITEMS: usize = 1_000_000;

/// The batch of the paper, and one that hides the cost of a call.
const BATCHES: [usize; 2] = [32, 512];

/// Steps that one insert brings: one, as a writer in a hurry sends, and what fits a message well.
const CHUNKS: [u64; 2] = [1, 50];

/// Size of a synthetic packed frame. The table never looks inside, so small ones do.
const FRAME_BYTES: usize = 64;

/// Bytes of a step in the ring without its frame, in chunks of one step.
const RECORD_BYTES_MAX: usize = 256;

/// Measures tree and table.
pub fn section(seconds: f64) -> Result<Section> {
    let mut rows = tree(seconds);
    rows.extend(table(seconds)?);
    Ok(Section {
        topic: "replay",
        title: "calls/s at a million items; (n) is the number of items in one call".to_owned(),
        columns: &["best", "median"],
        rows,
    })
}

/// A row of two figures.
fn row(name: String, rates: Rates) -> Row {
    Row { name, cells: vec![Some(rates.best()), Some(rates.median())] }
}

/// The sum tree by itself.
fn tree(seconds: f64) -> Vec<Row> {
    tree_rates(seconds).into_iter().map(|(name, rates)| row(name, rates)).collect()
}

/// The sum tree's calls as its peers name them.
pub fn trees(seconds: f64) -> Vec<(String, Rates)> {
    let named = tree_rates(seconds).into_iter().map(|(name, rates)| {
        let name = name.replace("SumTree::find_many (", "sample(").replace("SumTree::set_many (", "update(");
        (name, rates)
    });
    named.filter(|(name, _)| ["sample(32)", "sample(512)", "update(512)"].contains(&name.as_str())).collect()
}

fn tree_rates(seconds: f64) -> Vec<(String, Rates)> {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut tree = SumTree::new(ITEMS);
    tree.rebuild(|_| rng.random());
    let fractions: Vec<f64> = (0..ITEMS).map(|_| rng.random()).collect();
    let changes: Vec<(u32, f64)> =
        (0..ITEMS).map(|_| (rng.random_range(0..ITEMS as u32), rng.random())).collect();
    let (mut names, mut sides): (_, Vec<Side<'_, SumTree>>) = (Vec::new(), Vec::new());
    for batch in BATCHES {
        let drawn = &fractions;
        let mut fractions = fractions.chunks_exact(batch).cycle();
        names.push(format!("SumTree::find ({batch})"));
        sides.push(Box::new(move |tree| {
            for fraction in fractions.next().into_iter().flatten() {
                black_box(tree.find(fraction * tree.total()));
            }
        }));
        let mut drawn = drawn.chunks_exact(batch).cycle();
        let (mut masses, mut found) = (Vec::new(), Vec::new());
        names.push(format!("SumTree::find_many ({batch})"));
        sides.push(Box::new(move |tree| {
            masses.clear();
            masses.extend(drawn.next().into_iter().flatten().map(|fraction| fraction * tree.total()));
            tree.find_many(&mut masses, &mut found);
            black_box(&found);
        }));
        let mut changes = changes.chunks_exact(batch).cycle();
        names.push(format!("SumTree::set_many ({batch})"));
        sides.push(Box::new(move |tree| tree.set_many(changes.next().into_iter().flatten().copied())));
    }
    let rates = interleaved(seconds, &mut tree, &mut sides);
    names.into_iter().zip(rates).collect()
}

/// The table: drawing and updating take turns, inserting comes after, since it evicts the items to be updated.
fn table(seconds: f64) -> Result<Vec<Row>> {
    let mut store = Store::new(options(ITEMS, FRAME_BYTES, RECORD_BYTES_MAX), 0)?;
    let mut writer = Writer::new(0, Arc::new(frames()), Codec::None, 1);
    writer.fill(&mut store);
    let updates = updates(&mut store)?;
    let (mut names, mut sides): (_, Vec<Side<'_, Store>>) = (Vec::new(), Vec::new());
    for batch in BATCHES {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        names.push(format!("Store::sample ({batch})"));
        sides.push(Box::new(move |store| {
            black_box(store.sample(0, batch, true, &mut rng).expect("the table is full"));
        }));
        let mut updates = updates.chunks_exact(batch).cycle();
        names.push(format!("Store::update_priorities ({batch})"));
        sides.push(Box::new(move |store| {
            let updated = updates.next().map(|updates| store.update_priorities(0, updates));
            assert_eq!(updated.map(|updated| updated.stale), Some(0), "nothing has been evicted");
        }));
    }
    let mut rates = interleaved(seconds, &mut store, &mut sides);
    let mut shared = (store, writer);
    let inserts = CHUNKS.map(|steps| -> Side<'_, (Store, Writer)> {
        Box::new(move |(store, writer)| {
            let inserted = store.insert(&writer.chunk(steps)).expect("chunks of a lane come in order");
            assert_eq!(inserted.items, steps, "one transition per step");
        })
    });
    names.extend(CHUNKS.map(|steps| format!("Store::insert ({steps})")));
    rates.extend(interleaved(seconds, &mut shared, &mut { inserts }));
    let (store, _) = shared;
    ensure!(
        store.tables()[0].len() == ITEMS && store.table_counters().reclaimed_items == 0,
        "inserts did not just replace the oldest items"
    );
    Ok(names.into_iter().zip(rates).map(|(name, rates)| row(name, rates)).collect())
}

/// As the paper's, with room for all the synthetic frames. `record_bytes` are the bytes of a step without its frame.
pub fn options(capacity: usize, frame_bytes: usize, record_bytes: usize) -> StoreOptions {
    let table = TableOptions {
        name: "transitions".into(),
        capacity,
        sampler: Sampler::Proportional,
        remover: Remover::Fifo,
        max_times_sampled: 0,
        priority_exponent: 0.4,
        priority_constant: 0.001,
        first_priority: 1.0,
    };
    // With room for what is being replaced.
    let bytes_max = capacity * (frame_bytes + record_bytes) + (1 << 20);
    StoreOptions { bytes_max, stack: 4, frame_bytes, max_length: 1, tables: vec![table] }
}

/// A few frames of noise.
fn frames() -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut frame = || {
        let mut bytes = vec![0; FRAME_BYTES];
        rng.fill_bytes(&mut bytes);
        bytes
    };
    (0..64).map(|_| frame()).collect()
}

/// As many updates as there are items, in random order: first what was drawn, then its new priority.
fn updates(store: &mut Store) -> Result<Vec<(ItemKey, Priority)>> {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let draws = store.sample(0, ITEMS, false, &mut rng)?;
    Ok(draws.into_iter().map(|draw| (draw.key, priority(&mut rng))).collect())
}
