//! What the learner minimises, and the priorities that come out of the same pass.

use tch::{Kind, Reduction, Tensor};
use value::priority::{Rho, Strategy};

use crate::network::QNetwork;
use crate::soft;

/// Which Bellman target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Soft value of the next state at a temperature.
    Soft {
        /// β.
        temperature: f64,
    },
    /// Largest value of the next state.
    Hard,
}

/// The shape of the loss around zero error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Quadratic to 1, then linear.
    Huber,
    /// Half the square.
    Squared,
}

/// All choices that decide loss and priorities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Which Bellman target.
    pub target: Target,
    /// Whether the online network chooses the next policy.
    pub double: bool,
    /// The shape of the loss.
    pub shape: Shape,
    /// Which priorities.
    pub strategy: Strategy,
    /// What ρ is, for `ver`.
    pub rho: Rho,
}

/// Transitions as tensors on the networks' device.
#[derive(Debug)]
pub struct Batch {
    /// States, as [`QNetwork::states`] makes them.
    pub states: Tensor,
    /// Actions taken, i64.
    pub actions: Tensor,
    /// n-step returns without the bootstrap, entropy bonus of the steps between included; f64.
    pub returns: Tensor,
    /// What the next state's value is multiplied by: γᵏ, or 0 after an end; f64.
    pub discounts: Tensor,
    /// States after the n-step window.
    pub next_states: Tensor,
    /// Importance weights, f64; `None` for all ones.
    pub weights: Option<Tensor>,
    /// What priorities are multiplied by, f64: for `reaper`, how much of the episode's error is resolved behind each.
    pub reliabilities: Option<Tensor>,
}

/// What one pass gives.
#[derive(Debug)]
pub struct Pass {
    /// The weighted mean loss, with its graph.
    pub loss: Tensor,
    /// What Q(s,a) should have been: returns + discounts·V(next), f64.
    pub targets: Tensor,
    /// TD errors, targets − Q(s,a); f64.
    pub td_errors: Tensor,
    /// New priorities before constant and exponent, f64.
    pub priorities: Tensor,
    /// Q-values of the states, detached, f64.
    pub q: Tensor,
}

impl Objective {
    /// Loss, TD errors and priorities of a batch.
    pub fn pass(&self, online: &QNetwork, target: &QNetwork, batch: &Batch) -> Pass {
        let targets =
            tch::no_grad(|| &batch.returns + &batch.discounts * self.next_value(online, target, batch));
        let q = online.forward(&batch.states);
        let taken = q.gather(1, &batch.actions.unsqueeze(1), false).squeeze_dim(1);
        let errors = match self.shape {
            Shape::Huber => taken.huber_loss(&targets.to_kind(Kind::Float), Reduction::None, 1.0),
            Shape::Squared => (&taken - targets.to_kind(Kind::Float)).square() * 0.5,
        };
        let loss = match &batch.weights {
            Some(weights) => (errors * weights.to_kind(Kind::Float)).mean(Kind::Float),
            None => errors.mean(Kind::Float),
        };
        tch::no_grad(|| {
            let q = q.detach().to_kind(Kind::Double);
            let td_errors = &targets - taken.detach().to_kind(Kind::Double);
            let kind = (self.strategy, self.rho);
            let temperature = self.temperature();
            let priorities = soft::priorities(kind, &q, &batch.actions, &td_errors, temperature);
            let priorities = match &batch.reliabilities {
                Some(reliabilities) => priorities * reliabilities,
                None => priorities,
            };
            Pass { loss, targets, td_errors, priorities, q }
        })
    }

    /// The temperature of the policy; plain DQN has none, and `ver` is refused for it long before.
    pub fn temperature(&self) -> f64 {
        match self.target {
            Target::Soft { temperature } => temperature,
            Target::Hard => 1.0,
        }
    }

    fn next_value(&self, online: &QNetwork, target: &QNetwork, batch: &Batch) -> Tensor {
        let of_target = target.forward(&batch.next_states);
        let of_online = self.double.then(|| online.forward(&batch.next_states));
        match (self.target, of_online) {
            (Target::Soft { temperature }, None) => soft::value(&of_target, temperature),
            (Target::Soft { temperature }, Some(online)) => {
                soft::double_value(&online, &of_target, temperature)
            }
            (Target::Hard, None) => of_target.amax([1], false).to_kind(Kind::Double),
            (Target::Hard, Some(online)) => {
                let best = online.argmax(1, true);
                of_target.gather(1, &best, false).squeeze_dim(1).to_kind(Kind::Double)
            }
        }
    }
}
