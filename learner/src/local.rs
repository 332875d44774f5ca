//! A replay of one store in this process, used by lockstep, benchmarks and tests.

use anyhow::{Context, Result, bail};
use coordinator::rate::RateLimiter;
use envs::Spec;
use rand_chacha::ChaCha8Rng;
use replay::{Chunk, Draw, EpisodeErrors, ItemKey, ReplayStatus, Store};
use settings::Settings;
use settings::units::grouped;
use value::priority::Priority;

use crate::learner::Learner;
use crate::replay::{BatchAssembler, ItemId, Replay, Sampled};

/// A store with its rate limiter and the random generator that draws from it.
pub struct LocalReplay {
    store: Store,
    limiter: RateLimiter,
    assembler: BatchAssembler,
    /// Batches built so far, over the whole run.
    batches: u64,
    rng: ChaCha8Rng,
    settings: Settings,
}

impl LocalReplay {
    /// A replay on `store` for a learner. The settings must set samples per insert: nothing else paces a single thread.
    pub fn new(
        settings: &Settings,
        spec: &Spec,
        learner: &Learner,
        store: Store,
        rng: ChaCha8Rng,
    ) -> Result<Self> {
        let ratio = settings
            .samples_per_insert
            .0
            .context("lockstep needs samples per insert: set --samples-per-insert to a number")?;
        let limiter = RateLimiter::new(Some(ratio), settings.min_size.0, settings.batch_size as u64, None)?;
        let assembler = BatchAssembler::for_learner(settings, spec, learner);
        let batches = learner.updates();
        Ok(Self { store, limiter, assembler, batches, rng, settings: settings.clone() })
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The random generator that draws.
    pub fn rng(&self) -> &ChaCha8Rng {
        &self.rng
    }

    pub fn insert(&mut self, chunk: &Chunk) -> Result<()> {
        self.store.insert(chunk)?;
        Ok(())
    }

    /// Fails if `replay_bytes` can't hold `min_size` transitions: training would see only the newest few.
    pub fn check_room(&self) -> Result<()> {
        let (table, wanted) = (&self.store.tables()[0], self.settings.min_size.0);
        let held = table.len();
        let short = table.counters().inserts >= wanted && (held as u64) < wanted;
        if short || self.store.counters().items_without_frames > 0 {
            bail!(
                "replay_bytes holds {held} transitions and min_size is {wanted}: raise replay_bytes or lower min_size"
            );
        }
        Ok(())
    }

    /// The reliability of an item's target. `episodes` caches the batch's episodes, so that each is looked up once.
    fn reliability(store: &Store, episodes: &mut Vec<EpisodeErrors>, key: ItemKey) -> Result<f64> {
        let item = store
            .item(0, key)
            .context("internal error: a sampled transition is missing from the store; please report it")?;
        let (lane, first) = (item.lane(), item.first_step());
        if !episodes.iter().any(|episode| episode.holds(lane, first)) {
            episodes.extend(store.episode(0, key));
        }
        let episode = episodes.iter().find(|episode| episode.holds(lane, first));
        Ok(episode
            .context("internal error: the episode of a sampled transition is missing from the store; please report it")?
            .reliability(first))
    }

    fn draw(&mut self) -> Result<Vec<Draw>> {
        let Settings { batch_size, stratified, .. } = self.settings;
        Ok(self.store.sample(0, batch_size, stratified, &mut self.rng)?)
    }
}

impl Replay for LocalReplay {
    fn sample(&mut self) -> Result<Option<Sampled>> {
        let counters = self.store.table_counters();
        if !self.limiter.can_sample(counters.inserts, counters.samples) {
            return Ok(None);
        }
        let mut episodes = Vec::new();
        for draw in self.draw()? {
            let needed = self.settings.strategy.needs_reliability;
            let reliability =
                needed.then(|| Self::reliability(&self.store, &mut episodes, draw.key)).transpose()?;
            let item = self.store.item(0, draw.key).context(
                "internal error: a sampled transition is missing from the store; please report it",
            )?;
            self.assembler.add(0, draw, item.lead(), item.frames(), item.steps(), reliability)?;
        }
        self.batches += 1;
        Ok(Some(self.assembler.finish(self.batches - 1, |_| 1.0)))
    }

    fn update_priorities(&mut self, updates: Vec<(ItemId, Priority)>) {
        let updates: Vec<_> = updates.into_iter().map(|((_, key), priority)| (key, priority)).collect();
        self.store.update_priorities(0, &updates);
    }

    fn status(&self) -> ReplayStatus {
        let counters = self.store.table_counters();
        let filling = || format!("{} transitions before the first update", grouped(self.settings.min_size.0));
        ReplayStatus {
            shards: 1,
            items: self.store.tables()[0].len() as u64,
            bytes: self.store.bytes_used() as u64,
            agent_steps: self.store.counters().agent_steps,
            inserts: counters.inserts,
            samples: counters.samples,
            samples_per_insert: None,
            blocked_on: (counters.samples == 0).then(filling),
            reachable: vec![0],
        }
    }
}
