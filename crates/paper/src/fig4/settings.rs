//! Settings of figure 4's runs: presets `paper-cartpole` and `authors-cartpole`, unchanged except for seed and length.

use anyhow::Result;
use settings::algorithms::{self, Algorithm};
use settings::{Layers, Resolved, presets};

/// A source of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The paper's text.
    Paper,
    /// The authors' notebooks.
    Authors,
}

impl Source {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Paper, Self::Authors];

    /// The preset with its settings.
    pub fn preset(self) -> &'static str {
        match self {
            Self::Paper => "paper-cartpole",
            Self::Authors => "authors-cartpole",
        }
    }
}

/// A learner of the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureLearner {
    pub algorithm: Algorithm,
    /// Whether it uses double Q-learning.
    pub double: bool,
}

/// Plain DQN.
pub const DQN: FigureLearner = FigureLearner { algorithm: algorithms::DQN, double: false };
/// Double DQN. The notebook of DQN instantiates a class `DDQNAgent` and defines only `DQNAgent`, so both are run.
pub const DOUBLE_DQN: FigureLearner = FigureLearner { algorithm: algorithms::DQN, double: true };
/// Soft DQN.
pub const SOFT_DQN: FigureLearner = FigureLearner { algorithm: algorithms::SOFT_DQN, double: false };

impl FigureLearner {
    /// All, in the order of tables and pictures.
    pub const ALL: [Self; 3] = [DQN, DOUBLE_DQN, SOFT_DQN];

    /// The name in titles.
    pub fn title(self) -> String {
        if self.double { format!("double {}", self.algorithm.title) } else { self.algorithm.title.to_owned() }
    }
}

/// Environment steps of the experiment, according to the text and to the notebooks.
pub const STEPS: u64 = 50_000;

/// What every run of this figure has, on every machine.
const HERE: [(&str, &str); 3] = [("lockstep", "true"), ("device", "cpu"), ("torch_threads", "1")];

/// The settings of a run of `steps` steps; `changes` come last and win.
pub fn resolve(
    source: Source,
    learner: FigureLearner,
    seed: u64,
    steps: u64,
    changes: &[(&str, &str)],
) -> Result<Resolved> {
    let run = [
        ("algorithm", learner.algorithm.to_string()),
        ("double", learner.double.to_string()),
        ("seed", seed.to_string()),
        ("frames", steps.to_string()),
    ];
    let here = HERE.iter().chain(changes).map(|(key, text)| (*key, (*text).to_owned()));
    let flags = run.into_iter().chain(here).map(|(key, text)| (key.to_owned(), text)).collect();
    let layers = Layers { preset: Some(source.preset()), flags, ..Layers::default() };
    Ok(layers.resolve(Some(envs::CARTPOLE))?)
}

/// The values of a preset as (key, value), those for one algorithm only with its name behind the key.
pub fn listed(source: Source) -> Vec<(String, &'static str)> {
    let Ok(preset) = presets::find(source.preset()) else { return Vec::new() };
    let shared = preset.differences.iter().map(|(key, text)| ((*key).to_owned(), *text));
    let own = preset.for_algorithms().map(|(algorithm, key, text)| (format!("{key} of {algorithm}"), text));
    shared.chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_the_settings_of_their_preset() {
        let settings = |source, learner| resolve(source, learner, 3, STEPS, &[]).unwrap().settings;
        for learner in FigureLearner::ALL {
            let (text, code) = (settings(Source::Paper, learner), settings(Source::Authors, learner));
            assert_eq!((text.learning_rate, text.temperature, text.capacity.0), (0.005, 0.5, 1_000));
            assert_eq!((code.learning_rate, code.temperature), (0.0005, 0.25));
            let is_soft = learner == SOFT_DQN;
            assert_eq!(code.capacity.0, if is_soft { 1_000 } else { 10_000 });
            assert_eq!((code.termination_reward.0, code.bootstrap_terminal), (Some(-5.0), true));
            for settings in [text, code] {
                assert_eq!((settings.frames.0, settings.seed, settings.lockstep), (STEPS, 3, true));
                assert_eq!((settings.algorithm, settings.double), (learner.algorithm, learner.double));
                assert_eq!(settings.random_steps.0, if is_soft { 1_000 } else { 0 });
                assert_eq!(settings.epsilon, if is_soft { 0.0 } else { 1.0 });
            }
        }
        assert!(listed(Source::Authors).contains(&("capacity of dqn".to_owned(), "10000")));
    }
}
