//! The two presets of the paper's experiment on CartPole: its text, and the authors' notebooks.
//!
//! The text states eight values. All others are those of the notebooks; docs/paper.md lists every value with its origin, and a
//! test compares that table with these lists.

use super::ForAlgorithm;
use crate::algorithms;

/// What the two presets share, followed by what each has for itself.
macro_rules! preset {
    ($($own:expr),* $(,)?) => {
        &[
            ("frames", "50000"),
            ("actors", "1"),
            ("lanes", "1"),
            ("network", "mlp"),
            ("hidden_units", "256"),
            ("frame_stack", "1"),
            ("frame_skip", "1"),
            ("noop_max", "0"),
            ("time_limit_frames", "200"),
            ("reward_clip", "none"),
            ("life_loss_ends", "false"),
            ("batch_size", "16"),
            ("samples_per_insert", "16"),
            ("loss", "squared"),
            ("gradient_clamp", "0"),
            ("target_period_episodes", "1"),
            ("strategy", "uniform"),
            ("stratified", "false"),
            ("capacity", "1000"),
            ("min_size", "1000"),
            ("random_steps", "1000"),
            ("initial_priority", "computed"),
            ("importance_anneal_updates", "0"),
            ("epsilon_decay_steps", "10000"),
            ("replay_bytes", "64MiB"),
            ("frame_codec", "none"),
            ("chunk_steps", "1"),
            ("publish_every_updates", "1"),
            ("evaluate_every_frames", "5000"),
            ("evaluate_final_episodes", "100"),
            ("checkpoint_every_frames", "10000"),
            $($own,)*
        ]
    };
}

pub(super) const PAPER: &[(&str, &str)] =
    preset![("learning_rate", "0.005"), ("temperature", "0.5"), ("epsilon_schedule", "geometric"),];

pub(super) const AUTHORS: &[(&str, &str)] = preset![
    ("learning_rate", "0.0005"),
    ("temperature", "0.25"),
    ("epsilon_schedule", "exponential"),
    ("termination_reward", "-5"),
    ("bootstrap_terminal", "true"),
];

/// The notebook of DQN has no random steps, because its first ε is 1, and a larger buffer.
pub(super) const FOR_ALGORITHM: &[ForAlgorithm] = &[
    ForAlgorithm {
        preset: "paper-cartpole",
        algorithm: algorithms::DQN,
        differences: &[("random_steps", "0")],
    },
    ForAlgorithm {
        preset: "authors-cartpole",
        algorithm: algorithms::DQN,
        differences: &[("random_steps", "0"), ("capacity", "10000")],
    },
];
