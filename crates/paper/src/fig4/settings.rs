//! Settings of figure 4's runs: the appendix's as they are, and ours.
//!
//! The appendix gives seven numbers for CartPole ([`TEXT`]) and no more. What it leaves open is chosen here once
//! ([`SILENT`]), for both algorithms alike, and listed in the report.

use anyhow::Result;
use settings::SETTINGS;
use settings::algorithms::{self, Algorithm};
use settings::{Layers, Resolved};
use value::Strategy;

/// What the appendix says of CartPole, as (setting, value); β is 0.5 and γ the paper's usual 0.99.
pub const TEXT: [(&str, &str); 6] = [
    ("hidden_units", "256"),
    ("learning_rate", "0.005"),
    ("capacity", "1000"),
    ("batch_size", "16"),
    ("temperature", "0.5"),
    ("discount", "0.99"),
];

/// Environment steps in all, as the appendix says.
pub const STEPS: u64 = 50_000;

/// Where the appendix is silent, as (setting, value, why).
pub const SILENT: [(&str, &str, &str); 14] = [
    ("samples_per_insert", "16", "one update per step"),
    ("strategy", "uniform", "the theorems are about experience as it comes"),
    ("stratified", "false", "each draw independent of the others"),
    ("n_step", "1", "the paper's target"),
    ("double", "false", "the paper's target"),
    ("dueling", "false", "two plain layers"),
    ("learning_rate_decay", "1", "no schedule is mentioned"),
    ("adam_epsilon", "0.00000001", "Adam's default"),
    ("loss", "huber", "as in the authors' code for Atari"),
    ("gradient_clamp", "1", "as in the authors' code for Atari"),
    ("target_period_updates", "100", "a tenth of the buffer"),
    ("min_size", "1000", "learning begins when the buffer is full"),
    ("random_steps", "1000", "random play until then"),
    ("reward_clip", "none", "rewards are 1 anyway"),
];

/// Agent steps over which DQN's ε falls from 1 to 0.01, as a share of the run.
const EPSILON_DECAY_SHARE: u64 = 10;

/// What every run of this figure has, wherever it happens.
const HERE: [(&str, &str); 3] = [("lockstep", "true"), ("device", "cpu"), ("torch_threads", "1")];

/// The appendix's settings for a run of `steps` steps; `changes` come last and win.
pub fn appendix(algorithm: Algorithm, seed: u64, steps: u64, changes: &[(&str, &str)]) -> Result<Resolved> {
    let silent = SILENT.iter().map(|&(key, text, _)| (key, text));
    let overrides: Vec<_> = TEXT.into_iter().chain(silent).chain(changes.iter().copied()).collect();
    resolve(algorithm, seed, steps, &overrides)
}

/// Our own: the preset `cartpole`, cut to `steps` steps if those are fewer than its own. It replays by VER, which is
/// not defined for DQN: that replays by |TD|.
pub fn ours(algorithm: Algorithm, seed: u64, steps: u64) -> Result<Resolved> {
    let strategy: &[_] = if algorithm.accepts(Strategy::VER) { &[] } else { &[("strategy", "per")] };
    resolve(algorithm, seed, steps.min(steps_of_preset()?), strategy)
}

/// How long our preset trains.
pub fn steps_of_preset() -> Result<u64> {
    Ok(Layers::default().resolve(Some(envs::CARTPOLE))?.settings.frames.0)
}

/// Where our settings differ from those of the appendix's runs, for soft DQN, as (setting, value).
pub fn differences() -> Vec<(&'static str, String)> {
    let all = (appendix(algorithms::SOFT_DQN, 0, STEPS, &[]), ours(algorithms::SOFT_DQN, 0, STEPS));
    let (Ok(appendix), Ok(ours)) = all else { return Vec::new() };
    let both = SETTINGS.iter().map(|setting| setting.key);
    let both = both.map(|key| (key, appendix.settings.get(key), ours.settings.get(key)));
    both.filter(|(_, theirs, ours)| theirs != ours)
        .map(|(key, _, ours)| (key, ours.unwrap_or_default()))
        .collect()
}

fn resolve(algorithm: Algorithm, seed: u64, steps: u64, overrides: &[(&str, &str)]) -> Result<Resolved> {
    let decay = (steps / EPSILON_DECAY_SHARE).to_string();
    let (algorithm, seed, steps) = (algorithm.to_string(), seed.to_string(), steps.to_string());
    let run = [("algorithm", algorithm), ("seed", seed), ("frames", steps), ("epsilon_decay_steps", decay)];
    let text = HERE.iter().chain(overrides).map(|&(key, text)| (key.to_owned(), text.to_owned()));
    let flags = run.map(|(key, text)| (key.to_owned(), text)).into_iter().chain(text).collect();
    Ok(Layers { flags, ..Layers::default() }.resolve(Some(envs::CARTPOLE))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_appendix_is_as_the_paper_has_it() {
        for algorithm in [algorithms::DQN, algorithms::SOFT_DQN] {
            let settings = appendix(algorithm, 3, STEPS, &[]).unwrap().settings;
            assert_eq!((settings.frames.0, settings.hidden_units, settings.capacity.0), (50_000, 256, 1_000));
            assert_eq!((settings.learning_rate, settings.learning_rate_decay), (0.005, 1.0));
            assert_eq!((settings.batch_size, settings.temperature, settings.discount), (16, 0.5, 0.99));
            assert_eq!((settings.samples_per_insert.0, settings.seed), (Some(16.0), 3));
            assert_eq!((settings.algorithm, settings.lockstep), (algorithm, true));
        }
        assert_eq!(appendix(algorithms::DQN, 0, STEPS, &[]).unwrap().settings.epsilon, 1.0);
        assert_eq!(appendix(algorithms::SOFT_DQN, 0, STEPS, &[]).unwrap().settings.epsilon, 0.0);
    }

    #[test]
    fn ours_is_the_preset_and_no_longer() {
        let preset = Layers::default().resolve(Some("cartpole")).unwrap().settings;
        let settings = ours(algorithms::SOFT_DQN, 0, 1_000_000).unwrap().settings;
        assert_eq!(settings.frames, preset.frames);
        assert_eq!((settings.strategy, settings.temperature), (preset.strategy, preset.temperature));
        assert_eq!(ours(algorithms::DQN, 0, 5_000).unwrap().settings.frames.0, 5_000);
        let keys: Vec<_> = differences().into_iter().map(|(key, _)| key).collect();
        assert!(
            keys.contains(&"n_step") && keys.contains(&"double") && !keys.contains(&"discount"),
            "{keys:?}"
        );
    }
}
