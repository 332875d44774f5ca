//! Munchausen DQN (Vieillard, Pietquin, Geist, 2020): soft Q-learning that adds a scaled log-policy to the reward,
//! r + α·clip(β·log π(a|s), l₀, 0) + γ·V(s′), with π = softmax(Q/β) of the target network.
//!
//! As in the paper the agent acts ε-greedily; the soft policy is in the targets. α and l₀ are the paper's. Departures: β is the
//! preset's `temperature` (the paper has 0.03), a stochastic evaluation plays the final ε of training, and loss and optimizer
//! are the run's. Two cases that the paper leaves open: a window of n steps, and `double`, which takes the next policy from the
//! online network, as soft DQN does.
//!
//! A window has the bonus of its first action. What its inner steps add to their rewards is a setting. With `n_step_entropy =
//! behaviour` it is nothing, because the paper's soft policy does not act. With `target` it is α·clip(β·log π, l₀, 0) −
//! clip(β·log π, floor, 0), π being the policy of the bootstrap: the reward of Munchausen and the entropy that joins Q(s,a) to
//! V(s). At the fixed point of the one-step target this is unbiased for every behaviour policy if no clip of the second kind
//! acts; with α = 1 and l₀ = floor the two cancel.

use settings::Settings;
use tch::Tensor;

use crate::agent::{Agent, TargetValues, TdLearning, TensorBatch};
use crate::network::QNetwork;
use crate::returns::Folded;
use crate::soft;

#[derive(Debug)]
struct MunchausenDqn {
    learning: TdLearning,
    temperature: f64,
    /// α.
    scale: f64,
    /// l₀.
    floor: f64,
    epsilon_final: f64,
    /// The clip of the inner steps' entropies, if they are part of the target.
    inner_floor: Option<f64>,
}

pub(crate) fn make(settings: &Settings) -> Box<dyn Agent> {
    Box::new(MunchausenDqn {
        learning: TdLearning::new(settings),
        temperature: settings.temperature,
        scale: settings.munchausen_scale,
        floor: settings.munchausen_floor,
        epsilon_final: settings.epsilon_final,
        inner_floor: soft::inner_floor(settings),
    })
}

impl Agent for MunchausenDqn {
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
        Some(self.temperature)
    }

    /// Of the soft policy in the targets.
    fn entropy(&self, q: &[f64]) -> f64 {
        value::soft::entropy(q, self.temperature)
    }

    fn uses_inner_steps(&self) -> bool {
        self.inner_floor.is_some()
    }

    fn uses_target_of_states(&self) -> bool {
        true
    }

    fn inner_bonus(&self, q: &[f64], action: usize) -> f64 {
        let clipped = |floor| value::soft::clipped_log_policy(q, self.temperature, action, floor);
        self.inner_floor.map_or(0.0, |floor| self.scale * clipped(self.floor) - clipped(floor))
    }

    fn value(&self, q: &[f64]) -> f64 {
        value::soft::value(q, self.temperature)
    }

    fn target(&self, q: &[f64], action: usize, folded: Folded, next_q: Option<&[f64]>) -> f64 {
        let log_policy = value::soft::clipped_log_policy(q, self.temperature, action, self.floor);
        let next = next_q.map_or(0.0, |q| self.value(q));
        folded.sum + self.scale * log_policy + folded.discount * next
    }

    fn targets(&self, online: &QNetwork, target: &TargetValues, batch: &TensorBatch) -> Tensor {
        let q = target.states.as_ref().expect("asked for by uses_target_of_states");
        let log_policy = batch.taken(&soft::log_policy(q, self.temperature));
        let bonus = soft::clipped(&log_policy, self.temperature, self.floor) * self.scale;
        let next = soft::next_value(self, online, target, batch, self.temperature);
        let targets = &batch.returns + bonus + &batch.discounts * next;
        let Some(floor) = self.inner_floor else { return targets };
        let inner = |log_policy: Tensor| {
            let clipped = |floor| soft::clipped(&log_policy, self.temperature, floor);
            clipped(self.floor) * self.scale - clipped(floor)
        };
        match soft::inner_bonuses(self, online, target, batch, self.temperature, inner) {
            Some(bonuses) => targets + bonuses,
            None => targets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::algorithms;

    #[test]
    fn the_bonus_is_the_scaled_log_policy_and_is_clipped() {
        let agent = |munchausen_scale, temperature| {
            let algorithm = algorithms::MUNCHAUSEN_DQN;
            make(&Settings { algorithm, munchausen_scale, temperature, ..Settings::paper() })
        };
        let folded = Folded { sum: 2.0, discount: 0.0 };
        // Two equal actions: log π = −log 2, times β = 1.
        let target = agent(0.9, 1.0).target(&[3.0, 3.0], 0, folded, None);
        assert!((target - (2.0 - 0.9 * 2f64.ln())).abs() < 1e-12);
        // β·log π = −10 is clipped at −1.
        let target = agent(0.5, 1.0).target(&[0.0, 10.0], 0, folded, None);
        assert!((target - 1.5).abs() < 1e-12);
        // Without the bonus it is soft DQN.
        let folded = Folded { sum: 0.0, discount: 0.5 };
        let target = agent(0.0, 0.7).target(&[0.0, 1.0], 0, folded, Some(&[1.0, 2.0]));
        assert!((target - 0.5 * value::soft::value(&[1.0, 2.0], 0.7)).abs() < 1e-12);
    }
}
