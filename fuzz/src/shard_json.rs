//! `shard.json`, which says who a shard is and how large its files are.
//!
//! Input: the file.

use replay::store::directory::{Identity, SlotDirectory, StoreManifest, parse};
use replay::{Store, StoreOptions};

use crate::small;

/// Stores of more than this take too long to try.
const BYTES_MAX: usize = 1 << 16;
const CAPACITY_MAX: usize = 1 << 10;

pub fn run(data: &[u8]) {
    let Ok(identity) = parse(data) else { return };
    let text = serde_json::to_vec_pretty(&identity).expect("what was read can be written");
    assert_eq!(parse(&text).expect("and read again"), identity);
    let Identity { id, manifest: Some(manifest), .. } = identity else { return };
    let head = SlotDirectory::snapshot_head(&id, &manifest).expect("a head can be written");
    let (same, head) = SlotDirectory::read_snapshot_head(&mut head.as_slice()).expect("and read");
    assert_eq!((same, &head.options, &head.run), (id, &manifest.options, &manifest.run));
    open(&manifest.options);
}

/// Options that pass their check make a store that works.
fn open(options: &StoreOptions) {
    if options.check().is_err() {
        return;
    }
    let mut capacities = options.tables.iter().map(|table| table.capacity);
    if options.bytes_max > BYTES_MAX || capacities.any(|capacity| capacity > CAPACITY_MAX) {
        return;
    }
    let mut store = Store::new(options.clone(), small::INCARNATION).expect("a small store");
    // The lanes of `small` write frames of one size, for two tables.
    if options.frame_bytes >= small::FRAME_BYTES && options.tables.len() >= 2 && options.bytes_max >= 1024 {
        small::fill(&mut store, 9);
        small::put_to_use(&mut store);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let manifest =
        |options| StoreManifest::new("run".into(), "delta".into(), 4, options).expect("random numbers");
    let text = |manifest: &StoreManifest| {
        let head = SlotDirectory::snapshot_head("0123456789abcdef", manifest).expect("a head can be written");
        head[12..].to_vec()
    };
    let mut other = small::options();
    other.tables[0].sampler = replay::Sampler::Lifo;
    other.tables[0].remover = replay::Remover::Lifo;
    other.tables[1].sampler = replay::Sampler::Fifo;
    other.stack = 4;
    // One of those that need all their digits.
    other.tables[0].priority_constant = 0.907_303_832_202_868_9;
    let empty = br#"{"format": 1, "id": "0123456789abcdef", "holds": null}"#;
    vec![text(&manifest(small::options())), text(&manifest(other)), empty.to_vec()]
}
