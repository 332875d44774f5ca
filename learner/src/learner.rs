//! The learner's networks, optimizer, and its gradient step.

use std::sync::Arc;

use agents::parameters::WeightsError;
use agents::{Adam, Agent, Architecture, Networks, Pass, QNetwork, TensorBatch};
use envs::Spec;
use rand::Rng;
use run::averages::UpdateMetrics;
use settings::Settings;
use settings::networks::Mismatch;
use tch::{Device, Kind};
use value::priority::Priority;

/// Agent, online and target network, optimizer, and the number of updates.
#[derive(Debug)]
pub struct Learner {
    agent: Arc<dyn Agent>,
    online: QNetwork,
    target: QNetwork,
    adam: Adam,
    updates: u64,
    /// Training episodes that ended.
    episodes: u64,
    target_period: TargetPeriod,
    learning_rate: f64,
    learning_rate_decay: f64,
    gradient_clamp: f64,
}

/// What triggers a copy of the online network to the target network.
#[derive(Clone, Copy, Debug)]
enum TargetPeriod {
    Updates(u64),
    Episodes(u64),
}

impl TargetPeriod {
    fn new(settings: &Settings) -> Self {
        match settings.target_period_episodes.0 {
            0 => Self::Updates(settings.target_period_updates.0),
            period => Self::Episodes(period),
        }
    }
}

/// The result of one update.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// New priorities, in the order of the batch's rows.
    pub priorities: Vec<Priority>,
    /// Means over the batch. The trainer fills in the importance weight, which only the replay knows.
    pub metrics: UpdateMetrics,
}

/// The loss, the gradient or a priority is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "training diverged at update {update}: {quantity} is not finite (loss {loss}, gradient norm {gradient_norm}); start a new \
     run with a lower learning_rate"
)]
pub struct Diverged {
    pub update: u64,
    /// What is not finite: `the loss`, `the gradient` or `a priority`.
    pub quantity: &'static str,
    pub loss: f64,
    pub gradient_norm: f64,
}

impl Learner {
    /// A learner with random initial weights, for the agent of the settings and an environment.
    pub fn new(
        settings: &Settings,
        spec: &Spec,
        device: Device,
        rng: &mut impl Rng,
    ) -> Result<Self, Mismatch> {
        let agent = agents::agent(settings);
        let architecture = Architecture::new(settings, &*agent, spec)?;
        let online = QNetwork::random(architecture, device, rng)?;
        let target = online.duplicate();
        let adam = Adam::new(online.parameters(), settings.adam_epsilon);
        Ok(Self {
            agent,
            online,
            target,
            adam,
            updates: 0,
            episodes: 0,
            target_period: TargetPeriod::new(settings),
            learning_rate: settings.learning_rate,
            learning_rate_decay: settings.learning_rate_decay,
            gradient_clamp: settings.gradient_clamp,
        })
    }

    pub fn agent(&self) -> &dyn Agent {
        &*self.agent
    }

    /// The network that is trained, and whose weights are published to the actors.
    pub fn online(&self) -> &QNetwork {
        &self.online
    }

    /// The older copy that targets bootstrap from.
    pub fn target(&self) -> &QNetwork {
        &self.target
    }

    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Training episodes that ended, as reported to [`Learner::end_episodes`].
    pub fn episodes(&self) -> u64 {
        self.episodes
    }

    /// Counts training episodes that ended. With a target period in episodes this copies the target network when one is due,
    /// once however many ended.
    pub fn end_episodes(&mut self, count: u64) {
        let before = self.episodes;
        self.episodes += count;
        if let TargetPeriod::Episodes(period) = self.target_period
            && self.episodes / period > before / period
        {
            self.copy_target();
        }
    }

    fn copy_target(&mut self) {
        self.target.parameters_mut().copy_from(self.online.parameters());
    }

    /// Targets, TD errors, Q-values and loss of the current networks on this batch, without a gradient step.
    ///
    /// Changes nothing and builds no autograd graph.
    pub fn evaluate_loss(&self, batch: &TensorBatch) -> Pass {
        tch::no_grad(|| self.agent.pass(self.networks(), batch))
    }

    fn networks(&self) -> Networks<'_> {
        Networks { online: &self.online, target: &self.target }
    }

    /// One gradient step. `progress`, the share of the run that is done, sets the learning rate.
    ///
    /// If the loss, the gradient or a priority is not finite, nothing changes and the run should end: the weights are
    /// still those of the last good update.
    pub fn update(&mut self, batch: &TensorBatch, progress: f64) -> Result<Update, Diverged> {
        let pass = self.agent.pass(self.networks(), batch);
        let loss = pass.loss.double_value(&[]);
        let gradient = self.online.parameters().gradient(&pass.loss);
        let squares = gradient.iter().map(|part| part.norm().double_value(&[]).powi(2));
        let gradient_norm = squares.sum::<f64>().sqrt();
        let diverged = |quantity| Diverged { update: self.updates, quantity, loss, gradient_norm };
        for (quantity, value) in [("the loss", loss), ("the gradient", gradient_norm)] {
            if !value.is_finite() {
                return Err(diverged(quantity));
            }
        }
        let priorities = self.agent.priorities(&pass, batch).into_iter().map(Priority::try_new);
        let priorities = priorities.collect::<Result<_, _>>().map_err(|_| diverged("a priority"))?;
        let learning_rate_factor = 1.0 - (1.0 - self.learning_rate_decay) * progress.clamp(0.0, 1.0);
        let clamp = (self.gradient_clamp > 0.0).then_some(self.gradient_clamp);
        self.adam.step(
            self.online.parameters_mut(),
            &gradient,
            clamp,
            self.learning_rate * learning_rate_factor,
        );
        self.updates += 1;
        if let TargetPeriod::Updates(period) = self.target_period
            && self.updates.is_multiple_of(period)
        {
            self.copy_target();
        }
        let metrics = UpdateMetrics {
            loss,
            td_error: pass.td_errors.abs().mean(Kind::Double).double_value(&[]),
            q: pass.q.mean(Kind::Double).double_value(&[]),
            entropy: self.agent.entropy(&pass.q).mean(Kind::Double).double_value(&[]),
            gradient_norm,
            importance_weight: 1.0,
        };
        Ok(Update { priorities, metrics })
    }

    /// The weights of online and target network and the optimizer's state, each as safetensors.
    pub fn save(&self) -> [Vec<u8>; 3] {
        [
            self.online.parameters().to_safetensors(),
            self.target.parameters().to_safetensors(),
            self.adam.to_safetensors(),
        ]
    }

    /// Loads a state saved by [`Learner::save`] and sets the counters of updates and training episodes.
    pub fn restore(
        &mut self,
        (updates, episodes): (u64, u64),
        [weights, target, optimizer]: [&[u8]; 3],
    ) -> Result<(), WeightsError> {
        self.online.load(weights)?;
        self.target.load(target)?;
        self.adam.load_safetensors(optimizer)?;
        (self.updates, self.episodes) = (updates, episodes);
        Ok(())
    }
}
