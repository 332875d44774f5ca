//! The interface of an algorithm and its data types.

use std::fmt;

use settings::Settings;
use settings::choices::Loss;
use tch::{Kind, Reduction, Tensor};
use value::Rho;
use value::strategy::{PriorityInputs, Strategy};

use crate::network::QNetwork;
use crate::read;
use crate::returns::Folded;
use crate::trace::Trace;

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

    /// Entropy of softmax(Q) in nats, from the Q-values of a state: of the policy for soft-dqn, of the target policy for
    /// munchausen-dqn, at temperature 1 for dqn.
    fn entropy(&self, q: &[f64]) -> f64;

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

    /// Whether the targets use the target network's Q-values of the states themselves, and not only of the next ones.
    fn uses_target_of_states(&self) -> bool {
        false
    }

    /// What the target network says of a batch. It stays right until that network changes, so it can be computed ahead of the
    /// update and on another thread.
    fn target_values(&self, target: &QNetwork, batch: &TensorBatch) -> TargetValues {
        let q = |states: &Tensor| self.q_values(target.forward(states));
        tch::no_grad(|| TargetValues {
            next: q(&batch.next_states),
            states: self.uses_target_of_states().then(|| q(&batch.states)),
            // With `double` these come from the online network, which changes with every update.
            inner: batch.inner.as_ref().filter(|_| !self.learning().double).map(|inner| q(&inner.states)),
        })
    }

    /// The targets of a batch, without a graph.
    fn targets(&self, online: &QNetwork, target: &TargetValues, batch: &TensorBatch) -> Tensor;

    /// Loss, targets, TD errors and Q-values of a batch.
    fn pass(&self, online: &QNetwork, target: &TargetValues, batch: &TensorBatch) -> Pass {
        let targets = tch::no_grad(|| self.targets(online, target, batch));
        let (output, trace) = online.forward_traced(&batch.states);
        let q = self.q_values(output);
        let taken = batch.taken(&q);
        let errors = self.learning().loss(&taken, &targets);
        let loss = match &batch.weights {
            Some(weights) => (errors * weights).mean(Kind::Float),
            None => errors.mean(Kind::Float),
        };
        let td_errors = tch::no_grad(|| &targets - taken.detach());
        Pass { loss, trace, targets, td_errors, q: q.detach() }
    }

    /// The raw priority of an experience, before constant and exponent. `reliability` is what the shard reported of a stored item.
    fn priority(&self, q: &[f64], action: usize, td: f64, reliability: Option<f64>) -> f64 {
        let TdLearning { strategy, rho, .. } = *self.learning();
        let temperature = self.temperature();
        strategy.priority(&PriorityInputs { q, action, td, temperature, rho, reliability })
    }

    /// The new raw priorities of a batch that was just learned from.
    fn priorities(&self, pass: &PassNumbers, reliabilities: Option<&[f64]>) -> Vec<f64> {
        let rows = pass.rows().zip(&pass.actions).zip(&pass.td_errors).enumerate();
        rows.map(|(row, ((q, &action), &td))| {
            self.priority(q, action, td, reliabilities.map(|reliabilities| reliabilities[row]))
        })
        .collect()
    }

    /// Q-values of states given as bytes, row by row, for acting.
    fn q_rows(&self, network: &QNetwork, states: &[u8], count: usize) -> Vec<f64> {
        tch::no_grad(|| read::numbers(&self.q_values(network.forward(&network.states(states, count)))))
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

/// What the target network says of a batch: Q-values, one row per state.
#[derive(Debug)]
pub struct TargetValues {
    /// Of the states after the windows.
    pub next: Tensor,
    /// Of the states themselves, if the agent uses them ([`Agent::uses_target_of_states`]).
    pub states: Option<Tensor>,
    /// Of the inner steps, if the agent uses them and takes them from the target network.
    pub inner: Option<Tensor>,
}

/// Target values and the version of the network that they are from.
#[derive(Debug)]
pub struct Ahead {
    pub version: u64,
    pub values: TargetValues,
}

/// Transitions as tensors on the networks' device.
#[derive(Debug)]
pub struct TensorBatch {
    /// States, as [`QNetwork::states`] makes them.
    pub states: Tensor,
    /// Actions taken, i64.
    pub actions: Tensor,
    /// n-step returns without the bootstrap, bonuses of the steps included.
    pub returns: Tensor,
    /// What the next state's value is multiplied by: γᵏ, or 0 after an end.
    pub discounts: Tensor,
    /// States after the n-step window.
    pub next_states: Tensor,
    /// The steps between, if the agent uses them ([`Agent::uses_inner_steps`]) and windows have more than one step.
    pub inner: Option<InnerSteps>,
    /// Importance weights; `None` for all ones.
    pub weights: Option<Tensor>,
    /// What the shards reported of each transition, if the strategy asked for it.
    pub reliabilities: Option<Vec<f64>>,
    /// What the target network said of the batch when it was prepared, if it was asked.
    pub ahead: Option<Ahead>,
}

/// The inner steps of a batch's windows: steps 1 to n − 1 of each, which have `n − 1` columns per row.
#[derive(Debug)]
pub struct InnerSteps {
    /// Their states, as [`QNetwork::states`] makes them: all of the first row, then all of the second. Zeros where a window
    /// ended earlier.
    pub states: Tensor,
    /// The actions taken in them, i64; row by row.
    pub actions: Tensor,
    /// γᵏ, and 0 where a window ended earlier, which masks the step; row by row.
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
    /// The weighted mean loss, with the graph of the output layers.
    pub loss: Tensor,
    /// Of the layers below.
    pub trace: Trace,
    /// Targets of Q(s,a).
    pub targets: Tensor,
    /// TD errors, targets − Q(s,a).
    pub td_errors: Tensor,
    /// Q-values of the states, detached.
    pub q: Tensor,
}

/// The numbers of a pass that the learner needs, read from the device at once.
#[derive(Clone, Debug)]
pub struct PassNumbers {
    pub loss: f64,
    /// The length of the gradient.
    pub gradient_norm: f64,
    pub td_errors: Vec<f64>,
    pub actions: Vec<usize>,
    /// Q-values, row by row.
    pub q: Vec<f64>,
}

impl PassNumbers {
    /// Reads the numbers of a pass over a batch.
    pub fn read(pass: &Pass, gradient_norm: &Tensor, batch: &TensorBatch) -> Self {
        let read = read::floats(&[&pass.loss, gradient_norm, &pass.td_errors, &batch.actions, &pass.q]);
        let mut numbers = read.into_iter().map(f64::from);
        let mut take = |count: usize| -> Vec<f64> { numbers.by_ref().take(count).collect() };
        let (scalars, count) = (take(2), batch.actions.numel());
        let td_errors = take(count);
        // An f32 holds every index of an action.
        let actions = take(count).into_iter().map(|action| action as usize).collect();
        Self { loss: scalars[0], gradient_norm: scalars[1], td_errors, actions, q: take(usize::MAX) }
    }

    /// The Q-values of each state.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.q.chunks_exact((self.q.len() / self.actions.len().max(1)).max(1))
    }

    /// Whether everything that priorities are computed from is finite.
    pub fn is_finite(&self) -> bool {
        self.td_errors.iter().chain(&self.q).all(|number| number.is_finite())
    }
}
