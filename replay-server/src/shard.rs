//! What one shard is: a table, whose run it belongs to, which learner it obeys, and how much it may take in.
//!
//! Everything is decided here and nothing waits: a chunk for which there is no allowance is handed back. No gRPC, no
//! clock, no threads.

use std::sync::Arc;

use bytes::Bytes;
use proto::Sampled;
use proto::convert::TableSpec;
use proto::limits::SAMPLE_BYTES_MAX;
use replay::codec::Codec;
use replay::{Chunk, Counters, Draw, Inserted, ItemKey, SampleError, Table, TableOptions, Updated};
use value::priority::Priority;

use crate::refusal::Refusal;

/// Bytes that an item can take beside its frames: its record, its weight, and the four steps kept for it at most, with
/// lists that grow by doubling.
const ITEM_BYTES_MAX: u64 = 448;

/// Bytes that one step of a drawn item can take in a message beside its frame, and what its item adds for itself.
const RECORD_BYTES_MAX: usize = 128;

/// Who a shard is.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Its name for ever.
    pub id: String,
    /// Another one after every start.
    pub incarnation: u32,
}

/// A learner that calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Learner {
    /// Its run.
    pub run: String,
    /// Larger after every start.
    pub incarnation: u32,
}

/// A writer that calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Writer {
    /// Its run.
    pub run: String,
    /// Its index in the run.
    pub actor: u32,
    /// Larger after every start.
    pub incarnation: u64,
    /// How it packs frames.
    pub codec: Codec,
    /// Size of its unpacked frames.
    pub frame_bytes: usize,
    /// Frames in its states.
    pub stack: usize,
}

/// How many inserts a shard may have taken in since it began to count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Whose count is meant.
    pub shard_incarnation: u32,
    /// How many.
    pub inserts: u64,
}

/// What became of a chunk.
#[derive(Debug, PartialEq)]
pub enum Fate {
    /// It is stored.
    Stored(Inserted),
    /// The learner grants no more than `allowance`; here it is again.
    Held {
        /// The chunk, for another try.
        chunk: Chunk,
        /// What was reached.
        allowance: u64,
    },
    /// The run has ended and nothing more is taken.
    Finished,
}

/// What the learner says after an update.
#[derive(Debug)]
pub struct Verdicts {
    /// New priorities.
    pub updates: Vec<(ItemKey, Priority)>,
    /// Items that nobody can decode.
    pub remove: Vec<ItemKey>,
    /// The largest priority of all shards; 0 if it is not known.
    pub largest_priority: Priority,
}

/// Where a shard stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// The learner has said what it holds.
    pub configured: bool,
    /// The run has ended.
    pub finished: bool,
    /// Items that can be drawn.
    pub items: u64,
    /// How many there can be.
    pub capacity: u64,
    /// What it weighs beside other shards.
    pub mass: f64,
    /// What a new item gets that asks for the largest.
    pub largest_priority: f64,
    /// Bytes of packed frames.
    pub frame_bytes_used: u64,
    /// How many inserts it may have taken in.
    pub inserts_allowed: u64,
    /// Totals.
    pub counters: Counters,
}

impl Standing {
    /// Whether a chunk would be taken now.
    pub fn has_room(&self) -> bool {
        self.configured && !self.finished && self.counters.inserts < self.inserts_allowed
    }
}

/// One shard.
pub struct Shard {
    identity: Identity,
    bytes_limit: u64,
    told: Option<Told>,
}

/// What the first grant brings, and what follows from it.
struct Told {
    run: String,
    spec: Arc<TableSpec>,
    table: Table,
    /// The newest that was heard of.
    learner: u32,
    allowance: u64,
    finished: bool,
}

impl Shard {
    /// A shard that was told nothing yet and will take `bytes_limit` bytes of memory at most.
    pub fn new(identity: Identity, bytes_limit: u64) -> Self {
        Self { identity, bytes_limit, told: None }
    }

    /// Whether a writer may write, and if the shard knows already: what it holds.
    pub fn admit(&self, writer: &Writer) -> Result<Option<Arc<TableSpec>>, Refusal> {
        let Some(told) = &self.told else { return Ok(None) };
        told.check_run(&writer.run)?;
        let options = &told.spec.options;
        for (what, ours, theirs) in [
            ("codec", told.spec.codec.to_string(), writer.codec.to_string()),
            ("frame_bytes", options.frame_bytes.to_string(), writer.frame_bytes.to_string()),
            ("stack", options.stack.to_string(), writer.stack.to_string()),
        ] {
            if ours != theirs {
                return Err(Refusal::Shape { what, ours, theirs });
            }
        }
        Ok(Some(told.spec.clone()))
    }

    /// Stores the chunk of a writer that was admitted, if there is allowance left. The last chunk may go beyond it:
    /// chunks are stored whole.
    pub fn insert(&mut self, chunk: Chunk) -> Result<Fate, Refusal> {
        let Some(told) = &mut self.told else { return Ok(Fate::Held { chunk, allowance: 0 }) };
        if told.finished {
            return Ok(Fate::Finished);
        }
        if told.table.counters().inserts >= told.allowance {
            return Ok(Fate::Held { chunk, allowance: told.allowance });
        }
        Ok(Fate::Stored(told.table.insert(chunk)?))
    }

    /// Draws the items at these points of the mass. Without mass, there are none.
    pub fn sample(
        &mut self,
        learner: &Learner,
        points: &[f64],
        allowance: Option<Allowance>,
    ) -> Result<Vec<Sampled>, Refusal> {
        let incarnation = self.identity.incarnation;
        let Some(told) = self.obey(learner)? else { return Ok(Vec::new()) };
        told.allow(incarnation, allowance);
        match told.table.sample_at(points) {
            Ok(draws) => collect(&told.table, &draws),
            Err(SampleError::Empty | SampleError::NoMass) => Ok(Vec::new()),
        }
    }

    /// Gives items new priorities and removes what can't be decoded. Says how many were changed, no longer there, and
    /// removed.
    pub fn update(&mut self, learner: &Learner, verdicts: &Verdicts) -> Result<(Updated, u64), Refusal> {
        let Some(told) = self.obey(learner)? else {
            let stale = verdicts.updates.len() as u64;
            return Ok((Updated { applied: 0, stale }, 0));
        };
        let updated = told.table.update_priorities(&verdicts.updates);
        let removed = told.table.remove(&verdicts.remove);
        told.table.raise_largest_priority(verdicts.largest_priority);
        Ok((updated, removed))
    }

    /// Sets the allowance. The first grant also says what the shard holds, and for which run.
    pub fn grant(
        &mut self,
        learner: &Learner,
        spec: Option<TableSpec>,
        allowance: Option<Allowance>,
        finished: bool,
    ) -> Result<(), Refusal> {
        let incarnation = self.identity.incarnation;
        if self.told.is_none() {
            let spec = spec.ok_or(proto::Invalid::Missing("table"))?;
            self.told = Some(self.make(learner, spec)?);
        } else if let Some(told) = self.obey(learner)?
            && let Some(spec) = spec
        {
            check_same(&told.spec, &spec)?;
        }
        if let Some(told) = &mut self.told {
            told.allow(incarnation, allowance);
            told.finished |= finished;
        }
        Ok(())
    }

    /// The run and what is held for it, once known.
    pub fn told(&self) -> Option<(&str, &TableSpec)> {
        self.told.as_ref().map(|told| (told.run.as_str(), &*told.spec))
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        let Some(Told { table, allowance, finished, .. }) = &self.told else { return Standing::default() };
        Standing {
            configured: true,
            finished: *finished,
            items: table.len() as u64,
            capacity: table.capacity() as u64,
            mass: table.mass(),
            largest_priority: table.largest_priority().get(),
            frame_bytes_used: table.frame_bytes_used() as u64,
            inserts_allowed: *allowance,
            counters: table.counters(),
        }
    }

    fn make(&self, learner: &Learner, spec: TableSpec) -> Result<Told, Refusal> {
        let TableOptions { capacity, bytes_max, .. } = spec.options;
        let records = (capacity as u64).saturating_mul(ITEM_BYTES_MAX);
        let (bytes, limit) = (records.saturating_add(bytes_max as u64), self.bytes_limit);
        if bytes > limit {
            return Err(Refusal::TooMuchMemory { bytes, limit });
        }
        let incarnation = self.identity.incarnation;
        let table = Table::new(TableOptions { incarnation, ..spec.options })?;
        Ok(Told {
            run: learner.run.clone(),
            spec: Arc::new(spec),
            table,
            learner: learner.incarnation,
            allowance: 0,
            finished: false,
        })
    }

    /// Lets a learner in that is of this run and not replaced. A shard that was told nothing has nobody to compare
    /// with, and remembers nobody: the caller may be of another run.
    fn obey(&mut self, learner: &Learner) -> Result<Option<&mut Told>, Refusal> {
        let Some(told) = &mut self.told else { return Ok(None) };
        told.check_run(&learner.run)?;
        if learner.incarnation < told.learner {
            return Err(Refusal::Learner { given: learner.incarnation, newest: told.learner });
        }
        // A learner that comes after the end goes further, unless it says otherwise.
        told.finished &= learner.incarnation == told.learner;
        told.learner = learner.incarnation;
        Ok(Some(told))
    }
}

impl Told {
    fn check_run(&self, theirs: &str) -> Result<(), Refusal> {
        if self.run == theirs {
            return Ok(());
        }
        Err(Refusal::Run { ours: self.run.clone(), theirs: theirs.to_owned() })
    }

    /// An allowance for a former life of this shard counts what is no longer there.
    fn allow(&mut self, incarnation: u32, allowance: Option<Allowance>) {
        if let Some(Allowance { shard_incarnation, inserts }) = allowance
            && shard_incarnation == incarnation
        {
            self.allowance = inserts;
        }
    }
}

/// What was drawn, with its frames. They are copied once, all into one piece of memory.
fn collect(table: &Table, draws: &[Draw]) -> Result<Vec<Sampled>, Refusal> {
    let items = draws.iter().map(|draw| (draw, table.item(draw.key).expect("it was drawn just now")));
    let bytes = items.clone().flat_map(|(_, item)| item.frames()).map(<[u8]>::len).sum();
    let records: usize = items.clone().map(|(_, item)| item.length() + 1).sum();
    if records * RECORD_BYTES_MAX + bytes > SAMPLE_BYTES_MAX {
        return Err(Refusal::LargeReply { most: SAMPLE_BYTES_MAX });
    }
    let mut frames = Vec::with_capacity(bytes);
    items.clone().flat_map(|(_, item)| item.frames()).for_each(|frame| frames.extend_from_slice(frame));
    let mut frames = Bytes::from(frames);
    let sampled = items.map(|(draw, item)| Sampled {
        key: draw.key,
        probability: draw.probability,
        priority: item.priority(),
        times_sampled: draw.times_sampled,
        age_inserts: draw.age_inserts,
        lane: item.lane(),
        first_step: item.first_step(),
        steps: item.steps().collect(),
        frames: item.frames().map(|frame| frames.split_to(frame.len())).collect(),
    });
    Ok(sampled.collect())
}

fn check_same(ours: &TableSpec, theirs: &TableSpec) -> Result<(), Refusal> {
    let fields = |spec: &TableSpec| {
        let options = &spec.options;
        [
            ("capacity", options.capacity.to_string()),
            ("bytes_max", options.bytes_max.to_string()),
            ("stack", options.stack.to_string()),
            ("frame_bytes", options.frame_bytes.to_string()),
            ("codec", spec.codec.to_string()),
            ("actions", spec.actions.to_string()),
            ("sampler", format!("{:?}", options.sampler)),
            ("priority_exponent", options.priority_exponent.to_string()),
            ("priority_constant", options.priority_constant.to_string()),
            ("first_priority", options.first_priority.to_string()),
        ]
    };
    let mut both = fields(ours).into_iter().zip(fields(theirs));
    match both.find(|(ours, theirs)| ours != theirs) {
        None => Ok(()),
        Some(((what, ours), (_, theirs))) => Err(Refusal::OtherTable { what, ours, theirs }),
    }
}

#[cfg(test)]
mod tests;
