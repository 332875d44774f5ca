//! The configuration of a shard: how much memory it needs, and what may change while the shard is in use.

use proto::convert::StoreSpec;
use replay::store::directory::StoreManifest;
use replay::{Store, StoreOptions};

use crate::refusal::Refusal;

/// The most bytes of memory that an item takes outside the ring: its slot, its links and its weight.
const ITEM_BYTES_MAX: u64 = 64;
/// The least size of a chunk in the ring, and the size of its entry in memory.
const CHUNK_BYTES_MIN: u64 = 192;
const ENTRY_BYTES: u64 = 64;
/// The most memory that all lanes take.
const LANES_BYTES_MAX: u64 = 16 << 20;

/// A change of a table in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Name of the table. Empty: the first one.
    pub table: String,
    pub capacity: Option<usize>,
    pub priority_exponent: Option<f64>,
}

/// The first half of a change to checked options: tables grow, as only that can fail. If one cannot grow, those that have
/// grown before it shrink back, so a failure changes nothing.
pub(super) fn grow(store: &mut Store, options: &StoreOptions) -> Result<(), Refusal> {
    let before = store.options().clone();
    for (table, changed) in options.tables.iter().enumerate() {
        if changed.capacity > before.tables[table].capacity
            && let Err(error) = store.set_capacity(table, changed.capacity)
        {
            shrink(store, &before)?;
            return Err(Refusal::store_error(error));
        }
    }
    Ok(())
}

/// Shrinks tables to these capacities, which cannot fail.
pub(super) fn shrink(store: &mut Store, options: &StoreOptions) -> Result<(), Refusal> {
    for (table, changed) in options.tables.iter().enumerate() {
        if changed.capacity < store.options().tables[table].capacity {
            store.set_capacity(table, changed.capacity).map_err(Refusal::store_error)?;
        }
    }
    Ok(())
}

/// The second half: everything that cannot fail.
pub(super) fn apply(store: &mut Store, options: &StoreOptions) -> Result<(), Refusal> {
    shrink(store, options)?;
    for (table, changed) in options.tables.iter().enumerate() {
        if store.options().tables[table].priority_exponent != changed.priority_exponent {
            store.set_priority_exponent(table, changed.priority_exponent)?;
        }
    }
    Ok(())
}

pub(super) fn manifest(
    run: &str,
    spec: &StoreSpec,
    incarnation: u32,
    learner: u32,
) -> Result<StoreManifest, Refusal> {
    let manifest =
        StoreManifest::new(run.to_owned(), spec.codec.to_string(), spec.actions, spec.options.clone());
    let mut manifest = manifest.map_err(Refusal::storage("read /dev/urandom"))?;
    (manifest.incarnation, manifest.learner) = (incarnation, learner);
    Ok(manifest)
}

pub(super) fn spec_of(manifest: &StoreManifest) -> Result<StoreSpec, Refusal> {
    let codec = manifest.codec.parse().map_err(|_| Refusal::Codec(manifest.codec.clone()))?;
    Ok(StoreSpec { options: manifest.options.clone(), codec, actions: manifest.actions })
}

/// Checks the most memory that a store may grow to, its files included.
pub(super) fn check_memory(options: &StoreOptions, limit: u64) -> Result<(), Refusal> {
    let items: u64 = options.tables.iter().map(|table| table.capacity as u64).fold(0, u64::saturating_add);
    let ring = options.bytes_max as u64;
    let bytes = items
        .saturating_mul(ITEM_BYTES_MAX)
        .saturating_add(ring)
        .saturating_add(ring / CHUNK_BYTES_MIN * ENTRY_BYTES)
        .saturating_add(LANES_BYTES_MAX);
    if bytes > limit {
        return Err(Refusal::TooMuchMemory { bytes, limit });
    }
    Ok(())
}

/// Checks that everything that cannot change is equal.
pub(super) fn check_same(ours: &StoreSpec, theirs: &StoreSpec) -> Result<(), Refusal> {
    let fields = |spec: &StoreSpec| {
        let options = &spec.options;
        let mut fields = vec![
            ("bytes_max", options.bytes_max.to_string()),
            ("stack", options.stack.to_string()),
            ("frame_bytes", options.frame_bytes.to_string()),
            ("max_length", options.max_length.to_string()),
            ("codec", spec.codec.to_string()),
            ("actions", spec.actions.to_string()),
            ("number of tables", options.tables.len().to_string()),
        ];
        for table in &options.tables {
            fields.push(("table", table.name.clone()));
            fields.push(("sampler", table.sampler.to_string()));
            fields.push(("remover", table.remover.to_string()));
            fields.push(("max_times_sampled", table.max_times_sampled.to_string()));
            fields.push(("priority_constant", table.priority_constant.to_string()));
            fields.push(("first_priority", table.first_priority.to_string()));
        }
        fields
    };
    let mut both = fields(ours).into_iter().zip(fields(theirs));
    match both.find(|(ours, theirs)| ours != theirs) {
        None => Ok(()),
        Some(((what, ours), (_, theirs))) => Err(Refusal::ConfigurationMismatch { what, ours, theirs }),
    }
}
