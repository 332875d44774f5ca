//! Presets: named settings. Each lists its differences from the paper's appendix.

use crate::Settings;
use crate::algorithms::Algorithm;
use crate::nearest::hint;

mod cartpole;

/// A named set of settings.
#[derive(Debug)]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// One sentence for help and for `quiver config show`.
    pub about: &'static str,
    /// A game that the preset is for. It is for every environment of that game's suite.
    pub example_game: &'static str,
    /// Differences from [`Settings::paper`], as (key, text).
    pub differences: &'static [(&'static str, &'static str)],
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "paper-atari",
        about: "the paper's text, 40M frames, rho = max; where it is silent, the papers that it cites, then the authors' code",
        example_game: ATARI,
        differences: &[],
    },
    Preset {
        name: "authors-atari",
        about: "the authors' code: rho of the old policy at temperature 1, exponents 0.6 and 0.4 to 1, FIRE",
        example_game: ATARI,
        differences: &[
            ("evaluate_episodes", "10"),
            ("life_loss_refills", "true"),
            ("press_fire", "lives"),
            ("rho", "old-unit-temperature"),
            ("priority_exponent", "0.6"),
            ("first_priority", "0.1"),
            ("importance_exponent", "0.4"),
        ],
    },
    Preset {
        name: "quick",
        about: "an Atari game on two CPU cores in less than 40 minutes: small network, sticky actions",
        example_game: ATARI,
        differences: QUICK,
    },
    Preset {
        name: "cartpole",
        about: "CartPole, solved (195 of 200) in about a minute",
        example_game: "cartpole",
        differences: CARTPOLE,
    },
    Preset {
        name: "paper-cartpole",
        about: "CartPole as the paper's text describes it, 50,000 steps; unstated settings from the authors' notebooks",
        example_game: "cartpole",
        differences: cartpole::PAPER,
    },
    Preset {
        name: "authors-cartpole",
        about: "CartPole as in the authors' notebooks: -5 on failure, no terminal mask, learning rate 5e-4",
        example_game: "cartpole",
        differences: cartpole::AUTHORS,
    },
    Preset {
        name: "minatar",
        about: "MinAtar on two CPU cores: one frame of 10x10, a small network, sticky actions of 0.1",
        example_game: "minatar_breakout",
        differences: MINATAR,
    },
];

/// Values that a preset has for one algorithm only.
struct ForAlgorithm {
    preset: &'static str,
    algorithm: Algorithm,
    differences: &'static [(&'static str, &'static str)],
}

const FOR_ALGORITHM: &[ForAlgorithm] = cartpole::FOR_ALGORITHM;

const ATARI: &str = "pong";

const QUICK: &[(&str, &str)] = &[
    ("frames", "500000"),
    ("actors", "1"),
    ("network", "small"),
    ("hidden_units", "256"),
    ("frame_maximum", "gray"),
    ("sticky_actions", "0.25"),
    ("temperature", "0.005"),
    ("learning_rate", "0.0005"),
    ("learning_rate_decay", "0.1"),
    ("n_step", "3"),
    ("capacity", "200000"),
    ("replay_bytes", "256MiB"),
    ("min_size", "5000"),
    ("random_steps", "5000"),
    ("initial_priority", "computed"),
    ("importance_anneal_updates", "0"),
    ("target_period_updates", "500"),
    ("evaluate_every_frames", "50000"),
    ("checkpoint_every_frames", "100000"),
    ("baselines", "true"),
];

const CARTPOLE: &[(&str, &str)] = &[
    ("frames", "20000"),
    ("lanes", "1"),
    ("network", "mlp"),
    ("hidden_units", "128"),
    ("frame_stack", "1"),
    ("frame_skip", "1"),
    ("noop_max", "0"),
    ("time_limit_frames", "200"),
    ("reward_clip", "none"),
    ("life_loss_ends", "false"),
    ("temperature", "0.1"),
    ("n_step", "3"),
    ("learning_rate", "0.001"),
    ("learning_rate_decay", "0.05"),
    ("adam_epsilon", "0.0001"),
    ("gradient_clamp", "0"),
    ("double", "true"),
    ("batch_size", "128"),
    ("samples_per_insert", "128"),
    ("chunk_steps", "1"),
    ("publish_every_updates", "10"),
    ("target_period_updates", "200"),
    ("capacity", "20000"),
    ("replay_bytes", "64MiB"),
    ("frame_codec", "none"),
    ("min_size", "1000"),
    ("random_steps", "1000"),
    ("initial_priority", "computed"),
    ("importance_anneal_updates", "0"),
    ("epsilon_decay_steps", "5000"),
    ("evaluation_policy", "greedy"),
    ("evaluate_every_frames", "5000"),
    ("evaluate_final_episodes", "100"),
    ("checkpoint_every_frames", "10000"),
];

const MINATAR: &[(&str, &str)] = &[
    ("frames", "500000"),
    ("actors", "1"),
    ("lanes", "4"),
    ("network", "minatar"),
    ("hidden_units", "128"),
    ("frame_stack", "1"),
    ("frame_skip", "1"),
    ("noop_max", "0"),
    ("sticky_actions", "0.1"),
    ("time_limit_frames", "5000"),
    ("reward_clip", "none"),
    ("life_loss_ends", "false"),
    ("temperature", "0.02"),
    ("learning_rate", "0.0005"),
    ("learning_rate_decay", "0.1"),
    ("n_step", "3"),
    ("capacity", "100000"),
    ("replay_bytes", "128MiB"),
    ("min_size", "5000"),
    ("random_steps", "5000"),
    ("initial_priority", "computed"),
    ("importance_anneal_updates", "0"),
    ("publish_every_updates", "25"),
    ("target_period_updates", "500"),
    ("evaluate_every_frames", "50000"),
    ("evaluate_episodes", "20"),
    ("evaluate_final_episodes", "100"),
    ("checkpoint_every_frames", "100000"),
    ("baselines", "true"),
];

/// The preset of that name. The error suggests the nearest name.
pub fn find(name: &str) -> Result<&'static Preset, String> {
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        format!(
            "unknown preset '{name}'{}: choose from {}",
            hint(name, names.iter().copied()),
            names.join(", ")
        )
    })
}

impl Preset {
    /// Whether the preset is for `game`: its example game and `game` are of one suite.
    pub fn is_for(&self, game: &str) -> bool {
        let suite = |name: &str| envs::find(name).map(|entry| entry.suite);
        matches!((suite(self.example_game), suite(game)), (Ok(own), Ok(other)) if own == other)
    }

    /// Values that differ for one algorithm, as (algorithm, key, text), because the preset's source has a program for each.
    /// They replace those of [`Preset::settings`] when that algorithm is chosen, unless the user sets them.
    pub fn for_algorithms(&self) -> impl Iterator<Item = (Algorithm, &'static str, &'static str)> {
        let own = FOR_ALGORITHM.iter().filter(|own| own.preset == self.name);
        own.flat_map(|own| own.differences.iter().map(|(key, text)| (own.algorithm, *key, *text)))
    }

    /// All settings of the preset.
    ///
    /// # Panics
    /// If the preset itself is misspelt, which a test rules out.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::paper();
        for (key, text) in self.differences {
            settings
                .set(key, text)
                .expect("a preset names known keys")
                .expect("a preset's values can be read");
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_readable_and_valid() {
        for preset in PRESETS {
            assert_eq!(preset.settings().validate(preset.example_game), Ok(()), "{}", preset.name);
        }
    }

    #[test]
    fn values_for_an_algorithm_name_a_preset_and_are_valid_with_it() {
        for ForAlgorithm { preset: name, algorithm, differences } in FOR_ALGORITHM {
            let preset = find(name).unwrap();
            let mut settings = preset.settings();
            settings.algorithm = *algorithm;
            for (key, text) in *differences {
                assert_ne!(settings.get(key).as_deref(), Some(*text), "{name}: {key} is the preset's own");
                settings.set(key, text).unwrap().unwrap();
            }
            assert_eq!(settings.validate(preset.example_game), Ok(()), "{name}");
        }
    }

    #[test]
    fn every_environment_has_a_default_preset_that_is_for_it() {
        for entry in envs::entries() {
            let preset = find(entry.default_preset).unwrap();
            assert!(preset.is_for(entry.name), "{}: {}", entry.name, preset.name);
            assert_eq!(preset.settings().validate(entry.name), Ok(()), "{}", entry.name);
        }
    }

    #[test]
    fn an_unknown_preset_suggests_the_nearest() {
        assert!(find("paper-atarri").unwrap_err().contains("did you mean 'paper-atari'"));
    }
}
