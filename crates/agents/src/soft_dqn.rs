//! Soft DQN, the paper's: V(s) = β·log Σ exp(Q(s,a)/β), π = softmax(Q/β).

use settings::Settings;
use tch::Tensor;

use crate::agent::{Agent, TargetValues, TdLearning, TensorBatch};
use crate::network::QNetwork;
use crate::soft;

#[derive(Debug)]
struct SoftDqn {
    learning: TdLearning,
    temperature: f64,
    /// The clip of the inner steps' entropies, if they are those of the policy in the target.
    inner_floor: Option<f64>,
}

pub(crate) fn make(settings: &Settings) -> Box<dyn Agent> {
    Box::new(SoftDqn {
        learning: TdLearning::new(settings),
        temperature: settings.temperature,
        inner_floor: soft::inner_floor(settings),
    })
}

impl Agent for SoftDqn {
    fn learning(&self) -> &TdLearning {
        &self.learning
    }

    fn policy(&self, q: &[f64], probabilities: &mut [f64]) {
        value::soft::policy(q, self.temperature, probabilities);
    }

    fn temperature(&self) -> Option<f64> {
        Some(self.temperature)
    }

    fn entropy(&self, q: &[f64]) -> f64 {
        value::soft::entropy(q, self.temperature)
    }

    /// −β·γᵏ·log μ(a_k|s_k) for k ≥ 1. The first action is given, so that its entropy is not part of Q(s,a).
    fn bonus(&self, index: usize, weight: f64, log_probability: f64) -> f64 {
        if index == 0 || self.inner_floor.is_some() {
            return 0.0;
        }
        -(weight * self.temperature * log_probability)
    }

    fn uses_inner_steps(&self) -> bool {
        self.inner_floor.is_some()
    }

    /// −clip(β·log π(a|s)): V(s) = Q(s,a) − β·log π(a|s) holds for every action, so no matter which policy chose it.
    fn inner_bonus(&self, q: &[f64], action: usize) -> f64 {
        self.inner_floor
            .map_or(0.0, |floor| -value::soft::clipped_log_policy(q, self.temperature, action, floor))
    }

    fn value(&self, q: &[f64]) -> f64 {
        value::soft::value(q, self.temperature)
    }

    fn targets(&self, online: &QNetwork, target: &TargetValues, batch: &TensorBatch) -> Tensor {
        let value = soft::next_value(self, online, target, batch, self.temperature);
        let targets = &batch.returns + &batch.discounts * value;
        let Some(floor) = self.inner_floor else { return targets };
        let entropy = |log_policy: Tensor| -soft::clipped(&log_policy, self.temperature, floor);
        match soft::inner_bonuses(self, online, target, batch, self.temperature, entropy) {
            Some(entropies) => targets + entropies,
            None => targets,
        }
    }
}
