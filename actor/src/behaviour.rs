//! Choosing actions from Q-values.

use rand::{Rng, RngExt};

/// How an agent acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behaviour {
    /// Samples from softmax(Q/β), mixed with a share ε of uniformly random actions.
    Soft {
        /// β.
        temperature: f64,
        /// ε.
        epsilon: f64,
    },
    /// Takes the best action, mixed with a share ε of uniformly random ones.
    Greedy {
        /// ε.
        epsilon: f64,
    },
    /// Any action with the same probability.
    Random,
}

/// An action and the logarithm of the probability with which it was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Index of the action.
    pub action: usize,
    /// log of its probability under the behaviour.
    pub log_probability: f64,
}

impl Behaviour {
    /// Probabilities of all actions.
    pub fn probabilities(&self, q: &[f64]) -> Vec<f64> {
        let mut probabilities = vec![0.0; q.len()];
        let epsilon = match *self {
            Behaviour::Soft { temperature, epsilon } => {
                value::soft::policy(q, temperature, &mut probabilities);
                epsilon
            }
            Behaviour::Greedy { epsilon } => {
                probabilities[value::hard::greedy(q)] = 1.0;
                epsilon
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
    pub fn choose(&self, q: &[f64], rng: &mut impl Rng) -> Choice {
        let probabilities = self.probabilities(q);
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
        Choice { action, log_probability: probabilities[action].ln() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const Q: [f64; 3] = [1.0, 2.0, 0.5];

    #[test]
    fn actions_come_as_often_as_their_probabilities_say() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let soft = Behaviour::Soft { temperature: 0.7, epsilon: 0.2 };
        for behaviour in [soft, Behaviour::Greedy { epsilon: 0.3 }, Behaviour::Random] {
            let probabilities = behaviour.probabilities(&Q);
            assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut counts = [0.0; 3];
            let draws = 20_000;
            for _ in 0..draws {
                let choice = behaviour.choose(&Q, &mut rng);
                counts[choice.action] += 1.0;
                assert!((choice.log_probability - probabilities[choice.action].ln()).abs() < 1e-12);
            }
            for (count, probability) in counts.iter().zip(&probabilities) {
                // Five standard deviations of a binomial count, at most.
                let tolerance = 5.0 * (draws as f64 * 0.25).sqrt();
                assert!((count - probability * draws as f64).abs() < tolerance, "{behaviour:?} {counts:?}");
            }
        }
    }

    #[test]
    fn an_impossible_action_is_never_taken() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let cold = Behaviour::Soft { temperature: 1e-3, epsilon: 0.0 };
        assert!((0..1_000).all(|_| cold.choose(&Q, &mut rng).action == 1));
        assert!((0..1_000).all(|_| Behaviour::Greedy { epsilon: 0.0 }.choose(&Q, &mut rng).action == 1));
    }
}
