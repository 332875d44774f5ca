//! What a call costs as the replay grows from ten thousand to ten million small items.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::Result;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::Store;
use replay::codec::Codec;
use value::priority::Priority;

use crate::measure::{Side, interleaved};
use crate::section::{Row, Section};
use crate::writer::Writer;

const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// Steps of one insert.
const STEPS: u64 = 64;

/// As CartPole has.
const FRAME_BYTES: usize = 16;

pub fn section(seconds: f64) -> Result<Section> {
    let rows = SIZES.into_iter().map(|items| row(items, seconds)).collect::<Result<_>>()?;
    Ok(Section {
        topic: "growth",
        title: "µs of CPU time per item, by the number of items (small ones: 16 bytes a frame)".to_owned(),
        columns: &["insert", "sample (32)", "sample (512)", "update (512)"],
        rows,
    })
}

fn row(items: usize, seconds: f64) -> Result<Row> {
    let mut store = Store::new(crate::replay::options(items, FRAME_BYTES, 128), 0)?;
    let frames = Arc::new(vec![vec![7; FRAME_BYTES]; 64]);
    let mut writer = Writer::new(0, frames, Codec::None, 1);
    writer.fill(&mut store);
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let draws = store.sample(0, items.min(1_000_000), false, &mut rng)?;
    let updates: Vec<_> = draws
        .into_iter()
        .map(|draw| (draw.key, Priority::try_new(rng.random()).expect("finite and not negative")))
        .collect();
    let mut sides: Vec<Side<'_, Store>> = Vec::new();
    for batch in [32, 512] {
        let mut rng = rng.clone();
        sides.push(Box::new(move |store| {
            black_box(store.sample(0, batch, true, &mut rng).expect("the table is full"));
        }));
    }
    let mut next = updates.chunks_exact(512).cycle();
    sides.push(Box::new(move |store| {
        next.next().map(|updates| store.update_priorities(0, updates));
    }));
    let rates = interleaved(seconds, &mut store, &mut sides);
    let mut shared = (store, writer);
    let insert: Side<'_, (Store, Writer)> = Box::new(|(store, writer)| {
        store.insert(&writer.chunk(STEPS)).expect("chunks of a lane come in order");
    });
    let inserts = interleaved(seconds, &mut shared, &mut [insert]);
    let each = |rate: f64, items: f64| Some(1e6 / rate / items);
    let cells = vec![
        each(inserts[0].best(), STEPS as f64),
        each(rates[0].best(), 32.0),
        each(rates[1].best(), 512.0),
        each(rates[2].best(), 512.0),
    ];
    Ok(Row { name: format!("{items} items"), cells })
}
