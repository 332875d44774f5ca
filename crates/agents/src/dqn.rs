//! Plain DQN (Mnih et al. 2015): max values and an ε-greedy policy. `double` is van Hasselt et al. 2016.

use settings::Settings;
use tch::Tensor;

use crate::agent::{Agent, TargetValues, TdLearning, TensorBatch};
use crate::network::QNetwork;

#[derive(Debug)]
struct Dqn {
    learning: TdLearning,
    /// A stochastic evaluation keeps the ε that training ends with.
    epsilon_final: f64,
}

pub(crate) fn make(settings: &Settings) -> Box<dyn Agent> {
    Box::new(Dqn { learning: TdLearning::new(settings), epsilon_final: settings.epsilon_final })
}

impl Agent for Dqn {
    fn learning(&self) -> &TdLearning {
        &self.learning
    }

    fn policy(&self, q: &[f64], probabilities: &mut [f64]) {
        probabilities.fill(0.0);
        probabilities[value::hard::greedy(q)] = 1.0;
    }

    fn evaluation_epsilon(&self) -> f64 {
        self.epsilon_final
    }

    fn temperature(&self) -> Option<f64> {
        None
    }

    /// Of softmax(Q), as a measure of how decided the network is; the policy itself is greedy.
    fn entropy(&self, q: &[f64]) -> f64 {
        value::soft::entropy(q, 1.0)
    }

    fn value(&self, q: &[f64]) -> f64 {
        value::hard::value(q)
    }

    fn targets(&self, online: &QNetwork, target: &TargetValues, batch: &TensorBatch) -> Tensor {
        let next = if self.learning.double {
            let best = self.q_values(online.forward(&batch.next_states)).argmax(1, true);
            target.next.gather(1, &best, false).squeeze_dim(1)
        } else {
            target.next.amax([1], false)
        };
        &batch.returns + &batch.discounts * next
    }
}
