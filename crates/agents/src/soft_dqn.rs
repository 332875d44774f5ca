//! Soft DQN, the paper's: V(s) = β·log Σ exp(Q(s,a)/β), π = softmax(Q/β).

use settings::Settings;
use tch::Tensor;

use crate::agent::{Agent, Networks, TdLearning, TensorBatch};
use crate::soft;

#[derive(Debug)]
struct SoftDqn {
    learning: TdLearning,
    temperature: f64,
}

pub(crate) fn make(settings: &Settings) -> Box<dyn Agent> {
    Box::new(SoftDqn { learning: TdLearning::new(settings), temperature: settings.temperature })
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

    fn entropy(&self, q: &Tensor) -> Tensor {
        soft::entropy(q, self.temperature)
    }

    /// −β·γᵏ·log π(a_k|s_k) for k ≥ 1. The first action is given, so that its entropy is not part of Q(s,a).
    fn bonus(&self, index: usize, weight: f64, log_probability: f64) -> f64 {
        if index == 0 { 0.0 } else { -(weight * self.temperature * log_probability) }
    }

    fn value(&self, q: &[f64]) -> f64 {
        value::soft::value(q, self.temperature)
    }

    fn targets(&self, networks: Networks<'_>, batch: &TensorBatch) -> Tensor {
        let value = soft::next_value(self, networks, batch, self.temperature);
        &batch.returns + &batch.discounts * value
    }
}
