//! What Q(s,a) should have been: bootstrapped targets, and the TD error against them.
//!
//! A window of n rewards starts at the step that is being learnt. Who cuts the window at the end
//! of an episode also says how it ended: a terminated episode has no bootstrap (`None`), a
//! truncated one bootstraps from its last observation like any other.

use crate::{hard, soft};

/// TD = target − Q(s,a). Soft and plain Q-learning differ in the target alone.
pub fn td_error(q_sa: f64, target: f64) -> f64 {
    target - q_sa
}

/// Σ_{k<n} γ^k·r_k + γ^n·V(s_n), the n-step target of plain Q-learning; `bootstrap` is V(s_n).
///
/// One reward makes it the paper's r + γ·max_a Q(s',a).
pub fn n_step(rewards: &[f64], discount: f64, bootstrap: Option<f64>) -> f64 {
    let mut target = 0.0;
    let mut weight = 1.0;
    for reward in rewards {
        target += weight * reward;
        weight *= discount;
    }
    target + bootstrap.map_or(0.0, |value| weight * value)
}

/// Σ_{k<n} γ^k·r_k − β·Σ_{1≤k<n} γ^k·log π(a_k|s_k) + γ^n·V(s_n), the n-step soft target.
///
/// `log_probabilities` has one entry per reward. Entry 0 is not read: Q(s_0,a_0) is the value
/// after a_0 was chosen, so the entropy of that choice is none of its business. One reward makes
/// it the paper's r + γ·V_soft(s').
pub fn n_step_soft(
    rewards: &[f64],
    log_probabilities: &[f64],
    discount: f64,
    temperature: f64,
    bootstrap: Option<f64>,
) -> f64 {
    debug_assert_eq!(rewards.len(), log_probabilities.len(), "one log-probability per reward");
    debug_assert!(temperature > 0.0, "a temperature is positive");
    let mut entropy_bonus = 0.0;
    let mut weight = discount;
    for log_probability in log_probabilities.iter().skip(1) {
        entropy_bonus -= weight * log_probability;
        weight *= discount;
    }
    n_step(rewards, discount, bootstrap) + temperature * entropy_bonus
}

/// V = Σ_a π_online(a)·(Q_target(a) − β·log π_online(a)): the online network chooses, the target
/// network values. With both the same it is [`soft::value`]; else it is at most that of `target`.
pub fn double_soft_value(online: &[f64], target: &[f64], temperature: f64) -> f64 {
    soft::expectation(online, temperature, target) + temperature * soft::entropy(online, temperature)
}

/// Q_target(s, argmax_a Q_online(s,a)), van Hasselt's double Q-learning.
pub fn double_value(online: &[f64], target: &[f64]) -> f64 {
    debug_assert_eq!(online.len(), target.len(), "two networks, the same actions");
    target[hard::greedy(online)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_step_is_reward_plus_discounted_value() {
        assert_eq!(n_step(&[1.0], 0.5, Some(4.0)), 3.0);
        assert_eq!(n_step_soft(&[1.0], &[-9.0], 0.5, 0.05, Some(4.0)), 3.0);
        assert_eq!(td_error(2.5, 3.0), 0.5);
    }

    #[test]
    fn termination_has_no_bootstrap() {
        assert_eq!(n_step(&[1.0, 2.0], 0.5, None), 2.0);
        assert_eq!(n_step(&[1.0, 2.0], 0.5, Some(8.0)), 4.0);
        assert_eq!(n_step_soft(&[1.0, 2.0], &[0.0, -1.0], 0.5, 2.0, None), 3.0);
    }

    #[test]
    fn the_first_choice_is_not_rewarded_for_its_entropy() {
        let target = n_step_soft(&[0.0, 0.0], &[f64::NAN, -1.0], 0.5, 1.0, Some(0.0));
        assert_eq!(target, 0.5);
    }

    #[test]
    fn double_value_is_the_targets_view_of_the_online_choice() {
        assert_eq!(double_value(&[1.0, 2.0, 0.0], &[5.0, 3.0, 9.0]), 3.0);
    }

    #[test]
    fn double_soft_value_counts_no_action_that_has_no_probability() {
        assert_eq!(double_soft_value(&[1e12, -1e12], &[1.0, 1e12], 1e-3), 1.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn n_step_folds_like_n_single_steps(
            steps in prop::collection::vec((-1.0..1.0, -3.0..0.0), 1..12),
            discount in 0.5..1.0,
            temperature in 0.01f64..2.0,
            bootstrap in prop::option::of(-10.0..10.0),
        ) {
            let (rewards, logs): (Vec<f64>, Vec<f64>) = steps.iter().copied().unzip();
            // Backwards: the value of step k is what it paid, its entropy, and what follows.
            let mut following = bootstrap.unwrap_or(0.0);
            for (k, (reward, log)) in steps.iter().enumerate().rev() {
                let bonus = if k == 0 { 0.0 } else { -temperature * log };
                following = reward + bonus + discount * following;
            }
            let target = n_step_soft(&rewards, &logs, discount, temperature, bootstrap);
            prop_assert!((target - following).abs() < 1e-12);
            let silent = vec![0.0; rewards.len()];
            let plain = n_step(&rewards, discount, bootstrap);
            prop_assert_eq!(n_step_soft(&rewards, &silent, discount, temperature, bootstrap), plain);
        }

        #[test]
        fn double_soft_value_is_the_soft_value_for_one_network_and_never_more_for_two(
            pairs in prop::collection::vec((-5.0..5.0, -5.0..5.0), 1..8),
            temperature in 0.01..10.0,
        ) {
            let (online, target): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let own = double_soft_value(&target, &target, temperature);
            let value = soft::value(&target, temperature);
            prop_assert!((own - value).abs() <= 1e-13 * (1.0 + value.abs()));
            prop_assert!(double_soft_value(&online, &target, temperature) <= value + 1e-12);
        }
    }
}
