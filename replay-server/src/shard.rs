//! The state of one shard: its store, the run it belongs to, its newest learner, and its allowance.
//!
//! All decisions are made here and nothing blocks: a chunk without allowance is handed back to the caller. No clock, no
//! threads, no I/O except the store's files. Sampled items are copied from the ring straight into the reply
//! ([`BatchBuilder`]), so that frames are copied once. Apart from that, it uses domain types and no messages.

use std::sync::Arc;

use proto::convert::StoreSpec;
use proto::limits::SAMPLE_BYTES_MAX;
use proto::{BatchBuilder, Updates};
use replay::store::directory::{StoreManifest, random_incarnation};
use replay::store::inspect::TableInspection;
use replay::store::{Recovered, Storage};
use replay::{
    Allowance, Chunk, Draw, EpisodeErrors, Inserted, ItemKey, ShardStatus, SnapshotWriter, Store,
    StoreOptions, TableStatus, TicketKey, Updated,
};

use crate::refusal::Refusal;
use crate::store_backend::StoreBackend;

mod identity;
mod spec;

use identity::actor_identity;
pub use identity::{LearnerIdentity, WriterIdentity};
pub use spec::Change;
use spec::{apply, check_memory, check_same, grow, manifest, shrink, spec_of};

/// What the shard decided about a chunk.
#[derive(Debug, PartialEq)]
pub enum InsertDecision {
    Stored(Inserted),
    /// The allowance is used up. Hands the chunk back, to be retried later.
    Blocked {
        chunk: Chunk,
        allowance: u64,
    },
    /// The run has ended. The shard accepts nothing more.
    Finished,
}

/// One shard. It can do nothing before the first grant has configured it.
pub struct Shard {
    backend: StoreBackend,
    memory_limit: u64,
    /// The incarnation of the store that the first grant will create.
    incarnation: u32,
    configured: Option<Configured>,
}

/// The state of a configured shard.
struct Configured {
    run: String,
    spec: Arc<StoreSpec>,
    store: Store,
    /// Incarnation of the newest learner that called.
    learner: u32,
    allowance: u64,
    finished: bool,
    /// `None` in a store of version 0.1 and in a restored snapshot, until the first grant. Writers wait for it.
    ticket_key: Option<TicketKey>,
    recovered: Recovered,
}

impl Shard {
    /// Opens a shard and recovers the store at its backend, if there is one. The shard accepts no configuration that
    /// needs more than `memory_limit` bytes.
    pub fn open(backend: StoreBackend, memory_limit: u64) -> Result<Self, Refusal> {
        let incarnation = random_incarnation().map_err(Refusal::storage("read /dev/urandom"))?;
        let mut shard = Self { backend, memory_limit, incarnation, configured: None };
        if let Some((manifest, store, recovered)) = shard.backend.recover()? {
            let spec = spec_of(&manifest)?;
            shard.configured = Some(Configured {
                run: manifest.run,
                spec: Arc::new(spec),
                store,
                learner: manifest.learner,
                allowance: 0,
                finished: manifest.finished,
                ticket_key: manifest.ticket_key,
                recovered,
            });
        }
        Ok(shard)
    }

    /// Checks that a writer may write. Returns the configuration, or `None` if there is none yet, or no ticket key.
    pub fn admit(&self, writer: &WriterIdentity) -> Result<Option<Arc<StoreSpec>>, Refusal> {
        let (ours, theirs) = (self.backend.id(), &writer.shard);
        if !theirs.is_empty() && theirs != ours {
            return Err(Refusal::WrongShard { ours: ours.to_owned(), theirs: theirs.clone() });
        }
        let Some(configured) = &self.configured else { return Ok(None) };
        configured.check_run(&writer.run)?;
        let Some(key) = &configured.ticket_key else { return Ok(None) };
        writer.check_ticket(key)?;
        let options = &configured.spec.options;
        for (what, ours, theirs) in [
            ("codec", configured.spec.codec.to_string(), writer.codec.to_string()),
            ("frame_bytes", options.frame_bytes.to_string(), writer.frame_bytes.to_string()),
            ("stack", options.stack.to_string(), writer.stack.to_string()),
        ] {
            if ours != theirs {
                return Err(Refusal::FrameFormatMismatch { what, ours, theirs });
            }
        }
        Ok(Some(configured.spec.clone()))
    }

    /// Stores the chunk of an admitted writer, if there is allowance left. Chunks are stored whole, so the last one may
    /// exceed the allowance.
    pub fn insert(&mut self, chunk: Chunk) -> Result<InsertDecision, Refusal> {
        let Some(configured) = &mut self.configured else {
            return Ok(InsertDecision::Blocked { chunk, allowance: 0 });
        };
        if configured.finished {
            return Ok(InsertDecision::Finished);
        }
        if configured.store.inserts_charged() >= configured.allowance {
            return Ok(InsertDecision::Blocked { chunk, allowance: configured.allowance });
        }
        Ok(InsertDecision::Stored(configured.store.insert(&chunk)?))
    }

    /// Applies `allowance` and `updates`, then samples the items at these points of a table's mass; none if the mass is 0.
    /// If they do not all fit into a reply, the call is refused and counts no samples, but allowance and updates stay
    /// applied. A table with `max_times_sampled` returns as many as fit instead.
    pub fn sample(
        &mut self,
        learner: &LearnerIdentity,
        table: usize,
        points: &[f64],
        allowance: Option<Allowance>,
        updates: Option<&Updates>,
    ) -> Result<(BatchBuilder, Updated), Refusal> {
        let Some(configured) = self.check_learner(learner)? else { return Ok(Default::default()) };
        configured.check_table(table)?;
        updates.map_or(Ok(()), |updates| configured.check_table(updates.table))?;
        let configured = self.accept_learner(learner)?;
        configured.set_allowance(allowance);
        let (updated, _) = updates.map(|updates| configured.update(updates)).transpose()?.unwrap_or_default();
        let mut batch = BatchBuilder::new(points.len());
        let drawn = configured.store.sample_while(table, points, |draw, item| {
            let fits = !batch.is_full();
            if fits {
                batch.push(&draw, &item, true);
            }
            fits
        });
        let uses_up = configured.store.options().tables[table].max_times_sampled > 0;
        if drawn == Ok(false) && !uses_up {
            configured.store.undo_draws(table, batch.items().map(|(key, ..)| key));
            return Err(Refusal::LargeReply { most: SAMPLE_BYTES_MAX });
        }
        Ok((batch, updated))
    }

    /// The errors of an item's episode, if the item is still stored.
    pub fn episode(&self, table: usize, key: ItemKey) -> Option<EpisodeErrors> {
        self.configured.as_ref()?.store.episode(table, key)
    }

    /// Assigns new priorities and removes items that could not be decoded. Returns the outcome of the updates and the
    /// number of removed items.
    pub fn update(
        &mut self,
        learner: &LearnerIdentity,
        updates: &Updates,
    ) -> Result<(Updated, u64), Refusal> {
        let Some(configured) = self.check_learner(learner)? else {
            return Ok((Updated { applied: 0, stale: updates.priorities.len() as u64 }, 0));
        };
        configured.check_table(updates.table)?;
        self.accept_learner(learner)?.update(updates)
    }

    /// Sets the allowance. The first grant also configures the shard and assigns it to the learner's run. A refused grant
    /// changes nothing: a learner with a wrong configuration must not replace the one that trains.
    pub fn grant(
        &mut self,
        learner: &LearnerIdentity,
        spec: Option<StoreSpec>,
        allowance: Option<Allowance>,
        finished: bool,
    ) -> Result<(), Refusal> {
        let mut options = None;
        match self.check_learner(learner)? {
            None => {
                let spec = spec.ok_or(proto::Invalid::Missing("store"))?;
                self.configured = Some(self.create(learner, spec)?);
            }
            Some(configured) => {
                if let Some(spec) = spec {
                    check_same(&configured.spec, &spec)?;
                    options = Some(spec.options);
                }
            }
        }
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        // A learner that calls after the end of the run continues it, unless it says finished again.
        let finished = finished || (configured.finished && learner.incarnation == configured.learner);
        self.change(options, learner.incarnation, finished)?;
        self.configured.as_mut().ok_or(Refusal::NotConfigured)?.set_allowance(allowance);
        Ok(())
    }

    /// Sets the key of the run's tickets: the given one, or a random one if there is none. It is persisted, so that a
    /// restarted shard can verify tickets. Streams that were admitted with the former key stay.
    pub fn set_ticket_key(&mut self, given: Option<TicketKey>) -> Result<(), Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        let key = match (given, &configured.ticket_key) {
            (None, Some(_)) => return Ok(()),
            (Some(given), Some(known)) if given == *known => return Ok(()),
            (Some(given), _) => given,
            (None, None) => TicketKey::random().map_err(Refusal::storage("read /dev/urandom"))?,
        };
        let mut manifest = self.manifest(configured)?;
        manifest.ticket_key = Some(key.clone());
        self.backend.save_manifest(manifest)?;
        if let Some(configured) = &mut self.configured {
            configured.ticket_key = Some(key);
        }
        Ok(())
    }

    pub fn has_ticket_key(&self) -> bool {
        self.configured.as_ref().is_some_and(|configured| configured.ticket_key.is_some())
    }

    /// The ticket of an identity of this run, for writers without a learner.
    pub fn issue_ticket(&self, run: &str, actor: u32, incarnation: u64) -> Result<Vec<u8>, Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NoTicketKey)?;
        configured.check_run(run)?;
        let key = configured.ticket_key.as_ref().ok_or(Refusal::NoTicketKey)?;
        Ok(actor_identity(run, actor, incarnation).ticket(key))
    }

    /// Changes a table while the shard serves. The whole change is checked before any of it is applied.
    pub fn configure(&mut self, change: &Change) -> Result<(), Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        let table = configured.table_index(&change.table)?;
        let mut options = configured.store.options().clone();
        let changed = &mut options.tables[table];
        changed.capacity = change.capacity.unwrap_or(changed.capacity);
        changed.priority_exponent = change.priority_exponent.unwrap_or(changed.priority_exponent);
        let (learner, finished) = (configured.learner, configured.finished);
        self.change(Some(options), learner, finished)
    }

    /// The run and the configuration, once a learner has sent them.
    pub fn configuration(&self) -> Option<(&str, &StoreSpec)> {
        self.configured.as_ref().map(|configured| (configured.run.as_str(), &*configured.spec))
    }

    /// What was recovered at the start.
    pub fn recovered(&self) -> Recovered {
        self.configured.as_ref().map_or_else(Recovered::default, |configured| configured.recovered)
    }

    /// Distributions over a table's items, and its `top` items of largest priority.
    pub fn inspect(&self, table: &str, top: usize) -> Result<(TableInspection, BatchBuilder), Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        let table = configured.table_index(table)?;
        let inspection = configured.store.inspect(table, top);
        let mut batch = BatchBuilder::new(inspection.top.len());
        inspection.top.iter().for_each(|&key| configured.push_item(&mut batch, table, key, false));
        Ok((inspection, batch))
    }

    /// One item with its frames.
    pub fn item(&self, table: &str, key: ItemKey) -> Result<(BatchBuilder, Arc<StoreSpec>), Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        let table = configured.table_index(table)?;
        if configured.store.item(table, key).is_none() {
            return Err(Refusal::NoSuchItem);
        }
        let mut batch = BatchBuilder::new(1);
        configured.push_item(&mut batch, table, key, true);
        Ok((batch, configured.spec.clone()))
    }

    pub fn begin_snapshot(&self) -> Result<SnapshotWriter<Vec<u8>>, Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        let head = self.backend.snapshot_head(&self.manifest(configured)?)?;
        SnapshotWriter::new(head).map_err(Refusal::storage("start a snapshot"))
    }

    /// Continues a snapshot: returns its next piece, and whether there is more.
    pub fn write_snapshot_piece(
        &self,
        saving: &mut SnapshotWriter<Vec<u8>>,
        bytes: usize,
    ) -> Result<(Vec<u8>, bool), Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        let more =
            saving.write_some(&configured.store, bytes).map_err(Refusal::storage("write a snapshot"))?;
        Ok((std::mem::take(saving.sink()), more))
    }

    /// When a flush of the store last failed, in seconds since 1970; 0 if none ever did.
    pub fn last_failed_flush(&self) -> f64 {
        self.backend.last_failed_flush()
    }

    /// Where the store's files are, so that they can be flushed to disk without the shard.
    pub fn storage(&self) -> Option<Storage> {
        self.configured.as_ref().map(|configured| configured.store.storage().clone())
    }

    /// What the shard holds and has counted. The service adds the number of blocked writers.
    pub fn status(&self) -> ShardStatus {
        let id = self.backend.id().to_owned();
        let Some(Configured { store, allowance, finished, .. }) = &self.configured else {
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
            allowance: *allowance,
            writers_blocked: 0,
            counters: store.counters(),
            tables: store.tables().iter().map(table).collect(),
        }
    }

    fn create(&mut self, learner: &LearnerIdentity, spec: StoreSpec) -> Result<Configured, Refusal> {
        check_memory(&spec.options, self.memory_limit)?;
        let manifest = manifest(&learner.run, &spec, self.incarnation, learner.incarnation)?;
        let store = self.backend.create(manifest)?;
        Ok(Configured {
            run: learner.run.clone(),
            spec: Arc::new(spec),
            store,
            learner: learner.incarnation,
            allowance: 0,
            finished: false,
            ticket_key: None,
            recovered: Recovered::default(),
        })
    }

    /// Checks that a learner is of this run and that no newer one has replaced it. A shard without configuration returns
    /// `None` and does not record the learner, which may be of another run.
    fn check_learner(&self, learner: &LearnerIdentity) -> Result<Option<&Configured>, Refusal> {
        let Some(configured) = &self.configured else { return Ok(None) };
        configured.check_run(&learner.run)?;
        if learner.incarnation < configured.learner {
            return Err(Refusal::LearnerReplaced { given: learner.incarnation, newest: configured.learner });
        }
        Ok(Some(configured))
    }

    /// Makes a checked learner the newest, which replaces older ones. Call when the rest of its call is checked too.
    fn accept_learner(&mut self, learner: &LearnerIdentity) -> Result<&mut Configured, Refusal> {
        if self.configured.as_ref().is_some_and(|configured| learner.incarnation > configured.learner) {
            // A learner that calls after the end of the run continues it, unless its next grant says finished again.
            self.change(None, learner.incarnation, false)?;
        }
        self.configured.as_mut().ok_or(Refusal::NotConfigured)
    }

    /// Changes the options (if given), the newest learner, and whether the run has ended: all or nothing, and on disk
    /// before any of it is obeyed. Otherwise a full disk would refuse a learner whose retry is obeyed, and after a
    /// restart the older one would be.
    fn change(&mut self, options: Option<StoreOptions>, learner: u32, finished: bool) -> Result<(), Refusal> {
        let configured = self.configured.as_ref().ok_or(Refusal::NotConfigured)?;
        let before = configured.store.options().clone();
        let options = options.unwrap_or_else(|| before.clone());
        if (&options, learner, finished) == (&before, configured.learner, configured.finished) {
            return Ok(());
        }
        options.check()?;
        check_memory(&options, self.memory_limit)?;
        let spec = StoreSpec { options: options.clone(), ..(*configured.spec).clone() };
        let mut manifest = self.manifest(configured)?;
        manifest.options.clone_from(&options);
        (manifest.learner, manifest.finished) = (learner, finished);
        let configured = self.configured.as_mut().ok_or(Refusal::NotConfigured)?;
        grow(&mut configured.store, &options)?;
        if let Err(refusal) = self.backend.save_manifest(manifest) {
            shrink(&mut configured.store, &before)?;
            return Err(refusal);
        }
        apply(&mut configured.store, &options)?;
        (configured.spec, configured.learner, configured.finished) = (Arc::new(spec), learner, finished);
        Ok(())
    }

    fn manifest(&self, configured: &Configured) -> Result<StoreManifest, Refusal> {
        let mut manifest =
            manifest(&configured.run, &configured.spec, configured.store.incarnation(), configured.learner)?;
        manifest.finished = configured.finished;
        manifest.ticket_key.clone_from(&configured.ticket_key);
        Ok(manifest)
    }
}

impl Configured {
    fn check_run(&self, theirs: &str) -> Result<(), Refusal> {
        if self.run == theirs {
            return Ok(());
        }
        Err(Refusal::WrongRun { ours: self.run.clone(), theirs: theirs.to_owned() })
    }

    fn check_table(&self, table: usize) -> Result<(), Refusal> {
        let tables = self.store.tables().len();
        if table < tables { Ok(()) } else { Err(Refusal::NoSuchTable(format!("number {table}"))) }
    }

    fn table_index(&self, name: &str) -> Result<usize, Refusal> {
        let named = |table: &replay::Table| table.options().name == name;
        let known = if name.is_empty() { Some(0) } else { self.store.tables().iter().position(named) };
        known.ok_or_else(|| Refusal::NoSuchTable(format!("{name:?}")))
    }

    /// Sets the allowance. One for another incarnation is ignored, since it refers to other counters.
    fn set_allowance(&mut self, allowance: Option<Allowance>) {
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

    /// Appends an item to a batch without sampling it.
    fn push_item(&self, batch: &mut BatchBuilder, table: usize, key: ItemKey, frames: bool) {
        let Some(item) = self.store.item(table, key) else { return };
        // A valid batch has probabilities above 0, but the item may have weight 0.
        let probability = self.store.tables()[table].probability(key.slot).max(f64::MIN_POSITIVE);
        let (times_sampled, age_inserts) = (item.times_sampled(), item.age_inserts());
        batch.push(&Draw { key, probability, times_sampled, age_inserts }, &item, frames);
    }
}

#[cfg(test)]
mod tests;
