//! Soft Q-learning on tensors: the formulas of `value::soft` on rows of Q-values.
//!
//! In f32, as the Q-values come out of the network: kernels in f64 are slow on a GPU, and the formulas lose no more than the last
//! digits of Q. Every log-sum-exp is libtorch's, which shifts by the maximum.

use settings::Settings;
use settings::choices::NStepEntropy;
use tch::{Kind, Tensor};

use crate::agent::{Agent, TargetValues, TensorBatch};
use crate::network::QNetwork;

/// V(s) = β·log Σ exp(Q/β), one per row.
pub fn value(q: &Tensor, temperature: f64) -> Tensor {
    (q / temperature).logsumexp([1], false) * temperature
}

/// log π(·|s), row by row.
pub fn log_policy(q: &Tensor, temperature: f64) -> Tensor {
    (q / temperature).log_softmax(1, Kind::Float)
}

/// Double soft value: Σ π_online·(Q_target − β·log π_online), one per row.
pub fn double_value(online: &Tensor, target: &Tensor, temperature: f64) -> Tensor {
    let log_policy = log_policy(online, temperature);
    let inner = target - &log_policy * temperature;
    (log_policy.exp() * inner).sum_dim_intlist([1].as_slice(), false, Kind::Float)
}

/// The clip of the inner steps' entropies, if windows have inner steps and their entropies are those of the policy in the
/// target.
pub(crate) fn inner_floor(settings: &Settings) -> Option<f64> {
    let is_target = settings.n_step_entropy == NStepEntropy::Target;
    (is_target && settings.n_step > 1).then_some(settings.n_step_entropy_floor)
}

/// max(floor, min(0, x)) of β·log π, as `value::soft::clipped_log_policy` has it.
pub(crate) fn clipped(log_policy: &Tensor, temperature: f64, floor: f64) -> Tensor {
    (log_policy * temperature).clamp(floor, 0.0)
}

/// Σ γᵏ·`bonus`(log π(a_k|s_k)) over the inner steps of each window, one per row; `None` without inner steps.
///
/// π is the policy that [`next_value`] values: of the target network, or with `double` of the online network.
pub(crate) fn inner_bonuses(
    agent: &dyn Agent,
    online: &QNetwork,
    target: &TargetValues,
    batch: &TensorBatch,
    temperature: f64,
    bonus: impl FnOnce(Tensor) -> Tensor,
) -> Option<Tensor> {
    let inner = batch.inner.as_ref()?;
    let q = match &target.inner {
        Some(q) => q.shallow_clone(),
        None => agent.q_values(online.forward(&inner.states)),
    };
    let log_policy = log_policy(&q, temperature).gather(1, &inner.actions.view([-1, 1]), false);
    let bonuses = bonus(log_policy).view_as(&inner.weights) * &inner.weights;
    Some(bonuses.sum_dim_intlist([1].as_slice(), false, Kind::Float))
}

/// V(s′) of the target network, or with `double` by the online network's policy.
pub(crate) fn next_value(
    agent: &dyn Agent,
    online: &QNetwork,
    target: &TargetValues,
    batch: &TensorBatch,
    temperature: f64,
) -> Tensor {
    if agent.learning().double {
        let of_online = agent.q_values(online.forward(&batch.next_states));
        double_value(&of_online, &target.next, temperature)
    } else {
        value(&target.next, temperature)
    }
}
