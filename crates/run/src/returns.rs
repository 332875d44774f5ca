//! What a window of steps is worth under a run's settings.
//!
//! The actor needs it for initial priorities and the learner for targets; it stands here once so that both clip
//! rewards, end returns and count entropy alike.

use crate::choices::{Algorithm, RewardClip};
use crate::settings::Settings;
use replay::Taken;

/// The settings that decide a return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Returns {
    discount: f64,
    temperature: Option<f64>,
    clip: RewardClip,
    life_loss_ends: bool,
}

/// A window's return without its bootstrap, and what the bootstrap is multiplied by (0 after an end).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Folded {
    /// Σ γᵏ·r_k, and for soft DQN −β·Σ_{k≥1} γᵏ·log π(a_k|s_k).
    pub sum: f64,
    /// γⁿ, or 0 if nothing follows.
    pub discount: f64,
}

impl Returns {
    /// The rule of these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            discount: settings.discount,
            temperature: (settings.algorithm == Algorithm::SoftDqn).then_some(settings.temperature),
            clip: settings.reward_clip,
            life_loss_ends: settings.life_loss_ends,
        }
    }

    /// Whether nothing after this step counts: the game is over, or a life is lost and that ends the return.
    pub fn ends(&self, step: &Taken) -> bool {
        step.terminated || (self.life_loss_ends && step.life_lost)
    }

    /// The reward as the learner sees it.
    pub fn reward(&self, step: &Taken) -> f64 {
        let reward = f64::from(step.reward);
        match self.clip {
            RewardClip::Sign if reward != 0.0 => reward.signum(),
            _ => reward,
        }
    }

    /// Folds a window of consecutive steps.
    pub fn fold(&self, steps: impl IntoIterator<Item = Taken>) -> Folded {
        let (mut sum, mut weight, mut ended) = (0.0, 1.0, false);
        for (index, step) in steps.into_iter().enumerate() {
            sum += weight * self.reward(&step);
            if let (Some(temperature), 1..) = (self.temperature, index) {
                sum -= weight * temperature * f64::from(step.log_probability);
            }
            weight *= self.discount;
            ended = self.ends(&step);
        }
        Folded { sum, discount: if ended { 0.0 } else { weight } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(reward: f32, log_probability: f32) -> Taken {
        Taken {
            action: 0,
            reward,
            terminated: false,
            truncated: false,
            life_lost: false,
            log_probability,
            weights: replay::WeightsVersion::default(),
        }
    }

    fn rule(change: impl FnOnce(&mut Settings)) -> Returns {
        let mut settings = Settings::paper();
        change(&mut settings);
        Returns::new(&settings)
    }

    #[test]
    fn folding_is_the_n_step_target_of_value() {
        let steps = [step(1.0, -0.5), step(-1.0, -1.5), step(0.0, -0.25)];
        let (rewards, logs) = ([1.0, -1.0, 0.0], [-0.5, -1.5, -0.25]);
        let soft = rule(|_| ()).fold(steps);
        let expected = value::target::n_step_soft(&rewards, &logs, 0.99, 0.05, Some(3.0));
        assert!((soft.sum + soft.discount * 3.0 - expected).abs() < 1e-12);
        let hard = rule(|settings| settings.algorithm = Algorithm::Dqn).fold(steps);
        let expected = value::target::n_step(&rewards, 0.99, Some(3.0));
        assert!((hard.sum + hard.discount * 3.0 - expected).abs() < 1e-12);
    }

    #[test]
    fn an_end_has_no_bootstrap_and_a_truncation_has() {
        let ended = |change: fn(&mut Taken), rule: &Returns| {
            let mut last = step(0.0, 0.0);
            change(&mut last);
            rule.fold([step(0.0, 0.0), last]).discount == 0.0
        };
        let (training, whole_games) = (rule(|_| ()), rule(|settings| settings.life_loss_ends = false));
        assert!(ended(|step| step.terminated = true, &whole_games));
        assert!(!ended(|step| step.truncated = true, &training));
        assert!(ended(|step| step.life_lost = true, &training));
        assert!(!ended(|step| step.life_lost = true, &whole_games));
    }

    #[test]
    fn rewards_are_clipped_only_if_asked() {
        assert_eq!(rule(|_| ()).reward(&step(-7.0, 0.0)), -1.0);
        assert_eq!(rule(|_| ()).reward(&step(0.0, 0.0)), 0.0);
        assert_eq!(rule(|settings| settings.reward_clip = RewardClip::None).reward(&step(-7.0, 0.0)), -7.0);
    }
}
