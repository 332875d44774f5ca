//! Every setting of a run, once: its key, its type, its default and what it means.
//!
//! From this one list come the fields of [`Settings`], the flags of `quiver train`, the keys of a TOML file,
//! the `QUIVER_…` variables and what `quiver config show` prints. A default without a remark is the paper's
//! appendix (preset `paper-atari`); where the text is silent, the authors' published code (marked *code*).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::algorithms::{self, Algorithm};
use crate::choices::{
    Device, EvaluationPolicy, InitialPriority, Loss, RewardClip, SamplesPerInsert, ShardNumbers,
};
use crate::networks::{self, Network};
use crate::text::Text;
use crate::units::{AgentSteps, Bytes, Frames, Items, Updates};
use envs::ActionSet;
use replay::codec::Codec;
use value::{Rho, Strategy};

/// What is known of a setting before it has a value.
#[derive(Debug)]
pub struct Setting {
    /// Key in a file; the flag is the same with dashes.
    pub key: &'static str,
    /// Heading under which help shows it.
    pub group: &'static str,
    /// Whether the value is true or false, so that the bare flag means true.
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
        /// A run's settings, each with a value. Which values go together is [`Settings::validate`]'s business.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct Settings {
            $($($(#[doc = $doc])+ pub $key: $type,)*)*
        }

        /// All settings in the order in which people read them.
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

            /// Sets one setting from text. `None`: there is no such key.
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
        /// Seed of everything random: the same seed gives the same run in lockstep.
        seed: u64 = 0;
        /// When training ends, in emulator frames, such as 200k or 40M.
        frames: Frames = Frames(40_000_000);
        /// Where the network lives: auto, cpu, cuda or cuda:N.
        device: Device = Device::Auto;
        /// Threads libtorch may use.
        torch_threads: usize = 1;
        /// One thread of control, bit for bit repeatable, instead of a cluster of processes.
        lockstep: bool = false;
        /// Actor processes.
        actors: u32 = 2;
        /// Environments that one actor steps side by side.
        lanes: u32 = 1;
        /// Replay shards, each a process.
        shards: u32 = 1;
        /// Shards that the run goes on without, by number from 0 and separated by commas, or none: for one that is lost for good.
        without_shards: ShardNumbers = ShardNumbers(BTreeSet::new());
        /// Frames between checkpoints.
        checkpoint_every_frames: Frames = Frames(1_000_000);
        /// How many of the newest checkpoints are kept, besides the best and the final one.
        checkpoints_kept: u32 = 2;
    }
    "Evaluation" {
        /// Frames between evaluations (code: 100,000 agent steps).
        evaluate_every_frames: Frames = Frames(400_000);
        /// Episodes per evaluation during training.
        evaluate_episodes: u32 = 8;
        /// Episodes of the evaluation after training.
        evaluate_final_episodes: u32 = 30;
        /// How the evaluated agent acts: stochastic (code) or greedy.
        evaluation_policy: EvaluationPolicy = EvaluationPolicy::Stochastic;
        /// After training, also play as a random player, as the untrained network and with each action held for ever.
        baselines: bool = false;
    }
    "Environment" {
        /// Emulator frames per decision; the action is repeated and the last two frames are pooled (code).
        frame_skip: u32 = 4;
        /// Probability, per emulator frame, that the previous action is repeated instead (code: none).
        sticky_actions: f64 = 0.0;
        /// An episode starts with 1 to this many frames of no-op (code); 0 for none.
        noop_max: u32 = 30;
        /// Actions offered: minimal (those that do something in this game) or full (all 18).
        action_set: ActionSet = ActionSet::Minimal;
        /// Frames after which an episode is cut short (a truncation, not an end); 30 minutes of play.
        time_limit_frames: u32 = 108_000;
        /// Frames that make up one state.
        frame_stack: usize = 4;
        /// Whether a lost life ends the return in training (code); scores always count whole games.
        life_loss_ends: bool = true;
        /// Rewards as the learner sees them: sign (code) or none (unchanged).
        reward_clip: RewardClip = RewardClip::Sign;
    }
    "Network" {
        /// The layers below the head:
        network: Network = networks::NATURE;
        /// Units of the hidden layer (of both, for mlp).
        hidden_units: usize = 512;
        /// Split the head into value and advantage.
        dueling: bool = false;
    }
    "Learning" {
        /// What is learned:
        algorithm: Algorithm = algorithms::SOFT_DQN;
        /// β, the temperature of the soft policy.
        temperature: f64 = 0.05;
        /// α of munchausen-dqn: the share of the log-policy that is added to the reward.
        munchausen_scale: f64 = 0.9;
        /// l₀ of munchausen-dqn: the log-policy times β counts as at least this.
        munchausen_floor: f64 = -1.0;
        /// γ, per decision.
        discount: f64 = 0.99;
        /// Adam's step size.
        learning_rate: f64 = 1e-4;
        /// The share of the learning rate that is left at the end, reached linearly; 1 keeps it constant.
        learning_rate_decay: f64 = 1.0;
        /// Adam's ε.
        adam_epsilon: f64 = 1e-8;
        /// Transitions per update; at the same samples_per_insert, larger batches mean fewer updates.
        batch_size: usize = 32;
        /// Rewards summed before the bootstrap.
        n_step: u32 = 1;
        /// Choose the next policy with the online network and value it with the target network.
        double: bool = false;
        /// huber (code) or squared.
        loss: Loss = Loss::Huber;
        /// Each element of the gradient is clamped to ± this (code); 0 leaves it alone.
        gradient_clamp: f64 = 1.0;
        /// Updates between copies of the online network to the target network (code: 10,000 agent steps).
        target_period_updates: Updates = Updates(2_500);
        /// Updates between two publications of the weights to the actors (in lockstep they always act with the newest).
        publish_every_updates: Updates = Updates(25);
        /// Batches that are sampled and unpacked ahead of the update (none in lockstep).
        prefetch_batches: usize = 2;
    }
    "Exploration" {
        /// Agent steps of uniformly random play at the start (code).
        random_steps: AgentSteps = AgentSteps(50_000);
        /// Share of random actions mixed into the policy at the start; ε-greedy algorithms start at 1 unless you set it.
        epsilon: f64 = 0.0;
        /// Share of random actions after the decay; ε-greedy algorithms end at 0.01 unless you set it.
        epsilon_final: f64 = 0.0;
        /// Agent steps over which epsilon goes from its first to its final value.
        epsilon_decay_steps: AgentSteps = AgentSteps(250_000);
    }
    "Replay" {
        /// Priority of a transition in the replay:
        strategy: Strategy = Strategy::VER;
        /// What ρ is for ver: max (the paper's text), old, or old-unit-temperature (the authors' code). ver-lower always takes the smaller of π_old and π_new.
        rho: Rho = Rho::Max;
        /// Transitions kept.
        capacity: Items = Items(1_000_000);
        /// Bytes of packed frames and steps kept, at most. In a cluster a file of this size is in the run's directory.
        replay_bytes: Bytes = Bytes(1 << 30);
        /// How frames are packed: delta (changes to the frame before), zstd or none.
        frame_codec: Codec = Codec::Delta;
        /// Agent steps that an actor sends together (one in lockstep).
        chunk_steps: u32 = 8;
        /// Transitions in the replay before the first update (code).
        min_size: Items = Items(50_000);
        /// Samples taken per transition inserted; the paper's update of 32 every 4 steps is 8.
        samples_per_insert: SamplesPerInsert = SamplesPerInsert(Some(8.0));
        /// α_IS: priorities are raised to this power.
        priority_exponent: f64 = 0.4;
        /// Added to each priority so that nothing starves (code).
        priority_constant: f64 = 0.001;
        /// Priority with which new transitions enter: computed by the actor, or the largest so far.
        initial_priority: InitialPriority = InitialPriority::Computed;
        /// What the largest priority is before there is one.
        first_priority: f64 = 1.0;
        /// β_IS: exponent of the importance weights at the start.
        importance_exponent: f64 = 0.6;
        /// β_IS after annealing.
        importance_exponent_final: f64 = 1.0;
        /// Updates over which β_IS goes from its first to its final value; 0 keeps the first.
        importance_anneal_updates: Updates = Updates(0);
        /// Draw one sample from each of batch_size equal slices of the priority mass.
        stratified: bool = true;
    }
}

impl Settings {
    /// How the game is played, for [`envs::make`]; ROMs are where they usually are.
    pub fn environment(&self) -> envs::Options {
        envs::Options {
            frame_skip: self.frame_skip,
            sticky_actions: self.sticky_actions,
            noop_max: self.noop_max,
            action_set: self.action_set,
            time_limit_frames: self.time_limit_frames,
            roms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_shows_what_it_reads() {
        let mut settings = Settings::paper();
        for setting in SETTINGS {
            let shown = settings.get(setting.key).expect(setting.key);
            settings.set(setting.key, &shown).expect(setting.key).expect(setting.key);
            assert_eq!(settings.get(setting.key).as_ref(), Some(&shown), "{}", setting.key);
            assert!(setting.help().ends_with('.'), "{} has no sentence of help", setting.key);
        }
        assert_eq!(settings, Settings::paper());
        assert_eq!(settings.set("no_such_key", "1"), None);
    }

    #[test]
    fn help_lists_what_can_be_chosen() {
        let strategy = SETTINGS.iter().find(|setting| setting.key == "strategy").unwrap();
        assert!(
            strategy.help().contains(": uniform (every item alike), per (|TD|), "),
            "{}",
            strategy.help()
        );
    }

    #[test]
    fn only_true_or_false_settings_are_switches() {
        let switches: Vec<_> = SETTINGS.iter().filter(|s| s.is_switch).map(|s| s.key).collect();
        assert_eq!(switches, ["lockstep", "baselines", "life_loss_ends", "dueling", "double", "stratified"]);
    }
}
