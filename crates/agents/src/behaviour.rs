//! Drawing actions: an agent's policy, mixed with a share of random actions.

use rand::{Rng, RngExt};

use crate::agent::Agent;

/// How an agent chooses actions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behaviour {
    /// By the agent's own policy, mixed with a share ε of uniformly random actions.
    Policy {
        /// ε.
        epsilon: f64,
    },
    /// Always the action of largest value.
    Greedy,
    /// Any action with the same probability.
    Random,
}

/// An action and the logarithm of the probability with which it was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Index of the action.
    pub action: usize,
    /// log of its probability under the behaviour.
    pub log_probability: f64,
}

impl Behaviour {
    /// Probabilities of all actions.
    pub fn probabilities(&self, agent: &dyn Agent, q: &[f64]) -> Vec<f64> {
        let mut probabilities = vec![0.0; q.len()];
        let epsilon = match *self {
            Behaviour::Policy { epsilon } => {
                agent.policy(q, &mut probabilities);
                epsilon
            }
            Behaviour::Greedy => {
                probabilities[value::hard::greedy(q)] = 1.0;
                0.0
            }
            Behaviour::Random => 1.0,
        };
        let uniform = epsilon / q.len() as f64;
        for probability in &mut probabilities {
            *probability = (1.0 - epsilon) * *probability + uniform;
        }
        probabilities
    }

    /// Draws an action. Always takes one number from the generator, whatever the behaviour.
    pub fn choose(&self, agent: &dyn Agent, q: &[f64], rng: &mut impl Rng) -> Chosen {
        sample(&self.probabilities(agent, q), rng)
    }
}

/// Draws an action with these probabilities, by one number from the generator.
pub fn sample(probabilities: &[f64], rng: &mut impl Rng) -> Chosen {
    let mut left: f64 = rng.random();
    let mut chosen = None;
    for (action, &probability) in probabilities.iter().enumerate() {
        if probability > 0.0 {
            chosen = Some(action);
            left -= probability;
            if left < 0.0 {
                break;
            }
        }
    }
    let action = chosen.unwrap_or_default();
    Chosen { action, log_probability: probabilities[action].ln() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use settings::Settings;
    use settings::algorithms;
    use std::sync::Arc;
    use value::Listed;

    const Q: [f64; 3] = [1.0, 2.0, 0.5];

    fn agents(temperature: f64) -> impl Iterator<Item = Arc<dyn Agent>> {
        let of = move |algorithm| crate::agent(&Settings { algorithm, temperature, ..Settings::paper() });
        algorithms::AlgorithmEntry::list().iter().copied().map(of)
    }

    #[test]
    fn actions_come_as_often_as_their_probabilities_say() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for agent in agents(0.7) {
            for behaviour in [Behaviour::Policy { epsilon: 0.2 }, Behaviour::Greedy, Behaviour::Random] {
                let probabilities = behaviour.probabilities(&*agent, &Q);
                assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                let mut counts = [0.0; 3];
                let draws = 20_000;
                for _ in 0..draws {
                    let chosen = behaviour.choose(&*agent, &Q, &mut rng);
                    counts[chosen.action] += 1.0;
                    assert!((chosen.log_probability - probabilities[chosen.action].ln()).abs() < 1e-12);
                }
                for (count, probability) in counts.iter().zip(&probabilities) {
                    // Five standard deviations of a binomial count, at most.
                    let tolerance = 5.0 * (draws as f64 * 0.25).sqrt();
                    let expected = probability * draws as f64;
                    assert!((count - expected).abs() < tolerance, "{agent:?} {behaviour:?} {counts:?}");
                }
            }
        }
    }

    #[test]
    fn an_impossible_action_is_never_taken() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        for agent in agents(1e-3) {
            for behaviour in [Behaviour::Policy { epsilon: 0.0 }, Behaviour::Greedy] {
                assert!((0..1_000).all(|_| behaviour.choose(&*agent, &Q, &mut rng).action == 1), "{agent:?}");
            }
        }
    }
}
