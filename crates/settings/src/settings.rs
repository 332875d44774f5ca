//! The list of all settings: key, type, default and meaning.
//!
//! This list generates the fields of [`Settings`], the flags of `quiver train`, the keys of a TOML file, the `QUIVER_…`
//! variables and the output of `quiver config show`. Defaults are those of the paper's appendix (preset `paper-atari`); where it
//! states none, of the paper that it cites for that point (named), or of the authors' published code (marked *code*).
//! docs/paper.md compares each with its sources.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::algorithms::{self, Algorithm};
use crate::choices::{
    Device, EpsilonSchedule, EvaluationPolicy, InitialPriority, Loss, NStepEntropy, Precision, PressFire,
    RewardClip, SamplesPerInsert, ShardNumbers, TerminationReward,
};
use crate::networks::{self, Network};
use crate::text::Text;
use crate::units::{AgentSteps, Bytes, Episodes, Frames, Items, Updates};
use envs::{ActionSet, FrameMaximum};
use replay::codec::Codec;
use value::{Rho, Strategy};

/// The description of a setting.
#[derive(Debug)]
pub struct Setting {
    /// Key in a file; the flag is the same with dashes.
    pub key: &'static str,
    /// Heading of its group in the help.
    pub group: &'static str,
    /// Whether the value is a boolean, so that the flag without a value means true.
    pub is_switch: bool,
    about: &'static str,
    choices: fn() -> Vec<(&'static str, &'static str)>,
}

impl Setting {
    /// One or two sentences: meaning, unit, origin of the default, and the list of values if there is one.
    pub fn help(&self) -> String {
        let about = self.about.trim();
        let choices: Vec<String> =
            (self.choices)().iter().map(|(name, about)| format!("{name} ({about})")).collect();
        match choices.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{about} {} or {last}.", rest.join(", ")),
            Some((only, _)) => format!("{about} {only}."),
            None => about.to_owned(),
        }
    }
}

macro_rules! settings {
    ($($group:literal { $($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:expr;)* })*) => {
        /// The values of all settings of a run. [`Settings::validate`] checks them.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct Settings {
            $($($(#[doc = $doc])+ pub $key: $type,)*)*
        }

        /// All settings, in the order of the help.
        pub const SETTINGS: &[Setting] = &[$($(Setting {
            key: stringify!($key),
            group: $group,
            is_switch: <$type as Text>::IS_SWITCH,
            about: concat!($($doc),+),
            choices: <$type as Text>::choices,
        },)*)*];

        impl Settings {
            /// The defaults: preset `paper-atari`.
            pub fn paper() -> Self {
                Self { $($($key: $default,)*)* }
            }

            /// Sets one setting from text. `None` for an unknown key.
            pub fn set(&mut self, key: &str, text: &str) -> Option<Result<(), String>> {
                match key {
                    $($(stringify!($key) => Some(<$type as Text>::read(text).map(|value| self.$key = value)),)*)*
                    _ => None,
                }
            }

            /// Shows one setting as text that [`Settings::set`] accepts.
            pub fn get(&self, key: &str) -> Option<String> {
                match key {
                    $($(stringify!($key) => Some(Text::show(&self.$key)),)*)*
                    _ => None,
                }
            }
        }
    };
}

settings! {
    "Run" {
        /// Random seed; in lockstep the same seed repeats a run bit for bit.
        seed: u64 = 0;
        /// Frame budget: emulator frames after which training ends, such as 200k or 40M.
        frames: Frames = Frames(40_000_000);
        /// Device of the network: auto, cpu, cuda or cuda:N.
        device: Device = Device::Auto;
        /// Threads that libtorch may use.
        torch_threads: usize = 1;
        /// Train in one process with one thread of control, bit-for-bit repeatable, instead of in a cluster of processes.
        lockstep: bool = false;
        /// Actor processes.
        actors: u32 = 2;
        /// Environments (lanes) that each actor steps together.
        lanes: u32 = 8;
        /// Replay shards; each is a process.
        shards: u32 = 1;
        /// Shards that the run excludes because they are lost for good: comma-separated numbers from 0, or none.
        without_shards: ShardNumbers = ShardNumbers(BTreeSet::new());
        /// Frames between checkpoints.
        checkpoint_every_frames: Frames = Frames(1_000_000);
        /// Number of newest checkpoints to keep, besides the best and the final one.
        checkpoints_kept: u32 = 2;
    }
    "Evaluation" {
        /// Frames between evaluations (code: 100,000 agent steps).
        evaluate_every_frames: Frames = Frames(400_000);
        /// Episodes per evaluation during training.
        evaluate_episodes: u32 = 8;
        /// Episodes of the evaluation after training.
        evaluate_final_episodes: u32 = 30;
        /// Policy of the evaluated agent: greedy, or stochastic (code): softmax(Q/β) for soft-dqn, ε-greedy with epsilon_final for dqn and munchausen-dqn.
        evaluation_policy: EvaluationPolicy = EvaluationPolicy::Stochastic;
        /// After training, also evaluate baselines: a random player, the untrained network, and the best constant action (chosen by the scores that are reported, so biased upwards).
        baselines: bool = false;
    }
    "Environment" {
        /// Emulator frames per agent step; the action is repeated and the last two frames are max-pooled (Mnih et al.).
        frame_skip: u32 = 4;
        /// Maximum of the last two frames of a step: rgb (of each colour, before gray, as Mnih et al. and the code do) or gray (as Gymnasium's AtariPreprocessing does).
        frame_maximum: FrameMaximum = FrameMaximum::Rgb;
        /// Probability, per emulator frame, that the previous action is repeated instead (code: 0).
        sticky_actions: f64 = 0.0;
        /// An episode starts with 1 to this many no-op frames (Mnih et al.: at most 30); 0 for none.
        noop_max: u32 = 30;
        /// Available actions: minimal (those that have an effect in this game) or full (all 18).
        action_set: ActionSet = ActionSet::Minimal;
        /// Frames after which an episode is truncated; the default is 30 minutes of play.
        time_limit_frames: u32 = 108_000;
        /// Let a game become faster during an episode (MinAtar); other environments have no such choice.
        difficulty_ramping: bool = true;
        /// Frames stacked into one state.
        frame_stack: usize = 4;
        /// Treat a lost life as a terminal transition (no bootstrap) in training, like EpisodicLifeEnv; the game is not reset, and scores cover whole games (Mnih et al.).
        life_loss_ends: bool = true;
        /// A lost life ends the recorded episode in training, so that the frame stack is filled with the next observation as at a reset; it needs life_loss_ends (the authors' code: true).
        life_loss_refills: bool = false;
        /// Press FIRE and then action 2 in games whose action 1 is FIRE: never, games (when a game starts) or lives (also after each lost life in training, following a step of no-op; it needs life_loss_refills, and is what the authors' code does). These steps are not learned from.
        press_fire: PressFire = PressFire::Never;
        /// Reward clipping for learning: sign (Mnih et al.) or none (unchanged).
        reward_clip: RewardClip = RewardClip::Sign;
        /// Reward that the learner sees, unclipped, in place of the environment's when an episode terminates, or none; scores stay unchanged.
        termination_reward: TerminationReward = TerminationReward(None);
    }
    "Network" {
        /// The layers below the head:
        network: Network = networks::NATURE;
        /// Units of the hidden layer (of each, for mlp).
        hidden_units: usize = 512;
        /// Split the last hidden layer and the head into value and advantage, each with hidden_units units (Wang et al. 2016); earlier hidden layers are shared.
        dueling: bool = false;
        /// Arithmetic of the network's matrices in learner and actors: f32, or bf16, which is faster on CPUs with avx512_bf16 or AMX (others warn) and on GPUs; weights, optimizer, loss and output layers stay f32.
        precision: Precision = Precision::F32;
    }
    "Learning" {
        /// The algorithm:
        algorithm: Algorithm = algorithms::SOFT_DQN;
        /// Temperature of the soft policy, softmax(Q/temperature); the paper's β, not β_IS.
        temperature: f64 = 0.05;
        /// α of munchausen-dqn, whose reward is r + α·clip(β·log π(a|s), l₀, 0).
        munchausen_scale: f64 = 0.9;
        /// l₀ of munchausen-dqn, the lower bound of β·log π(a|s) in its reward.
        munchausen_floor: f64 = -1.0;
        /// γ, the discount per agent step.
        discount: f64 = 0.99;
        /// Step size of Adam.
        learning_rate: f64 = 1e-4;
        /// Final learning rate as a fraction of the first; it falls linearly, and 1 keeps it constant.
        learning_rate_decay: f64 = 1.0;
        /// ε of Adam.
        adam_epsilon: f64 = 1e-8;
        /// Transitions per update; at a fixed samples_per_insert, larger batches mean fewer updates.
        batch_size: usize = 32;
        /// Steps of reward before the bootstrap (n of n-step returns); the returns are not corrected for off-policy actions.
        n_step: u32 = 1;
        /// Entropy of the actions after the first in an n-step soft target, from log-probabilities of: behaviour (stored by the actor) or target (π of the network whose policy the bootstrap values: of the target network, or with double of the online network).
        n_step_entropy: NStepEntropy = NStepEntropy::Behaviour;
        /// Lower bound of β·log π(a|s) in those entropies with n_step_entropy = target; 0 leaves only rewards.
        n_step_entropy_floor: f64 = -1.0;
        /// Double Q-learning: choose the next policy with the online network and evaluate it with the target network.
        double: bool = false;
        /// Bootstrap also after a terminal transition, from the episode's last observation (no terminal mask).
        bootstrap_terminal: bool = false;
        /// Loss function: huber (Mnih et al.) or squared.
        loss: Loss = Loss::Huber;
        /// Each element of the gradient is clamped to ± this (code); 0 disables clamping.
        gradient_clamp: f64 = 1.0;
        /// Updates between copies of the online network to the target network (code: 10,000 agent steps).
        target_period_updates: Updates = Updates(2_500);
        /// Training episodes between copies to the target network; above 0 it replaces target_period_updates. In a cluster the learner counts the episodes that actors report.
        target_period_episodes: Episodes = Episodes(0);
        /// Updates after which the weights are published to the actors, or 0 for by time alone (in lockstep the actor always uses the newest).
        publish_every_updates: Updates = Updates(0);
        /// Seconds after which newer weights are published to the actors even before publish_every_updates, or 0 for by updates alone (ignored in lockstep).
        publish_every_seconds: f64 = 1.0;
        /// Batches to sample and unpack ahead of the update (ignored in lockstep).
        prefetch_batches: usize = 4;
    }
    "Exploration" {
        /// Agent steps of uniformly random actions at the start (Mnih et al.).
        random_steps: AgentSteps = AgentSteps(50_000);
        /// Initial ε: fraction of random actions mixed into the policy; the default of dqn and munchausen-dqn is 1.
        epsilon: f64 = 0.0;
        /// Final ε, after the decay; the default of dqn and munchausen-dqn is 0.01.
        epsilon_final: f64 = 0.0;
        /// Agent steps over which ε decays from its first to its final value.
        epsilon_decay_steps: AgentSteps = AgentSteps(250_000);
        /// Decay of ε: linear, geometric (by the same factor each step) or exponential (its distance from the final ε shrinks by the factor e over each epsilon_decay_steps, so it never reaches it).
        epsilon_schedule: EpsilonSchedule = EpsilonSchedule::Linear;
    }
    "Replay" {
        /// Priority of a transition in the replay:
        strategy: Strategy = Strategy::VER;
        /// ρ of strategy ver: max (the paper's text), old, or old-unit-temperature (the authors' code). ver-lower always uses the smaller of π_old and π_new.
        rho: Rho = Rho::Max;
        /// Transitions that the replay keeps, all shards together.
        capacity: Items = Items(1_000_000);
        /// Maximum bytes of compressed frames and steps, all shards together. A cluster allocates them as files in the run directory.
        replay_bytes: Bytes = Bytes(1 << 30);
        /// Frame compression: delta (differences from the previous frame), zstd or none.
        frame_codec: Codec = Codec::Delta;
        /// Agent steps per chunk that an actor sends (1 in lockstep).
        chunk_steps: u32 = 8;
        /// Transitions that the replay must hold before the first update (Mnih et al.).
        min_size: Items = Items(50_000);
        /// Transitions sampled per transition inserted, or none to decouple actors and learner; the paper's batch of 32 every 4 steps is 8.
        samples_per_insert: SamplesPerInsert = SamplesPerInsert(Some(8.0));
        /// PER's α: sampling probability ∝ (priority + priority_constant)^α (the paper writes α_IS).
        priority_exponent: f64 = 0.4;
        /// Added to each priority so that every transition can be sampled (code).
        priority_constant: f64 = 0.001;
        /// Priority of new transitions: largest (so far; Schaul et al.) or computed (by the actor, as in Ape-X; better with many actors).
        initial_priority: InitialPriority = InitialPriority::Largest;
        /// With initial_priority = largest: initial value of the running maximum, 1 in Schaul et al.; new transitions get it until a larger priority occurs (the authors' code: 0.1).
        first_priority: f64 = 1.0;
        /// β_IS at the start (PER's β); importance weights are divided by the largest of their batch.
        importance_exponent: f64 = 0.6;
        /// β_IS after annealing; not used while importance_anneal_updates is 0.
        importance_exponent_final: f64 = 1.0;
        /// Updates over which β_IS changes from its first to its final value, as Schaul et al. anneal it; 0 keeps the first. The default is the whole run of 40M frames.
        importance_anneal_updates: Updates = Updates(2_500_000);
        /// Stratified sampling: draw one transition from each of batch_size equal slices of the total weight.
        stratified: bool = true;
    }
}

impl Settings {
    /// The options for [`envs::make`], with the default ROM directory.
    pub fn environment(&self) -> envs::EnvOptions {
        envs::EnvOptions {
            frame_skip: self.frame_skip,
            frame_maximum: self.frame_maximum,
            sticky_actions: self.sticky_actions,
            noop_max: self.noop_max,
            action_set: self.action_set,
            time_limit_frames: self.time_limit_frames,
            difficulty_ramping: self.difficulty_ramping,
            roms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_round_trips_through_text() {
        let mut settings = Settings::paper();
        for setting in SETTINGS {
            let shown = settings.get(setting.key).expect(setting.key);
            settings.set(setting.key, &shown).expect(setting.key).expect(setting.key);
            assert_eq!(settings.get(setting.key).as_ref(), Some(&shown), "{}", setting.key);
            assert!(setting.help().ends_with('.'), "the help of {} is not a sentence", setting.key);
        }
        assert_eq!(settings, Settings::paper());
        assert_eq!(settings.set("no_such_key", "1"), None);
    }

    #[test]
    fn help_lists_the_choices() {
        let strategy = SETTINGS.iter().find(|setting| setting.key == "strategy").unwrap();
        assert!(
            strategy.help().contains(": uniform (every item alike), per (|TD|), "),
            "{}",
            strategy.help()
        );
    }

    #[test]
    fn only_boolean_settings_are_switches() {
        let switches: Vec<_> = SETTINGS.iter().filter(|s| s.is_switch).map(|s| s.key).collect();
        let expected = [
            "lockstep",
            "baselines",
            "difficulty_ramping",
            "life_loss_ends",
            "life_loss_refills",
            "dueling",
            "double",
            "bootstrap_terminal",
            "stratified",
        ];
        assert_eq!(switches, expected);
    }
}
