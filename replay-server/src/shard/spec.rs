//! What a shard is told to hold: how much memory that takes, and what may change once the shard is in use.

use proto::convert::StoreSpec;
use replay::StoreOptions;
use replay::store::directory::Holds;

use crate::refusal::Refusal;

/// Bytes of memory that an item can take beside the ring: its slot, its place, its weight.
const ITEM_BYTES_MAX: u64 = 64;
/// Chunks are at least this large in the ring, and have an entry of this size in memory.
const CHUNK_BYTES_MIN: u64 = 192;
const ENTRY_BYTES: u64 = 64;
/// What all lanes can take.
const LANES_BYTES_MAX: u64 = 16 << 20;

/// What may be changed while a table is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Name of the table; the first one if it is empty.
    pub table: String,
    /// Items kept.
    pub capacity: Option<usize>,
    /// The exponent α.
    pub priority_exponent: Option<f64>,
}

/// What differs between two settings of one table.
pub(super) struct TableChange {
    pub capacity: Option<usize>,
    pub exponent: Option<f64>,
}

impl TableChange {
    pub fn between(ours: &StoreOptions, theirs: &StoreOptions, table: usize) -> Self {
        let (ours, theirs) = (&ours.tables[table], &theirs.tables[table]);
        Self {
            capacity: (ours.capacity != theirs.capacity).then_some(theirs.capacity),
            exponent: (ours.priority_exponent != theirs.priority_exponent)
                .then_some(theirs.priority_exponent),
        }
    }
}

pub(super) fn holds(run: &str, spec: &StoreSpec, incarnation: u32, learner: u32) -> Result<Holds, Refusal> {
    let holds = Holds::new(run.to_owned(), spec.codec.to_string(), spec.actions, spec.options.clone());
    let mut holds = holds.map_err(Refusal::storage("read /dev/urandom"))?;
    (holds.incarnation, holds.learner) = (incarnation, learner);
    Ok(holds)
}

pub(super) fn spec_of(holds: &Holds) -> Result<StoreSpec, Refusal> {
    let codec = holds.codec.parse().map_err(|_| Refusal::Codec(holds.codec.clone()))?;
    Ok(StoreSpec { options: holds.options.clone(), codec, actions: holds.actions })
}

/// The most memory that a store may come to take, its files included.
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

/// What can't be changed must be the same.
pub(super) fn check_same(ours: &StoreSpec, theirs: &StoreSpec) -> Result<(), Refusal> {
    let fields = |spec: &StoreSpec| {
        let options = &spec.options;
        let mut fields = vec![
            ("bytes_max", options.bytes_max.to_string()),
            ("stack", options.stack.to_string()),
            ("frame_bytes", options.frame_bytes.to_string()),
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
        Some(((what, ours), (_, theirs))) => Err(Refusal::OtherTable { what, ours, theirs }),
    }
}
