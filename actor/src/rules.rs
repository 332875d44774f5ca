//! The settings of a run that determine how a lane acts.

use std::sync::Arc;

use agents::{Agent, Behaviour, Returns};
use settings::Settings;
use settings::choices::{EvaluationPolicy, InitialPriority};

/// The settings of a run that a lane needs.
#[derive(Clone, Debug)]
pub struct Rules {
    pub agent: Arc<dyn Agent>,
    /// How rewards fold into returns.
    pub returns: Returns,
    /// Maximum steps per transition.
    pub n_step: usize,
    /// Frames per state.
    pub stack: usize,
    /// Compression of frames.
    pub codec: replay::codec::Codec,
    /// Whether the actor computes the priority of a new transition. Otherwise the shard assigns the largest so far.
    pub computes_priorities: bool,
    random_steps: u64,
    epsilon: (f64, f64),
    epsilon_decay_steps: u64,
}

impl Rules {
    pub fn new(settings: &Settings) -> Self {
        Self {
            agent: agents::agent(settings),
            returns: Returns::new(settings),
            n_step: settings.n_step as usize,
            stack: settings.frame_stack,
            codec: settings.frame_codec,
            computes_priorities: settings.initial_priority == InitialPriority::Computed,
            random_steps: settings.random_steps.0,
            epsilon: (settings.epsilon, settings.epsilon_final),
            epsilon_decay_steps: settings.epsilon_decay_steps.0,
        }
    }

    /// The behaviour after `agent_steps` agent steps of the whole run.
    pub fn behaviour(&self, agent_steps: u64) -> Behaviour {
        if agent_steps < self.random_steps {
            return Behaviour::Random;
        }
        let since = (agent_steps - self.random_steps) as f64;
        let share = (since / self.epsilon_decay_steps.max(1) as f64).min(1.0);
        Behaviour::Policy { epsilon: self.epsilon.0 + (self.epsilon.1 - self.epsilon.0) * share }
    }
}

/// The behaviour of an agent under evaluation.
pub fn evaluation_behaviour(agent: &dyn Agent, policy: EvaluationPolicy) -> Behaviour {
    match policy {
        EvaluationPolicy::Greedy => Behaviour::Greedy,
        EvaluationPolicy::Stochastic => Behaviour::Policy { epsilon: agent.evaluation_epsilon() },
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
            assert_eq!(rules.behaviour(steps), Behaviour::Policy { epsilon });
        }
    }
}
