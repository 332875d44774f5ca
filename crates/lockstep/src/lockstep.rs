//! One thread of control: play a step, store it, and learn as often as the ratio says.
//!
//! Everything that decides the future is in [`Lockstep`], so that a checkpoint is one consistent cut (see
//! [`crate::cut`]) and the same seed gives the same weights, killed and resumed or not.

use actor::seed::{self, Purpose};
use actor::{EpisodeEnd, Player};
use anyhow::{Context, Result, bail};
use learner::importance::{self, Importance};
use learner::{Assembler, Learner, Update, setup};
use rand_chacha::ChaCha8Rng;
use replay::rate::RateLimiter;
use replay::{Store, WeightsVersion};
use run::Resolved;

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
        let architecture = setup::architecture(settings, &spec);
        let mut weights_rng = seed::generator(settings.seed, Purpose::Weights, &[]);
        let learner = Learner::new(settings, architecture, device, &mut weights_rng)?;
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
            turn.updates.push(self.update()?);
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

    fn update(&mut self) -> Result<(Update, f64)> {
        let settings = &self.resolved.settings;
        let draws = self.store.sample(0, settings.batch_size, settings.stratified, &mut self.sampling)?;
        for draw in &draws {
            let item = self.store.item(0, draw.key).context("a sampled transition is in the store")?;
            self.assembler.add(item.lead(), item.frames(), item.steps())?;
        }
        let weights = self.importance.exponent(self.learner.updates()).map(|exponent| {
            let probabilities: Vec<f64> = draws.iter().map(|draw| draw.probability).collect();
            importance::weights(&probabilities, exponent)
        });
        let mean_weight =
            weights.as_ref().map_or(1.0, |weights| weights.iter().sum::<f64>() / weights.len() as f64);
        let online = self.learner.online();
        let batch = self.assembler.finish(&online.architecture().input, online.device(), weights.as_deref());
        let update = self.learner.update(&batch, self.progress())?;
        let keys = draws.iter().map(|draw| draw.key);
        let updates: Vec<_> = keys.zip(update.priorities.iter().copied()).collect();
        self.store.update_priorities(0, &updates);
        Ok((update, mean_weight))
    }
}
