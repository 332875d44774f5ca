//! The interface of an algorithm and its data types.

use std::fmt;

use settings::Settings;
use settings::choices::Loss;
use tch::{Device, Kind, Reduction, Tensor};
use value::Rho;
use value::strategy::{PriorityInputs, Strategy};

use crate::network::QNetwork;
use crate::returns::Folded;

/// What an algorithm decides. An implementation holds the settings it needs and no other state.
pub trait Agent: fmt::Debug + Send + Sync {
    /// Settings of TD learning, which every agent has.
    fn learning(&self) -> &TdLearning;

    /// Numbers that the network's head outputs for each action.
    fn outputs_per_action(&self) -> i64 {
        1
    }

    /// Reads Q-values from the head's output: one row per state, one column per action.
    fn q_values(&self, output: Tensor) -> Tensor {
        output
    }

    /// Writes the probabilities of the actions in a state with these Q-values, before ε mixes random ones in.
    fn policy(&self, q: &[f64], probabilities: &mut [f64]);

    /// ε of the policy that a stochastic evaluation plays.
    fn evaluation_epsilon(&self) -> f64 {
        0.0
    }

    /// β of the softmax policy in the targets; `None` if there is none. The algorithm's entry declares which.
    fn temperature(&self) -> Option<f64>;

    /// Entropy of softmax(Q) in nats, one per row of Q-values: of the policy for soft-dqn, of the target policy for
    /// munchausen-dqn, at temperature 1 for dqn.
    fn entropy(&self, q: &Tensor) -> Tensor;

    /// Extra reward of step `index` of an n-step window, such as an entropy bonus. `log_probability` is log μ(a|s) of
    /// the behaviour policy. The returned value must already be multiplied by `weight` = γ^index.
    fn bonus(&self, _index: usize, _weight: f64, _log_probability: f64) -> f64 {
        0.0
    }

    /// Whether the targets depend on the inner steps of an n-step window, those after its first. Only then are their
    /// states decoded: [`TensorBatch::inner`].
    fn uses_inner_steps(&self) -> bool {
        false
    }

    /// Extra reward of an inner step's action, not yet multiplied by γᵏ, from the Q-values of its state. [`Agent::targets`]
    /// computes the same from [`TensorBatch::inner`].
    fn inner_bonus(&self, _q: &[f64], _action: usize) -> f64 {
        0.0
    }

    /// V(s) of a state to bootstrap from.
    fn value(&self, q: &[f64]) -> f64;

    /// TD target of Q(s,a) computed with a single network, used for a transition's initial priority. `folded` contains
    /// the bonuses of all steps ([`crate::Returns::fold_valued`]). `next_q` is `None` after a terminal step.
    fn target(&self, _q: &[f64], _action: usize, folded: Folded, next_q: Option<&[f64]>) -> f64 {
        folded.sum + folded.discount * next_q.map_or(0.0, |q| self.value(q))
    }

    /// The targets of a batch, f64, without a graph.
    fn targets(&self, networks: Networks<'_>, batch: &TensorBatch) -> Tensor;

    /// Loss, targets, TD errors and Q-values of a batch.
    fn pass(&self, networks: Networks<'_>, batch: &TensorBatch) -> Pass {
        let targets = tch::no_grad(|| self.targets(networks, batch));
        let q = self.q_values(networks.online.forward(&batch.states));
        let taken = batch.taken(&q);
        let errors = self.learning().loss(&taken, &targets.to_kind(Kind::Float));
        let loss = match &batch.weights {
            Some(weights) => (errors * weights.to_kind(Kind::Float)).mean(Kind::Float),
            None => errors.mean(Kind::Float),
        };
        tch::no_grad(|| {
            let td_errors = &targets - taken.detach().to_kind(Kind::Double);
            Pass { loss, targets, td_errors, q: q.detach().to_kind(Kind::Double) }
        })
    }

    /// The raw priority of an experience, before constant and exponent. `reliability` is what the shard reported of a stored item.
    fn priority(&self, q: &[f64], action: usize, td: f64, reliability: Option<f64>) -> f64 {
        let TdLearning { strategy, rho, .. } = *self.learning();
        let temperature = self.temperature();
        strategy.priority(&PriorityInputs { q, action, td, temperature, rho, reliability })
    }

    /// The new raw priorities of a batch that was just learned from.
    fn priorities(&self, pass: &Pass, batch: &TensorBatch) -> Vec<f64> {
        let (q, td_errors) = (numbers(&pass.q), numbers(&pass.td_errors));
        let actions = numbers(&batch.actions);
        let width = q.len() / actions.len().max(1);
        let rows = q.chunks_exact(width.max(1)).zip(actions).zip(td_errors).enumerate();
        rows.map(|(row, ((q, action), td))| {
            let reliability = batch.reliabilities.as_ref().map(|reliabilities| reliabilities[row]);
            self.priority(q, action as usize, td, reliability)
        })
        .collect()
    }

    /// Q-values of states given as bytes, row by row, for acting.
    fn q_rows(&self, network: &QNetwork, states: &[u8], count: usize) -> Vec<f64> {
        tch::no_grad(|| numbers(&self.q_values(network.forward(&network.states(states, count)))))
    }
}

/// Settings of TD learning that do not depend on the algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TdLearning {
    /// Whether the online network chooses the next policy and the target network values it.
    pub double: bool,
    /// The shape of the loss around zero error.
    pub loss: Loss,
    /// The strategy that computes priorities.
    pub strategy: Strategy,
    /// What ρ is, for strategies that use it.
    pub rho: Rho,
}

impl TdLearning {
    /// Copies the fields it needs from the settings.
    pub fn new(settings: &Settings) -> Self {
        Self { double: settings.double, loss: settings.loss, strategy: settings.strategy, rho: settings.rho }
    }

    /// One loss per transition.
    fn loss(&self, taken: &Tensor, targets: &Tensor) -> Tensor {
        match self.loss {
            Loss::Huber => taken.huber_loss(targets, Reduction::None, 1.0),
            Loss::Squared => (taken - targets).square() * 0.5,
        }
    }
}

/// The two networks of a learner.
#[derive(Clone, Copy, Debug)]
pub struct Networks<'a> {
    /// The network that learns and that actors follow.
    pub online: &'a QNetwork,
    /// The older copy that targets bootstrap from.
    pub target: &'a QNetwork,
}

/// Transitions as tensors on the networks' device.
#[derive(Debug)]
pub struct TensorBatch {
    /// States, as [`QNetwork::states`] makes them.
    pub states: Tensor,
    /// Actions taken, i64.
    pub actions: Tensor,
    /// n-step returns without the bootstrap, bonuses of the steps included; f64.
    pub returns: Tensor,
    /// What the next state's value is multiplied by: γᵏ, or 0 after an end; f64.
    pub discounts: Tensor,
    /// States after the n-step window.
    pub next_states: Tensor,
    /// The steps between, if the agent uses them ([`Agent::uses_inner_steps`]) and windows have more than one step.
    pub inner: Option<InnerSteps>,
    /// Importance weights, f64; `None` for all ones.
    pub weights: Option<Tensor>,
    /// What the shards reported of each transition, if the strategy asked for it.
    pub reliabilities: Option<Vec<f64>>,
}

/// The inner steps of a batch's windows: steps 1 to n − 1 of each, which have `n − 1` columns per row.
#[derive(Debug)]
pub struct InnerSteps {
    /// Their states, as [`QNetwork::states`] makes them: all of the first row, then all of the second. Zeros where a window
    /// ended earlier.
    pub states: Tensor,
    /// The actions taken in them, i64; row by row.
    pub actions: Tensor,
    /// γᵏ, and 0 where a window ended earlier, which masks the step; f64, row by row.
    pub weights: Tensor,
}

impl TensorBatch {
    /// Q(s,a) of the action taken, for each row of Q-values.
    pub fn taken(&self, values: &Tensor) -> Tensor {
        values.gather(1, &self.actions.unsqueeze(1), false).squeeze_dim(1)
    }
}

/// The result of one pass over a batch.
#[derive(Debug)]
pub struct Pass {
    /// The weighted mean loss, with its graph.
    pub loss: Tensor,
    /// Targets of Q(s,a), f64.
    pub targets: Tensor,
    /// TD errors, targets − Q(s,a); f64.
    pub td_errors: Tensor,
    /// Q-values of the states, detached, f64.
    pub q: Tensor,
}

/// The elements of a tensor in f64, row by row.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let tensor = tensor.to_device(Device::Cpu).to_kind(Kind::Double);
    let mut numbers = vec![0.0; tensor.numel()];
    tensor.copy_data(&mut numbers, tensor.numel());
    numbers
}
