//! What a player needs to know of a run's settings.

use run::choices::{Algorithm, EvaluationPolicy, InitialPriority};
use run::returns::Returns;
use run::settings::Settings;
use value::priority::{Rho, Strategy};

use crate::behaviour::Behaviour;

/// Settings of a run as a player sees them.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How rewards fold into returns.
    pub returns: Returns,
    /// Steps per transition, at most.
    pub n_step: usize,
    /// Frames per state.
    pub stack: usize,
    /// How frames are packed.
    pub codec: replay::codec::Codec,
    /// β of soft DQN; `None` for plain DQN.
    pub temperature: Option<f64>,
    /// The priority of new transitions; `None` for the largest so far.
    pub priority: Option<(Strategy, Rho)>,
    random_steps: u64,
    epsilon: (f64, f64),
    epsilon_decay_steps: u64,
}

impl Rules {
    /// The rules of these settings.
    pub fn new(settings: &Settings) -> Self {
        let computed = settings.initial_priority == InitialPriority::Computed;
        Self {
            returns: Returns::new(settings),
            n_step: settings.n_step as usize,
            stack: settings.frame_stack,
            codec: settings.frame_codec,
            temperature: (settings.algorithm == Algorithm::SoftDqn).then_some(settings.temperature),
            priority: computed.then_some((settings.strategy, settings.rho)),
            random_steps: settings.random_steps.0,
            epsilon: (settings.epsilon, settings.epsilon_final),
            epsilon_decay_steps: settings.epsilon_decay_steps.0,
        }
    }

    /// The behaviour after so many agent steps of the whole run.
    pub fn behaviour(&self, agent_steps: u64) -> Behaviour {
        if agent_steps < self.random_steps {
            return Behaviour::Random;
        }
        let since = (agent_steps - self.random_steps) as f64;
        let share = (since / self.epsilon_decay_steps.max(1) as f64).min(1.0);
        let epsilon = self.epsilon.0 + (self.epsilon.1 - self.epsilon.0) * share;
        match self.temperature {
            Some(temperature) => Behaviour::Soft { temperature, epsilon },
            None => Behaviour::Greedy { epsilon },
        }
    }

    /// The value of a state.
    pub fn value(&self, q: &[f64]) -> f64 {
        self.temperature
            .map_or_else(|| value::hard::value(q), |temperature| value::soft::value(q, temperature))
    }
}

/// How an evaluated agent acts. A stochastic plain DQN keeps its final ε.
pub fn evaluation_behaviour(settings: &Settings, policy: EvaluationPolicy) -> Behaviour {
    match (policy, settings.algorithm) {
        (EvaluationPolicy::Greedy, _) => Behaviour::Greedy { epsilon: 0.0 },
        (EvaluationPolicy::Stochastic, Algorithm::Dqn) => {
            Behaviour::Greedy { epsilon: settings.epsilon_final }
        }
        (EvaluationPolicy::Stochastic, Algorithm::SoftDqn) => {
            Behaviour::Soft { temperature: settings.temperature, epsilon: 0.0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsilon_decays_after_the_random_steps() {
        let mut settings = Settings::paper();
        (settings.epsilon, settings.epsilon_final) = (1.0, 0.0);
        settings.random_steps.0 = 10;
        settings.epsilon_decay_steps.0 = 100;
        let rules = Rules::new(&settings);
        assert_eq!(rules.behaviour(9), Behaviour::Random);
        for (steps, epsilon) in [(10, 1.0), (60, 0.5), (110, 0.0), (9_999, 0.0)] {
            assert_eq!(rules.behaviour(steps), Behaviour::Soft { temperature: 0.05, epsilon });
        }
    }
}
