//! What one shard is: a store, whose run it belongs to, which learner it obeys, and how much it may take in.
//!
//! Everything is decided here and nothing waits: a chunk for which there is no allowance is handed back. No clock, no
//! threads, no calls. Of the wire it knows one thing: sampled items are copied from the ring straight into the message
//! that leaves ([`BatchBuilder`]), so that frames are copied once.

use std::sync::Arc;

use proto::convert::StoreSpec;
use proto::limits::SAMPLE_BYTES_MAX;
use proto::{BatchBuilder, Updates};
use replay::codec::Codec;
use replay::store::directory::{Holds, random_incarnation};
use replay::store::look::Look;
use replay::store::{Home, Recovered};
use replay::{
    Allowance, Chunk, Draw, Episode, Inserted, ItemKey, Saving, ShardStatus, Store, TableStatus, Updated,
};

use crate::home::Place;
use crate::refusal::Refusal;

mod spec;

pub use spec::Change;
use spec::{TableChange, check_memory, check_same, holds, spec_of};

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
    /// The shard that it means, by name; empty for any.
    pub shard: String,
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

/// One shard.
pub struct Shard {
    place: Place,
    bytes_limit: u64,
    /// Of a shard that was told nothing yet.
    incarnation: u32,
    told: Option<Told>,
}

/// What the first grant brings, and what follows from it.
struct Told {
    run: String,
    spec: Arc<StoreSpec>,
    store: Store,
    /// The newest that was heard of.
    learner: u32,
    allowance: u64,
    finished: bool,
    recovered: Recovered,
}

impl Shard {
    /// A shard in its place, with what a former life left there. It will take `bytes_limit` bytes of memory at most.
    pub fn open(place: Place, bytes_limit: u64) -> Result<Self, Refusal> {
        let incarnation = random_incarnation().map_err(Refusal::storage("read /dev/urandom"))?;
        let mut shard = Self { place, bytes_limit, incarnation, told: None };
        if let Some((holds, store, recovered)) = shard.place.found()? {
            let spec = spec_of(&holds)?;
            shard.told = Some(Told {
                run: holds.run,
                spec: Arc::new(spec),
                store,
                learner: holds.learner,
                allowance: 0,
                finished: holds.finished,
                recovered,
            });
        }
        Ok(shard)
    }

    /// Whether a writer may write, and if the shard knows already: what it holds.
    pub fn admit(&self, writer: &Writer) -> Result<Option<Arc<StoreSpec>>, Refusal> {
        let (ours, theirs) = (self.place.id(), &writer.shard);
        if !theirs.is_empty() && theirs != ours {
            return Err(Refusal::OtherShard { ours: ours.to_owned(), theirs: theirs.clone() });
        }
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
        if told.store.table_counters().inserts >= told.allowance {
            return Ok(Fate::Held { chunk, allowance: told.allowance });
        }
        Ok(Fate::Stored(told.store.insert(&chunk)?))
    }

    /// Draws the items at these points of a table's mass. Without mass, there are none. If they are more than fit into a
    /// reply, none is drawn; of a table whose items are used up by it, as many as fit.
    pub fn sample(
        &mut self,
        learner: &Learner,
        table: usize,
        points: &[f64],
        allowance: Option<Allowance>,
        updates: Option<&Updates>,
    ) -> Result<(BatchBuilder, Updated), Refusal> {
        let Some(told) = self.obey(learner)? else { return Ok(Default::default()) };
        told.check_table(table)?;
        updates.map_or(Ok(()), |updates| told.check_table(updates.table))?;
        told.allow(allowance);
        let (updated, _) = updates.map(|updates| told.update(updates)).transpose()?.unwrap_or_default();
        let mut batch = BatchBuilder::new(points.len());
        let drawn = told.store.sample_while(table, points, |draw, item| {
            let fits = !batch.is_full();
            if fits {
                batch.push(&draw, &item, true);
            }
            fits
        });
        let uses_up = told.store.options().tables[table].max_times_sampled > 0;
        if drawn == Ok(false) && !uses_up {
            told.store.take_back(table, batch.items().map(|(key, ..)| key));
            return Err(Refusal::LargeReply { most: SAMPLE_BYTES_MAX });
        }
        Ok((batch, updated))
    }

    /// The episode of an item of a table, if it is still there.
    pub fn episode(&self, table: usize, key: ItemKey) -> Option<Episode> {
        self.told.as_ref()?.store.episode(table, key)
    }

    /// Gives items new priorities and removes what can't be decoded. Says how many were changed, no longer there, and
    /// removed.
    pub fn update(&mut self, learner: &Learner, updates: &Updates) -> Result<(Updated, u64), Refusal> {
        match self.obey(learner)? {
            Some(told) => told.update(updates),
            None => Ok((Updated { applied: 0, stale: updates.priorities.len() as u64 }, 0)),
        }
    }

    /// Sets the allowance. The first grant also says what the shard holds, and for which run.
    pub fn grant(
        &mut self,
        learner: &Learner,
        spec: Option<StoreSpec>,
        allowance: Option<Allowance>,
        finished: bool,
    ) -> Result<(), Refusal> {
        if self.told.is_none() {
            let spec = spec.ok_or(proto::Invalid::Missing("store"))?;
            self.told = Some(self.make(learner, spec)?);
        } else if self.obey(learner)?.is_some()
            && let Some(spec) = spec
        {
            self.adopt(&spec)?;
        }
        let Some(told) = &mut self.told else { return Ok(()) };
        told.allow(allowance);
        if finished && !told.finished {
            told.finished = true;
            self.remember()?;
        }
        Ok(())
    }

    /// Changes a table while it is used. Everything is checked first.
    pub fn configure(&mut self, change: &Change) -> Result<(), Refusal> {
        let limit = self.bytes_limit;
        let told = self.told.as_mut().ok_or(Refusal::Untold)?;
        let table = told.table_of(&change.table)?;
        let mut options = told.store.options().clone();
        let changed = &mut options.tables[table];
        changed.capacity = change.capacity.unwrap_or(changed.capacity);
        changed.priority_exponent = change.priority_exponent.unwrap_or(changed.priority_exponent);
        options.check()?;
        check_memory(&options, limit)?;
        let TableChange { capacity, exponent } = TableChange::between(told.store.options(), &options, table);
        if let Some(capacity) = capacity {
            told.store.set_capacity(table, capacity).map_err(Refusal::home)?;
        }
        if let Some(exponent) = exponent {
            told.store.set_priority_exponent(table, exponent)?;
        }
        told.spec = Arc::new(StoreSpec { options, ..(*told.spec).clone() });
        self.remember()
    }

    /// The run and what is held for it, once known.
    pub fn told(&self) -> Option<(&str, &StoreSpec)> {
        self.told.as_ref().map(|told| (told.run.as_str(), &*told.spec))
    }

    /// What was found at the start.
    pub fn recovered(&self) -> Recovered {
        self.told.as_ref().map_or_else(Recovered::default, |told| told.recovered)
    }

    /// How a table's items are spread, and the ones on top.
    pub fn inspect(&self, table: &str, top: usize) -> Result<(Look, BatchBuilder), Refusal> {
        let told = self.told.as_ref().ok_or(Refusal::Untold)?;
        let table = told.table_of(table)?;
        let look = told.store.look(table, top);
        let mut batch = BatchBuilder::new(look.top.len());
        look.top.iter().for_each(|&key| told.show(&mut batch, table, key, false));
        Ok((look, batch))
    }

    /// One item with its frames.
    pub fn look(&self, table: &str, key: ItemKey) -> Result<(BatchBuilder, Arc<StoreSpec>), Refusal> {
        let told = self.told.as_ref().ok_or(Refusal::Untold)?;
        let table = told.table_of(table)?;
        if told.store.item(table, key).is_none() {
            return Err(Refusal::NoSuchItem);
        }
        let mut batch = BatchBuilder::new(1);
        told.show(&mut batch, table, key, true);
        Ok((batch, told.spec.clone()))
    }

    /// Begins a snapshot.
    pub fn begin_saving(&self) -> Result<Saving<Vec<u8>>, Refusal> {
        let told = self.told.as_ref().ok_or(Refusal::Untold)?;
        let head = self.place.snapshot_head(&self.holds(told)?)?;
        Saving::new(head).map_err(Refusal::storage("begin a snapshot"))
    }

    /// Goes on with a snapshot: its next piece, and whether there is more.
    pub fn save_some(&self, saving: &mut Saving<Vec<u8>>, bytes: usize) -> Result<(Vec<u8>, bool), Refusal> {
        let told = self.told.as_ref().ok_or(Refusal::Untold)?;
        let more = saving.write_some(&told.store, bytes).map_err(Refusal::storage("write a snapshot"))?;
        Ok((std::mem::take(saving.sink()), more))
    }

    /// Where the store's files are, for whoever sees to it that they reach the disk.
    pub fn home(&self) -> Option<Home> {
        self.told.as_ref().map(|told| told.store.home().clone())
    }

    /// What the shard holds and has counted. Which writers are blocked is the service's to add.
    pub fn status(&self) -> ShardStatus {
        let id = self.place.id().to_owned();
        let Some(Told { store, allowance, finished, .. }) = &self.told else {
            return ShardStatus { id, incarnation: self.incarnation, ..ShardStatus::default() };
        };
        let table = |table: &replay::Table| TableStatus {
            items: table.len() as u64,
            capacity: table.options().capacity as u64,
            mass: table.mass(),
            largest_priority: table.largest_priority().get(),
            counters: table.counters(),
        };
        ShardStatus {
            id,
            incarnation: store.incarnation(),
            configured: true,
            finished: *finished,
            bytes_used: store.bytes_used() as u64,
            bytes_max: store.options().bytes_max as u64,
            inserts_allowed: *allowance,
            writers_blocked: 0,
            counters: store.counters(),
            tables: store.tables().iter().map(table).collect(),
        }
    }

    fn make(&mut self, learner: &Learner, spec: StoreSpec) -> Result<Told, Refusal> {
        check_memory(&spec.options, self.bytes_limit)?;
        let holds = holds(&learner.run, &spec, self.incarnation, learner.incarnation)?;
        let store = self.place.make(holds)?;
        Ok(Told {
            run: learner.run.clone(),
            spec: Arc::new(spec),
            store,
            learner: learner.incarnation,
            allowance: 0,
            finished: false,
            recovered: Recovered::default(),
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
        if learner.incarnation > told.learner {
            // A learner that comes after the end goes further, unless it says otherwise.
            (told.learner, told.finished) = (learner.incarnation, false);
            self.remember()?;
        }
        Ok(self.told.as_mut())
    }

    /// The learner says again what the shard holds: what can change is changed, the rest must be the same.
    fn adopt(&mut self, spec: &StoreSpec) -> Result<(), Refusal> {
        let told = self.told.as_ref().ok_or(Refusal::Untold)?;
        check_same(&told.spec, spec)?;
        let ours = told.store.options();
        let tables = ours.tables.iter().zip(&spec.options.tables).enumerate();
        let changes: Vec<Change> = tables
            .map(|(index, (ours_table, _))| {
                let TableChange { capacity, exponent } = TableChange::between(ours, &spec.options, index);
                Change { table: ours_table.name.clone(), capacity, priority_exponent: exponent }
            })
            .filter(|change| change.capacity.is_some() || change.priority_exponent.is_some())
            .collect();
        changes.iter().try_for_each(|change| self.configure(change))
    }

    fn remember(&mut self) -> Result<(), Refusal> {
        let Some(told) = &self.told else { return Ok(()) };
        let holds = self.holds(told)?;
        self.place.remember(holds)
    }

    fn holds(&self, told: &Told) -> Result<Holds, Refusal> {
        let mut holds = holds(&told.run, &told.spec, told.store.incarnation(), told.learner)?;
        holds.finished = told.finished;
        Ok(holds)
    }
}

impl Told {
    fn check_run(&self, theirs: &str) -> Result<(), Refusal> {
        if self.run == theirs {
            return Ok(());
        }
        Err(Refusal::Run { ours: self.run.clone(), theirs: theirs.to_owned() })
    }

    fn check_table(&self, table: usize) -> Result<(), Refusal> {
        let tables = self.store.tables().len();
        if table < tables { Ok(()) } else { Err(Refusal::NoSuchTable(format!("number {table}"))) }
    }

    fn table_of(&self, name: &str) -> Result<usize, Refusal> {
        let named = |table: &replay::Table| table.options().name == name;
        let known = if name.is_empty() { Some(0) } else { self.store.tables().iter().position(named) };
        known.ok_or_else(|| Refusal::NoSuchTable(format!("{name:?}")))
    }

    /// An allowance for a former life of this shard counts what is no longer there.
    fn allow(&mut self, allowance: Option<Allowance>) {
        if let Some(Allowance { incarnation, inserts }) = allowance
            && incarnation == self.store.incarnation()
        {
            self.allowance = inserts;
        }
    }

    fn update(&mut self, updates: &Updates) -> Result<(Updated, u64), Refusal> {
        self.check_table(updates.table)?;
        let updated = self.store.update_priorities(updates.table, &updates.priorities);
        let removed =
            if updates.removed.is_empty() { 0 } else { self.store.remove(updates.table, &updates.removed) };
        if let Some(largest) = updates.largest {
            self.store.raise_largest_priority(updates.table, largest);
        }
        Ok((updated, removed))
    }

    /// Puts an item into a batch without drawing it.
    fn show(&self, batch: &mut BatchBuilder, table: usize, key: ItemKey, frames: bool) {
        let Some(item) = self.store.item(table, key) else { return };
        // A message has no item that can't be drawn; one of no weight has next to none.
        let probability = self.store.tables()[table].probability(key.slot).max(f64::MIN_POSITIVE);
        let (times_sampled, age_inserts) = (item.times_sampled(), item.age_inserts());
        batch.push(&Draw { key, probability, times_sampled, age_inserts }, &item, frames);
    }
}

#[cfg(test)]
mod tests;
