//! One thread of control: play a step, store it, and learn as often as the ratio says.
//!
//! Everything that decides the future is in [`Lockstep`], so that a checkpoint is one consistent cut (see
//! `cut`) and the same seed gives the same weights, killed and resumed or not.

use actor::seed::{self, Purpose};
use actor::{EpisodeEnd, Player};
use agents::Batch;
use anyhow::{Context, Result, bail};
use learner::importance::{self, Importance};
use learner::{Assembler, Learner, Update, setup};
use rand_chacha::ChaCha8Rng;
use replay::rate::RateLimiter;
use replay::{Episode, Store, WeightsVersion};
use settings::Resolved;

/// A run in memory.
pub struct Lockstep {
    /// Its settings.
    pub resolved: Resolved,
    /// Networks and optimiser.
    pub learner: Learner,
    /// Environments.
    pub player: Player,
    /// Experience.
    pub store: Store,
    /// Emulator frames so far.
    pub frames: u64,
    /// Decisions so far.
    pub agent_steps: u64,
    /// Draws batches.
    pub sampling: ChaCha8Rng,
    limiter: RateLimiter,
    importance: Importance,
    assembler: Assembler,
}

/// Looks on at updates as they are made. What it sees it can not change, so a run is the same watched or not.
pub trait Watch {
    /// Just before a gradient step: the networks it starts from and the batch it learns from.
    fn before(&mut self, _learner: &Learner, _batch: &Batch) {}

    /// Just after the same step.
    fn after(&mut self, _learner: &Learner, _batch: &Batch) {}
}

/// Nobody looks.
impl Watch for () {}

/// What one turn gave.
#[derive(Debug, Default)]
pub struct Turn {
    /// Games that ended.
    pub episodes: Vec<EpisodeEnd>,
    /// Updates made, each with the mean of its importance weights.
    pub updates: Vec<(Update, f64)>,
}

impl Lockstep {
    /// A run at its start.
    pub fn new(resolved: Resolved) -> Result<Self> {
        let settings = &resolved.settings;
        let device = setup::device(settings.device)?;
        let options = settings.environment();
        let spec = envs::make(&resolved.game, &options, 0)?.spec().clone();
        let mut weights_rng = seed::generator(settings.seed, Purpose::Weights, &[]);
        let learner = Learner::new(settings, &spec, device, &mut weights_rng)?;
        let ratio = settings
            .samples_per_insert
            .0
            .context("lockstep needs a ratio of samples to inserts: give --samples-per-insert a number")?;
        let limiter = RateLimiter::new(Some(ratio), settings.min_size.0, settings.batch_size as u64, None)?;
        Ok(Self {
            player: Player::new(&resolved, 0, 0, 1)?,
            store: Store::new(setup::store(settings, &spec), 0)?,
            frames: 0,
            agent_steps: 0,
            sampling: seed::generator(settings.seed, Purpose::Sampling, &[]),
            limiter,
            importance: Importance::new(settings),
            assembler: Assembler::new(settings, spec.observation.bytes()),
            learner,
            resolved,
        })
    }

    /// The version of the weights that act now.
    pub fn weights_version(&self) -> WeightsVersion {
        WeightsVersion { incarnation: 0, number: self.learner.updates() }
    }

    /// One decision in every lane, then all the updates that are due.
    pub fn turn(&mut self) -> Result<Turn> {
        self.turn_watched(&mut ())
    }

    /// A turn with someone looking on at its updates.
    pub fn turn_watched(&mut self, watch: &mut dyn Watch) -> Result<Turn> {
        let weights = self.weights_version();
        let played = self.player.step(self.learner.online(), weights, self.agent_steps, |_| true)?;
        self.frames += played.frames;
        self.agent_steps += played.agent_steps;
        for chunk in played.chunks {
            self.store.insert(&chunk)?;
        }
        self.check_room()?;
        let mut turn = Turn { episodes: played.episodes, updates: Vec::new() };
        while self.update_is_due() {
            turn.updates.push(self.update(watch)?);
        }
        Ok(turn)
    }

    /// The share of the run that is done.
    pub fn progress(&self) -> f64 {
        self.frames as f64 / self.resolved.settings.frames.0 as f64
    }

    /// Frames that do not fit take their transitions along; a replay that can't hold `min_size` would train on few.
    fn check_room(&self) -> Result<()> {
        let (table, wanted) = (&self.store.tables()[0], self.resolved.settings.min_size.0);
        let held = table.len();
        let short = table.counters().inserts >= wanted && (held as u64) < wanted;
        if short || self.store.counters().items_without_frames > 0 {
            bail!(
                "replay_bytes holds {held} transitions and min_size is {wanted}: raise replay_bytes or lower min_size"
            );
        }
        Ok(())
    }

    fn update_is_due(&self) -> bool {
        let counters = self.store.table_counters();
        self.limiter.can_sample(counters.inserts, counters.samples)
    }

    fn update(&mut self, watch: &mut dyn Watch) -> Result<(Update, f64)> {
        let settings = &self.resolved.settings;
        let draws = self.store.sample(0, settings.batch_size, settings.stratified, &mut self.sampling)?;
        let mut episodes: Vec<Episode> = Vec::new();
        for draw in &draws {
            let item = self.store.item(0, draw.key).context("a sampled transition is in the store")?;
            self.assembler.add(item.lead(), item.frames(), item.steps())?;
            if settings.strategy.needs_reliability {
                let (lane, first) = (item.lane(), item.first_step());
                if !episodes.iter().any(|episode| episode.holds(lane, first)) {
                    episodes.extend(self.store.episode(0, draw.key));
                }
                let episode = episodes.iter().find(|episode| episode.holds(lane, first));
                self.assembler.rely(episode.context("it was there a moment ago")?.reliability(first));
            }
        }
        let weights = self.importance.exponent(self.learner.updates()).map(|exponent| {
            let probabilities: Vec<f64> = draws.iter().map(|draw| draw.probability).collect();
            importance::weights(&probabilities, exponent)
        });
        let mean_weight =
            weights.as_ref().map_or(1.0, |weights| weights.iter().sum::<f64>() / weights.len() as f64);
        let online = self.learner.online();
        let batch = self.assembler.finish(&online.architecture().input, online.device(), weights.as_deref());
        watch.before(&self.learner, &batch);
        let update = self.learner.update(&batch, self.progress())?;
        watch.after(&self.learner, &batch);
        let keys = draws.iter().map(|draw| draw.key);
        let updates: Vec<_> = keys.zip(update.priorities.iter().copied()).collect();
        self.store.update_priorities(0, &updates);
        Ok((update, mean_weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    #[derive(Default)]
    struct Looker {
        before: Vec<u64>,
        after: Vec<u64>,
        losses: Vec<f64>,
    }

    impl Watch for Looker {
        fn before(&mut self, learner: &Learner, batch: &Batch) {
            self.before.push(learner.updates());
            self.losses.push(learner.examine(batch).loss.double_value(&[]));
        }

        fn after(&mut self, learner: &Learner, _batch: &Batch) {
            self.after.push(learner.updates());
        }
    }

    fn start() -> Lockstep {
        tch::set_num_threads(1);
        let small =
            [("lockstep", "true"), ("device", "cpu"), ("batch_size", "16"), ("samples_per_insert", "16")];
        let short = [("frames", "400"), ("min_size", "100"), ("target_period_updates", "50")];
        let flags = small.iter().chain(&short).map(|(key, text)| ((*key).into(), (*text).into())).collect();
        Lockstep::new(Layers { flags, ..Layers::default() }.resolve(Some("cartpole")).unwrap()).unwrap()
    }

    #[test]
    fn a_watched_run_is_the_same_and_every_update_is_seen() {
        let (mut alone, mut watched, mut looker) = (start(), start(), Looker::default());
        let mut losses = Vec::new();
        for _ in 0..400 {
            losses.extend(alone.turn().unwrap().updates.iter().map(|(update, _)| update.loss));
            watched.turn_watched(&mut looker).unwrap();
        }
        assert_eq!(alone.learner.save(), watched.learner.save());
        assert!(losses.len() > 250);
        assert_eq!(looker.losses, losses, "what is examined is what is learned from");
        let updates = losses.len() as u64;
        assert_eq!(looker.before, (0..updates).collect::<Vec<_>>());
        assert_eq!(looker.after, (1..=updates).collect::<Vec<_>>());
    }
}
