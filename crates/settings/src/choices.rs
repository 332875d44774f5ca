//! Setting types whose values are names, or names and numbers.

use std::collections::BTreeSet;

use crate::text::{Text, text_by_from_str};
use serde::{Deserialize, Serialize};

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident $kind:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        value::names!($name, $kind, $($variant = $text),*);
        text_by_from_str!($name);
    )*};
}

choices! {
    /// The loss function.
    Loss "loss" {
        /// Quadratic near zero, linear beyond 1.
        Huber = "huber",
        /// Half the squared error.
        Squared = "squared",
    }
    /// How the learner changes rewards; scores stay unchanged.
    RewardClip "reward clipping" {
        /// −1, 0 or 1.
        Sign = "sign",
        /// As the game gives them.
        None = "none",
    }
    /// How an evaluated agent chooses actions.
    EvaluationPolicy "evaluation policy" {
        /// Samples from the learned policy.
        Stochastic = "stochastic",
        /// Takes the action of largest value.
        Greedy = "greedy",
    }
    /// How ε falls from its first to its final value.
    EpsilonSchedule "epsilon schedule" {
        /// By the same amount each step; at the final value after `epsilon_decay_steps`.
        Linear = "linear",
        /// By the same factor each step; at the final value after `epsilon_decay_steps`.
        Geometric = "geometric",
        /// final + (first − final)·exp(−t / `epsilon_decay_steps`), as the authors' CartPole code does.
        Exponential = "exponential",
    }
    /// When FIRE and then action 2 are pressed, in games whose action 1 is FIRE.
    PressFire "FIRE setting" {
        /// Never: the agent has to learn it.
        Never = "never",
        /// When a game starts, in training and in evaluation.
        Games = "games",
        /// When a game starts and, in training, after a lost life and one step of no-op.
        Lives = "lives",
    }
    /// Which log-probabilities the entropies inside an n-step window come from.
    NStepEntropy "n-step entropy" {
        /// Those with which the actor chose the actions.
        Behaviour = "behaviour",
        /// Those of the policy in the target, clipped.
        Target = "target",
    }
    /// What the network's matrices are computed in.
    Precision "precision" {
        /// 32-bit floats.
        F32 = "f32",
        /// 16-bit brain floats; weights, optimizer, loss and output layers stay f32.
        Bf16 = "bf16",
    }
    /// The priority of a new transition.
    InitialPriority "initial priority" {
        /// Computed from the network that acted.
        Computed = "computed",
        /// The largest priority so far.
        Largest = "largest",
    }
}

/// Where tensors live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The first GPU if there is one, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// One GPU, by number.
    Cuda(usize),
}

impl std::str::FromStr for Device {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| format!("expected auto, cpu, cuda or cuda:N, got '{text}'")),
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

text_by_from_str!(Device);

/// Samples per inserted transition; `none` decouples actors and learner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SamplesPerInsert(pub Option<f64>);

impl Text for SamplesPerInsert {
    fn read(text: &str) -> Result<Self, String> {
        optional_number(text).map(Self)
    }
    fn show(&self) -> String {
        show_optional(self.0)
    }
}

/// A reward in place of the environment's, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TerminationReward(pub Option<f64>);

impl Text for TerminationReward {
    fn read(text: &str) -> Result<Self, String> {
        optional_number(text).map(Self)
    }
    fn show(&self) -> String {
        show_optional(self.0)
    }
}

fn optional_number(text: &str) -> Result<Option<f64>, String> {
    match text.trim() {
        "none" => Ok(None),
        number => number.parse().map(Some).map_err(|_| format!("expected a number or none, got '{number}'")),
    }
}

fn show_optional(number: Option<f64>) -> String {
    number.map_or("none".into(), |number| number.to_string())
}

/// Numbers of shards, separated by commas, or `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardNumbers(pub BTreeSet<usize>);

impl Text for ShardNumbers {
    fn read(text: &str) -> Result<Self, String> {
        if matches!(text.trim(), "none" | "") {
            return Ok(Self::default());
        }
        let number = |text: &str| text.trim().parse::<usize>();
        let numbers: Result<BTreeSet<usize>, _> = text.split(',').map(number).collect();
        let numbers = numbers.map_err(|_| {
            format!("expected numbers of shards such as 0,3 (the first is 0) or none, got '{text}'")
        })?;
        Ok(Self(numbers))
    }
    fn show(&self) -> String {
        let numbers: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        if numbers.is_empty() { "none".into() } else { numbers.join(",") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_shards_are_a_set() {
        for (text, shown) in [("none", "none"), ("", "none"), ("2", "2"), ("3, 1,3", "1,3")] {
            assert_eq!(ShardNumbers::read(text).unwrap().show(), shown);
        }
        assert!(ShardNumbers::read("-1").is_err() && ShardNumbers::read("a").is_err());
    }

    #[test]
    fn choices_and_devices_round_trip() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3"] {
            assert_eq!(Device::read(text).unwrap().show(), text);
        }
        assert_eq!(Device::read("cuda"), Ok(Device::Cuda(0)));
        assert!(Device::read("cuda:x").is_err() && Device::read("gpu").is_err());
        for text in ["huber", "squared"] {
            assert_eq!(Loss::read(text).unwrap().show(), text);
        }
        assert!(Loss::read("cubed").unwrap_err().contains("huber, squared"));
    }
}
