//! One thread of control: play a step, store it, and train as often as samples per insert allow.
//!
//! The trainer is the learner's, on a store in this process. [`Lockstep`] holds all state that determines the rest of a
//! run. So a checkpoint is one consistent cut, and the same seed gives the same weights, whether or not a run was
//! killed and resumed.

use std::io;

use actor::seed::{self, Purpose};
use actor::{EpisodeEnd, Lanes};
use anyhow::{Context, Result};
use coordinator::store_options;
use envs::Spec;
use learner::checkpoint::{self, LockstepState, RunState};
use learner::{Learner, LocalReplay, Trainer, UpdateObserver};
use replay::{Store, WeightsVersion};
use run::averages::UpdateMetrics;
use run::checkpoint::{Checkpoint, CheckpointWriter};
use settings::Resolved;

/// The file of a checkpoint with the replay.
const REPLAY: &str = "replay.bin";

/// A run in memory.
pub struct Lockstep {
    pub resolved: Resolved,
    /// Networks, optimizer and replay.
    pub trainer: Trainer<LocalReplay>,
    pub player: Lanes,
    /// Emulator frames so far.
    pub frames: u64,
    /// Agent steps so far.
    pub agent_steps: u64,
    spec: Spec,
}

/// The result of one turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// Games that ended in this turn.
    pub episodes: Vec<EpisodeEnd>,
    /// Metrics of each update.
    pub updates: Vec<UpdateMetrics>,
}

impl Lockstep {
    pub fn new(resolved: Resolved) -> Result<Self> {
        let settings = &resolved.settings;
        let device = agents::device::open(settings.device)?;
        let spec = envs::make(&resolved.game, &settings.environment(), 0)?.spec().clone();
        let mut weights_rng = seed::generator(settings.seed, Purpose::Weights, &[]);
        let learner = Learner::new(settings, &spec, device, &mut weights_rng)?;
        let sampling = seed::generator(settings.seed, Purpose::Sampling, &[]);
        let store = Store::new(store_options(settings, &spec), 0)?;
        let replay = LocalReplay::new(settings, &spec, &learner, store, sampling)?;
        let player = Lanes::new(&resolved, 0, 0, 0, 1)?;
        Ok(Self { resolved, trainer: Trainer { learner, replay }, player, frames: 0, agent_steps: 0, spec })
    }

    /// Updates made so far.
    pub fn updates(&self) -> u64 {
        self.trainer.learner.updates()
    }

    /// The version of the weights that choose the next actions.
    pub fn weights_version(&self) -> WeightsVersion {
        WeightsVersion { incarnation: 0, number: self.updates() }
    }

    /// One agent step in every lane, then all updates that are due.
    pub fn turn(&mut self) -> Result<Turn> {
        self.turn_watched(&mut ())
    }

    /// A turn whose updates `observer` observes.
    pub fn turn_watched(&mut self, observer: &mut dyn UpdateObserver) -> Result<Turn> {
        let weights = self.weights_version();
        let online = self.trainer.learner.online();
        let played = self.player.step(online, weights, self.agent_steps, |_| true)?;
        self.frames += played.frames;
        self.agent_steps += played.agent_steps;
        for chunk in played.chunks {
            self.trainer.replay.insert(&chunk)?;
        }
        self.trainer.replay.check_room()?;
        let mut turn = Turn { episodes: played.episodes, updates: Vec::new() };
        while let Some(metrics) = self.trainer.step(self.progress(), observer)? {
            turn.updates.push(metrics);
        }
        // The updates of an episode's last step come before the copy that its end may cause.
        self.trainer.learner.end_episodes(turn.episodes.len() as u64);
        Ok(turn)
    }

    /// The share of the run that is done.
    pub fn progress(&self) -> f64 {
        self.frames as f64 / self.resolved.settings.frames.0 as f64
    }

    /// Writes everything that the run needs to resume.
    pub fn save(&self, state: &RunState, writer: &mut CheckpointWriter) -> io::Result<()> {
        let lanes = self.player.save().map_err(io::Error::other)?;
        let sampling = self.trainer.replay.rng().clone();
        let state = RunState { lockstep: Some(LockstepState { sampling, lanes }), ..state.clone() };
        checkpoint::save(&self.trainer.learner, &state, writer)?;
        writer.file(REPLAY, |mut out| self.trainer.replay.store().save(&mut out))
    }

    /// Restores a new run of the same settings to a checkpoint.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<RunState> {
        let mut state = checkpoint::restore(&mut self.trainer.learner, checkpoint)?;
        let LockstepState { sampling, lanes } = state.lockstep.take().context(
            "a cluster wrote this checkpoint: resume the run without --lockstep, or start another run",
        )?;
        self.player.restore(&lanes).map_err(|error| checkpoint.invalid(error))?;
        let options = self.trainer.replay.store().options().clone();
        let store = Store::load(options, 0, &mut checkpoint.reader(REPLAY)?)
            .map_err(|error| checkpoint.invalid(error))?;
        let (settings, learner) = (&self.resolved.settings, &self.trainer.learner);
        self.trainer.replay = LocalReplay::new(settings, &self.spec, learner, store, sampling)?;
        (self.frames, self.agent_steps) = (state.frames, state.agent_steps);
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::TensorBatch;
    use learner::Learner;
    use settings::Layers;

    #[derive(Default)]
    struct Recorder {
        before: Vec<u64>,
        after: Vec<u64>,
        losses: Vec<f64>,
    }

    impl UpdateObserver for Recorder {
        fn before(&mut self, learner: &Learner, batch: &TensorBatch) {
            self.before.push(learner.updates());
            self.losses.extend(agents::read::numbers(&learner.evaluate_loss(batch).loss));
        }

        fn after(&mut self, learner: &Learner, _batch: &TensorBatch) {
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
    fn a_watched_run_is_the_same_and_every_update_is_observed() {
        let (mut alone, mut watched, mut recorder) = (start(), start(), Recorder::default());
        let mut losses = Vec::new();
        for _ in 0..400 {
            losses.extend(alone.turn().unwrap().updates.iter().map(|metrics| metrics.loss));
            watched.turn_watched(&mut recorder).unwrap();
        }
        assert_eq!(alone.trainer.learner.save(), watched.trainer.learner.save());
        assert!(losses.len() > 250);
        assert_eq!(recorder.losses, losses, "the examined batch is the one that is trained on");
        let updates = losses.len() as u64;
        assert_eq!(recorder.before, (0..updates).collect::<Vec<_>>());
        assert_eq!(recorder.after, (1..=updates).collect::<Vec<_>>());
    }
}
