//! The learner's networks, optimizer, and its gradient step.

use std::sync::Arc;

use agents::parameters::WeightsError;
use agents::{
    Adam, Agent, Architecture, Helper, Pass, PassNumbers, QNetwork, TargetValues, TensorBatch, adam,
};
use envs::Spec;
use rand::Rng;
use run::averages::UpdateMetrics;
use settings::Settings;
use settings::networks::Mismatch;
use tch::{Device, Tensor};
use value::priority::Priority;

use crate::shared_target::SharedTarget;

/// Weights from which a helper pays. The operations of network `small` (0.7M) take 0.1 to 0.4 ms, about as long as waking a thread:
/// in a cluster on two cores it is 7% faster without. `nature` has 1.7M and is half as fast again with it.
const HELPER_WEIGHTS_MIN: usize = 1_000_000;

/// Agent, online and target network, optimizer, and the number of updates.
#[derive(Debug)]
pub struct Learner {
    agent: Arc<dyn Agent>,
    online: QNetwork,
    target: QNetwork,
    shared_target: SharedTarget,
    /// Computes a part of the gradient.
    helper: Option<Helper>,
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
            shared_target: SharedTarget::new(agent.clone(), &target),
            helper: None,
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

    /// The same learner with a second thread for its gradients, if that pays. It learns the same but for the last digits: MKL rounds
    /// by how memory is aligned. On a GPU, and without convolutions, it would gain nothing.
    pub fn with_helper(mut self) -> std::io::Result<Self> {
        let has_convolutions = !self.online.architecture().network.convolutions.is_empty();
        let is_large = self.online.parameters().flat().numel() >= HELPER_WEIGHTS_MIN;
        if self.online.device() == Device::Cpu && has_convolutions && is_large {
            self.helper = Some(Helper::start()?);
        }
        Ok(self)
    }

    /// The target network for threads that prepare batches.
    pub fn shared_target(&self) -> SharedTarget {
        self.shared_target.clone()
    }

    fn copy_target(&mut self) {
        // A new network: other threads may still compute with the old one.
        self.target = self.online.duplicate();
        self.shared_target.replace(&self.target);
    }

    /// Targets, TD errors, Q-values and loss of the current networks on this batch, without a gradient step.
    ///
    /// Changes nothing and builds no autograd graph.
    pub fn evaluate_loss(&self, batch: &TensorBatch) -> Pass {
        tch::no_grad(|| self.pass(batch))
    }

    fn pass(&self, batch: &TensorBatch) -> Pass {
        let computed: TargetValues;
        let target = match &batch.ahead {
            // Exact: the target network has not changed since.
            Some(ahead) if ahead.version == self.shared_target.version() => &ahead.values,
            _ => {
                computed = self.agent.target_values(&self.target, batch);
                &computed
            }
        };
        self.agent.pass(&self.online, target, batch)
    }

    /// One gradient step. `progress`, the share of the run that is done, sets the learning rate.
    ///
    /// If the loss, the gradient or a priority is not finite, nothing changes and the run should end: the weights are
    /// still those of the last good update.
    pub fn update(&mut self, batch: &TensorBatch, progress: f64) -> Result<Update, Diverged> {
        let pass = self.pass(batch);
        let gradient = self.online.gradient(&pass.loss, &pass.trace, self.helper.as_ref());
        let norm = adam::norm(&gradient);
        let (on_device, steps) = (self.online.device() != Device::Cpu, self.adam.step_count());
        if on_device {
            // Queued before the host knows whether the numbers are finite, so that it waits once: for the read below.
            self.step(&gradient, progress, Some(&finite(&pass, &norm)));
        }
        let numbers = PassNumbers::read(&pass, &norm, batch);
        let priorities = self.checked_priorities(&numbers, batch);
        let priorities = priorities.inspect_err(|_| self.adam.set_step_count(steps))?;
        if !on_device {
            self.step(&gradient, progress, None);
        }
        self.updates += 1;
        if let TargetPeriod::Updates(period) = self.target_period
            && self.updates.is_multiple_of(period)
        {
            self.copy_target();
        }
        Ok(Update { priorities, metrics: self.metrics(&numbers) })
    }

    /// Applies a gradient; on a GPU only if `finite` is true there.
    fn step(&mut self, gradient: &[Tensor], progress: f64, finite: Option<&Tensor>) {
        let factor = 1.0 - (1.0 - self.learning_rate_decay) * progress.clamp(0.0, 1.0);
        let learning_rate = self.learning_rate * factor;
        let clamp = (self.gradient_clamp > 0.0).then_some(self.gradient_clamp);
        self.adam.step(self.online.parameters_mut(), gradient, clamp, learning_rate, finite);
    }

    /// The new priorities, if everything that the update computed is finite.
    fn checked_priorities(
        &self,
        numbers: &PassNumbers,
        batch: &TensorBatch,
    ) -> Result<Vec<Priority>, Diverged> {
        let PassNumbers { loss, gradient_norm, .. } = *numbers;
        let diverged = |quantity| Diverged { update: self.updates, quantity, loss, gradient_norm };
        for (quantity, is_finite) in [
            ("the loss", loss.is_finite()),
            ("the gradient", gradient_norm.is_finite()),
            ("a priority", numbers.is_finite()),
        ] {
            if !is_finite {
                return Err(diverged(quantity));
            }
        }
        let priorities = self.agent.priorities(numbers, batch.reliabilities.as_deref());
        let priorities = priorities.into_iter().map(Priority::try_new).collect::<Result<_, _>>();
        priorities.map_err(|_| diverged("a priority"))
    }

    fn metrics(&self, numbers: &PassNumbers) -> UpdateMetrics {
        let mean = |values: &mut dyn Iterator<Item = f64>, count: usize| values.sum::<f64>() / count as f64;
        let rows = numbers.actions.len();
        UpdateMetrics {
            loss: numbers.loss,
            td_error: mean(&mut numbers.td_errors.iter().map(|error| error.abs()), rows),
            q: mean(&mut numbers.q.iter().copied(), numbers.q.len()),
            entropy: mean(&mut numbers.rows().map(|q| self.agent.entropy(q)), rows),
            gradient_norm: numbers.gradient_norm,
            importance_weight: 1.0,
        }
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
        self.shared_target.replace(&self.target);
        self.adam.load_safetensors(optimizer)?;
        (self.updates, self.episodes) = (updates, episodes);
        Ok(())
    }
}

/// Whether everything that an update computed is finite, as a boolean tensor on its device.
fn finite(pass: &Pass, norm: &Tensor) -> Tensor {
    let numbers = [&pass.loss.detach(), norm, &pass.td_errors, &pass.q].map(|tensor| tensor.reshape([-1]));
    Tensor::cat(&numbers, 0).isfinite().all()
}
