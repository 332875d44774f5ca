//! The return of a window of steps.
//!
//! The actor folds windows for initial priorities and the learner for targets, both here, so that they clip rewards, end returns
//! and add the agent's bonuses alike.

use replay::Taken;
use settings::Settings;
use settings::choices::RewardClip;

use crate::agent::Agent;

/// The settings that decide a return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Returns {
    discount: f64,
    clip: RewardClip,
    termination_reward: Option<f64>,
    life_loss_ends: bool,
    bootstrap_terminal: bool,
}

/// A window's return without its bootstrap, and what the bootstrap is multiplied by (0 after an end).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Folded {
    /// Σ γᵏ·r_k, and what the agent adds for each step ([`Agent::bonus`]).
    pub sum: f64,
    /// γⁿ, or 0 if nothing follows.
    pub discount: f64,
}

impl Returns {
    /// The fold that these settings describe.
    pub fn new(settings: &Settings) -> Self {
        Self {
            discount: settings.discount,
            clip: settings.reward_clip,
            termination_reward: settings.termination_reward.0,
            life_loss_ends: settings.life_loss_ends,
            bootstrap_terminal: settings.bootstrap_terminal,
        }
    }

    /// Whether a window of steps ends here: the episode terminated, or a life was lost and `life_loss_ends` is set.
    pub fn ends(&self, step: &Taken) -> bool {
        step.terminated || (self.life_loss_ends && step.life_lost)
    }

    /// Whether the value of the state after this step counts if a window stops here.
    pub fn bootstraps(&self, step: &Taken) -> bool {
        self.bootstrap_terminal || !self.ends(step)
    }

    /// The reward as the learner sees it.
    pub fn reward(&self, step: &Taken) -> f64 {
        if let Some(reward) = self.termination_reward
            && step.terminated
            && !step.life_lost
        {
            return reward;
        }
        let reward = f64::from(step.reward);
        match self.clip {
            RewardClip::Sign if reward != 0.0 => reward.signum(),
            _ => reward,
        }
    }

    /// Folds a window of consecutive steps.
    pub fn fold(&self, agent: &dyn Agent, steps: impl IntoIterator<Item = Taken>) -> Folded {
        let (mut sum, mut weight, mut bootstraps) = (0.0, 1.0, true);
        for (index, step) in steps.into_iter().enumerate() {
            sum += weight * self.reward(&step);
            sum += agent.bonus(index, weight, f64::from(step.log_probability));
            weight *= self.discount;
            bootstraps = self.bootstraps(&step);
        }
        Folded { sum, discount: if bootstraps { weight } else { 0.0 } }
    }

    /// Folds a window of which the Q-values of each step's state are known, and adds [`Agent::inner_bonus`] of its inner
    /// steps. The learner adds that with tensors instead.
    pub fn fold_valued<'a>(
        &self,
        agent: &dyn Agent,
        steps: impl Iterator<Item = (Taken, &'a [f64])> + Clone,
    ) -> Folded {
        let mut folded = self.fold(agent, steps.clone().map(|(taken, _)| taken));
        if agent.uses_inner_steps() {
            let bonus = |(index, (taken, q)): (usize, (Taken, &[f64]))| {
                self.weight(index) * agent.inner_bonus(q, taken.action.into())
            };
            folded.sum += steps.enumerate().skip(1).map(bonus).sum::<f64>();
        }
        folded
    }

    /// γᵏ, the weight of step `index` of a window.
    pub fn weight(&self, index: usize) -> f64 {
        self.discount.powi(index as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::choices::{NStepEntropy, TerminationReward};

    fn step(reward: f32, log_probability: f32) -> Taken {
        Taken { reward, log_probability, ..replay::testing::NOOP }
    }

    fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Settings::paper();
        change(&mut settings);
        settings
    }

    fn returns(change: impl FnOnce(&mut Settings)) -> Returns {
        Returns::new(&settings(change))
    }

    #[test]
    fn folding_is_the_n_step_target_of_value() {
        let steps = [step(1.0, -0.5), step(-1.0, -1.5), step(0.0, -0.25)];
        let (rewards, logs) = ([1.0, -1.0, 0.0], [-0.5, -1.5, -0.25]);
        let fold = |settings: &Settings| Returns::new(settings).fold(&*crate::agent(settings), steps);
        let soft = fold(&Settings::paper());
        let expected = value::target::n_step_soft(&rewards, &logs, 0.99, 0.05, Some(3.0));
        assert!((soft.sum + soft.discount * 3.0 - expected).abs() < 1e-12);
        let hard = fold(&settings(|settings| settings.algorithm = settings::algorithms::DQN));
        let expected = value::target::n_step(&rewards, 0.99, Some(3.0));
        assert!((hard.sum + hard.discount * 3.0 - expected).abs() < 1e-12);
    }

    #[test]
    fn folding_with_values_replaces_the_behaviours_log_probabilities_by_clipped_ones_of_the_policy() {
        let steps = [step(1.0, -0.5), step(-1.0, -1.5), step(0.0, -0.25)];
        let q = [[0.0, 0.1], [0.0, 0.02], [0.0, 10.0]];
        let valued = steps.iter().zip(&q).map(|(taken, q)| (*taken, q.as_slice()));
        let fold = |settings: &Settings| {
            Returns::new(settings).fold_valued(&*crate::agent(settings), valued.clone())
        };
        let target = settings(|settings| {
            (settings.n_step, settings.n_step_entropy) = (3, NStepEntropy::Target);
        });
        // Action 0 of the third state has β·log π of about −10, which the clip raises to −1.
        let log_policy = value::soft::log_probability(&q[1], 0.05, 0);
        let logs = [f64::NAN, log_policy, -1.0 / 0.05];
        let expected = value::target::n_step_soft(&[1.0, -1.0, 0.0], &logs, 0.99, 0.05, None);
        assert!((fold(&target).sum - expected).abs() < 1e-12);
        let behaviour = settings(|settings| settings.n_step = 3);
        assert_eq!(fold(&behaviour), Returns::new(&behaviour).fold(&*crate::agent(&behaviour), steps));
        // Munchausen adds its own reward to the entropy; with α = 1 and the same clip they cancel.
        let munchausen = |scale| Settings {
            algorithm: settings::algorithms::MUNCHAUSEN_DQN,
            munchausen_scale: scale,
            ..target.clone()
        };
        let rewards = value::target::n_step(&[1.0, -1.0, 0.0], 0.99, None);
        assert!((fold(&munchausen(1.0)).sum - rewards).abs() < 1e-12);
        assert!((fold(&munchausen(0.0)).sum - expected).abs() < 1e-12);
    }

    #[test]
    fn an_end_has_no_bootstrap_and_a_truncation_has() {
        let agent = crate::agent(&Settings::paper());
        let ended = |change: fn(&mut Taken), returns: &Returns| {
            let mut last = step(0.0, 0.0);
            change(&mut last);
            returns.fold(&*agent, [step(0.0, 0.0), last]).discount == 0.0
        };
        let (training, whole_games) = (returns(|_| ()), returns(|settings| settings.life_loss_ends = false));
        assert!(ended(|step| step.terminated = true, &whole_games));
        assert!(!ended(|step| step.truncated = true, &training));
        assert!(ended(|step| step.life_lost = true, &training));
        assert!(!ended(|step| step.life_lost = true, &whole_games));
    }

    #[test]
    fn without_a_terminal_mask_every_end_bootstraps_and_still_ends_a_window() {
        let agent = crate::agent(&Settings::paper());
        let unmasked = returns(|settings| settings.bootstrap_terminal = true);
        for change in [|step: &mut Taken| step.terminated = true, |step: &mut Taken| step.life_lost = true] {
            let mut last = step(2.0, 0.0);
            change(&mut last);
            assert!(unmasked.ends(&last));
            assert_eq!(unmasked.fold(&*agent, [last]).discount, 0.99);
            assert_eq!(returns(|_| ()).fold(&*agent, [last]).discount, 0.0);
        }
    }

    #[test]
    fn the_termination_reward_replaces_that_of_a_termination_only_and_is_not_clipped() {
        let returns = returns(|settings| settings.termination_reward = TerminationReward(Some(-5.0)));
        let reward = |change: fn(&mut Taken)| {
            let mut step = step(3.0, 0.0);
            change(&mut step);
            returns.reward(&step)
        };
        assert_eq!(reward(|step| step.terminated = true), -5.0);
        assert_eq!(reward(|step| step.truncated = true), 1.0, "clipped by sign as before");
        assert_eq!(reward(|step| step.life_lost = true), 1.0);
        let lost_life_as_an_end = |step: &mut Taken| (step.terminated, step.life_lost) = (true, true);
        assert_eq!(reward(lost_life_as_an_end), 1.0);
        assert_eq!(reward(|_| ()), 1.0);
    }

    #[test]
    fn rewards_are_clipped_only_if_asked() {
        assert_eq!(returns(|_| ()).reward(&step(-7.0, 0.0)), -1.0);
        assert_eq!(returns(|_| ()).reward(&step(0.0, 0.0)), 0.0);
        assert_eq!(
            returns(|settings| settings.reward_clip = RewardClip::None).reward(&step(-7.0, 0.0)),
            -7.0
        );
    }
}
