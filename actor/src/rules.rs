//! The settings of a run that determine how a lane acts.

use std::sync::Arc;

use agents::{Agent, Behaviour, Returns};
use settings::Settings;
use settings::choices::{EpsilonSchedule, EvaluationPolicy, InitialPriority, PressFire};

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
    /// When FIRE is pressed, in games that have it.
    pub press_fire: PressFire,
    /// Whether a lost life ends the episode that is recorded, so that the frame stack starts again.
    pub life_loss_refills: bool,
    /// Whether the actor computes the priority of a new transition. Otherwise the shard assigns the largest so far.
    pub computes_priorities: bool,
    random_steps: u64,
    epsilon: (f64, f64),
    epsilon_decay_steps: u64,
    epsilon_schedule: EpsilonSchedule,
}

impl Rules {
    pub fn new(settings: &Settings) -> Self {
        Self {
            agent: agents::agent(settings),
            returns: Returns::new(settings),
            n_step: settings.n_step as usize,
            stack: settings.frame_stack,
            codec: settings.frame_codec,
            press_fire: settings.press_fire,
            life_loss_refills: settings.life_loss_refills,
            computes_priorities: settings.initial_priority == InitialPriority::Computed,
            random_steps: settings.random_steps.0,
            epsilon: (settings.epsilon, settings.epsilon_final),
            epsilon_decay_steps: settings.epsilon_decay_steps.0,
            epsilon_schedule: settings.epsilon_schedule,
        }
    }

    /// The behaviour after `agent_steps` agent steps of the whole run.
    pub fn behaviour(&self, agent_steps: u64) -> Behaviour {
        if agent_steps < self.random_steps {
            return Behaviour::Random;
        }
        let since = (agent_steps - self.random_steps) as f64;
        Behaviour::Policy { epsilon: self.epsilon(since / self.epsilon_decay_steps.max(1) as f64) }
    }

    /// ε after that share of its decay, which is above 1 when the decay is over.
    fn epsilon(&self, share: f64) -> f64 {
        let (first, last) = self.epsilon;
        match self.epsilon_schedule {
            EpsilonSchedule::Linear => first + (last - first) * share.min(1.0),
            // Both may be 0, which has no factor.
            EpsilonSchedule::Geometric if first == last || share >= 1.0 => last,
            EpsilonSchedule::Geometric => first * (last / first).powf(share),
            EpsilonSchedule::Exponential => last + (first - last) * (-share).exp(),
        }
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

    /// The expected numbers of the exponential schedule are those that the authors' notebook prints.
    #[test]
    fn the_schedules_of_cartpole_are_those_of_the_text_and_of_the_notebook() {
        let epsilon = |preset: &str, steps| {
            let flags = vec![("algorithm".to_owned(), "dqn".to_owned())];
            let layers = settings::Layers { preset: Some(preset), flags, ..settings::Layers::default() };
            match Rules::new(&layers.resolve(Some("cartpole")).unwrap().settings).behaviour(steps) {
                Behaviour::Policy { epsilon } => epsilon,
                other => panic!("{other:?}"),
            }
        };
        let text = [(0, 1.0), (2_500, 0.316_228), (5_000, 0.1), (10_000, 0.01), (49_999, 0.01)];
        let notebook =
            [(0, 1.0), (1_000, 0.905_789), (5_000, 0.610_465), (10_000, 0.374_201), (49_000, 0.017_372)];
        for (preset, expected) in [("paper-cartpole", text), ("authors-cartpole", notebook)] {
            for (steps, expected) in expected {
                let is = epsilon(preset, steps);
                assert!((is - expected).abs() < 5e-7, "{preset}, step {steps}: {is}");
            }
        }
    }

    #[test]
    fn a_constant_epsilon_has_every_schedule() {
        for schedule in [EpsilonSchedule::Linear, EpsilonSchedule::Geometric, EpsilonSchedule::Exponential] {
            for constant in [0.0, 0.1] {
                let mut settings = Settings::paper();
                (settings.epsilon, settings.epsilon_final) = (constant, constant);
                (settings.epsilon_schedule, settings.random_steps.0) = (schedule, 0);
                for steps in [0, 1, 250_000, 400_000] {
                    assert_eq!(
                        Rules::new(&settings).behaviour(steps),
                        Behaviour::Policy { epsilon: constant }
                    );
                }
            }
        }
    }
}
