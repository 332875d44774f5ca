//! Plans the runs of a sweep: games × variants × seeds, each with its settings, its name and its directory.
//!
//! A variant is one combination of the varied settings' values. Everything here is computed before the first run starts,
//! so that a typo in the last value is refused at once instead of after days of training.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use run::checkpoint::numbers;
use run::command::{Sweep, Vary};
use run::directory::checkpoints;
use settings::resolve::Layers;
use settings::{Resolved, SETTINGS};
use value::Strategy;

/// The settings that are part of each run's name, varied or not, besides the game.
pub const OWN: [&str; 2] = ["seed", STRATEGY];

const STRATEGY: &str = "strategy";

/// A mistyped sweep can ask for millions of runs. This many take years on most machines.
const RUNS_MAX: u64 = 10_000;

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// `boxing-ver-seed0`, or `boxing-ver-temperature0.02-seed0` if the temperature is varied.
    pub name: String,
    /// The game's canonical name.
    pub game: String,
    /// Its values of the varied settings, as (key, text).
    pub variant: Vec<(String, String)>,
    pub strategy: Strategy,
    pub seed: u64,
    pub resolved: Resolved,
    /// The run directory.
    pub path: PathBuf,
    /// The file with all settings, from which it starts.
    pub config: PathBuf,
    /// The file with its output.
    pub log: PathBuf,
}

impl Run {
    /// `strategy=ver,temperature=0.02`; empty if only games and seeds are varied.
    pub fn label(&self) -> String {
        label(&self.variant)
    }

    /// Frames at which its training ends.
    pub fn budget(&self) -> u64 {
        self.resolved.settings.frames.0
    }

    /// Whether it has trained to its end.
    pub fn is_finished(&self) -> bool {
        checkpoints(&self.path).join("final").is_dir()
    }

    /// The frame from which it would resume. `None` without a checkpoint: its weights are lost, and the shards'
    /// transitions would come from another network than the resumed one.
    pub fn resumes_at(&self) -> Option<u64> {
        let newest = numbers(&checkpoints(&self.path)).last().copied();
        newest.filter(|_| self.path.join("config.toml").is_file())
    }

    /// The arguments of `quiver` that start or resume it. In both cases the run exits when its stdin closes.
    pub fn arguments(&self) -> Vec<String> {
        let [path, config] = [&self.path, &self.config].map(|path| path.display().to_string());
        let words = match self.resumes_at() {
            Some(_) => vec!["train", "--exit-with-parent", "--resume", &path],
            None => vec!["train", "--exit-with-parent", "--config", &config, "--run-dir", &path],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

/// `strategy=ver,temperature=0.02`.
pub fn label(variant: &[(String, String)]) -> String {
    let pairs: Vec<String> = variant.iter().map(|(key, text)| format!("{key}={text}")).collect();
    pairs.join(",")
}

/// All runs of a sweep, ordered by seed, so that a sweep that is stopped early leaves complete comparisons. Fails if the
/// settings of any run are not valid, or if two runs are the same.
pub fn runs(out: &Path, first_seed: u64, sweep: &Sweep) -> Result<Vec<Run>> {
    let variants = sweep.vary.iter().map(|axis| axis.values.len() as u64);
    let count = [sweep.games.len() as u64, sweep.seeds].into_iter().chain(variants);
    let count = count.fold(1, u64::saturating_mul);
    if count > RUNS_MAX {
        bail!("the sweep would have {count} runs, more than {RUNS_MAX}: give fewer games, values or seeds");
    }
    let variants = variants_of(&sweep.vary);
    let (mut runs, mut names) = (Vec::new(), BTreeSet::new());
    for number in 0..sweep.seeds {
        for game in &sweep.games {
            for variant in &variants {
                let run = plan(out, sweep, game, variant, first_seed.wrapping_add(number))?;
                if !names.insert(run.name.clone()) {
                    bail!("{} is planned twice: give each game and each value once", run.name);
                }
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// All combinations of values. The strategy comes first, then the order of [`SETTINGS`], so that names do not depend on
/// the order of the arguments.
fn variants_of(vary: &[Vary]) -> Vec<Vec<(String, String)>> {
    let mut axes: Vec<&Vary> = vary.iter().collect();
    let place = |key: &str| SETTINGS.iter().position(|setting| setting.key == key);
    axes.sort_by_key(|axis| (axis.key != STRATEGY, place(&axis.key)));
    let mut variants = vec![Vec::new()];
    for Vary { key, values } in axes {
        let longer = |variant: &Vec<(String, String)>| {
            let variant = variant.clone();
            let with = move |text: &String| [variant.clone(), vec![(key.clone(), text.clone())]].concat();
            values.iter().map(with).collect::<Vec<_>>()
        };
        variants = variants.iter().flat_map(longer).collect();
    }
    variants
}

fn plan(out: &Path, sweep: &Sweep, game: &str, variant: &[(String, String)], seed: u64) -> Result<Run> {
    let own = [("seed".to_owned(), seed.to_string())];
    let layers = Layers { flags: [&sweep.flags[..], variant, &own].concat(), ..layers(sweep) };
    let resolved = layers.resolve(Some(game)).map_err(|error| match variant {
        [] => anyhow!("{game}: {error}"),
        variant => anyhow!("{game} with {}: {error}", label(variant)),
    })?;
    // The settings' own spelling of a value: 0.02 for 0.020.
    let canonical = |(key, text): &(String, String)| {
        (key.clone(), resolved.settings.get(key).unwrap_or_else(|| text.clone()))
    };
    let variant: Vec<_> = variant.iter().map(canonical).collect();
    let (game, strategy) = (resolved.game.clone(), resolved.settings.strategy);
    let name = format!("{game}-{strategy}{}-seed{seed}", suffix(&variant));
    let path = out.join("runs").join(&name);
    let config = out.join("configs").join(format!("{name}.toml"));
    let log = out.join("logs").join(format!("{name}.log"));
    Ok(Run { name, game, variant, strategy, seed, resolved, path, config, log })
}

/// The settings that all runs share, before a game's preset is known.
pub fn layers(sweep: &Sweep) -> Layers<'_> {
    Layers {
        preset: sweep.preset.as_deref(),
        file: sweep.config.as_deref(),
        environment: sweep.environment.clone(),
        flags: sweep.flags.clone(),
    }
}

/// The part of a name for varied settings other than the strategy: `-temperature0.02-network-small`.
fn suffix(variant: &[(String, String)]) -> String {
    let part = |(key, text): &(String, String)| {
        let safe = |char: char| if char.is_ascii_alphanumeric() || "._-".contains(char) { char } else { '-' };
        let text: String = text.chars().map(safe).collect();
        // A word is set off from the key; a number need not be.
        let dash = if text.starts_with(|char: char| char.is_ascii_digit()) { "" } else { "-" };
        format!("-{}{dash}{text}", key.replace('_', "-"))
    };
    variant.iter().filter(|(key, _)| key != STRATEGY).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sweep, vary};

    fn names(sweep: &Sweep) -> Vec<String> {
        runs(Path::new("out"), 4, sweep).unwrap().into_iter().map(|run| run.name).collect()
    }

    fn refused(sweep: &Sweep) -> String {
        runs(Path::new("out"), 4, sweep).unwrap_err().to_string()
    }

    #[test]
    fn every_game_strategy_and_seed_is_its_own_run() {
        let runs = runs(Path::new("out"), 4, &sweep(5_000)).unwrap();
        assert_eq!(runs.len(), 6);
        assert_eq!((&*runs[0].name, &*runs[5].name), ("cartpole-uniform-seed4", "cartpole-ver-seed5"));
        assert_eq!((&*runs[1].label(), runs[1].seed), ("strategy=per", 4));
        assert_eq!(runs[1].resolved.settings.frames.0, 5_000);
        let words = runs[1].arguments().join(" ");
        let name = "cartpole-per-seed4";
        assert_eq!(
            words,
            format!("train --exit-with-parent --config out/configs/{name}.toml --run-dir out/runs/{name}")
        );
        assert!(runs[1].resumes_at().is_none() && !runs[1].is_finished());
    }

    #[test]
    fn every_combination_of_values_is_a_variant_with_a_name_that_does_not_depend_on_their_order() {
        let axes = [vary("network", "mlp"), vary("temperature", "0.020,0.1"), vary("strategy", "ver,per")];
        let of = |axes: Vec<Vary>| Sweep { vary: axes, seeds: 1, ..sweep(5_000) };
        let names = names(&of(axes.to_vec()));
        assert_eq!(
            names,
            [("ver", "0.02"), ("ver", "0.1"), ("per", "0.02"), ("per", "0.1")].map(
                |(strategy, temperature)| {
                    format!("cartpole-{strategy}-network-mlp-temperature{temperature}-seed4")
                }
            )
        );
        let reversed: Vec<Vary> = axes.iter().rev().cloned().collect();
        assert_eq!(self::names(&of(reversed)), names);
        let first = runs(Path::new("out"), 4, &of(axes.to_vec())).unwrap().remove(0);
        assert_eq!(first.label(), "strategy=ver,network=mlp,temperature=0.02");
    }

    #[test]
    fn games_of_different_suites_have_their_own_presets() {
        let games = vec!["cartpole".to_owned(), "minatar_breakout".to_owned()];
        let both = Sweep { games, vary: Vec::new(), seeds: 1, preset: None, ..sweep(50_000) };
        let runs = runs(Path::new("out"), 0, &both).unwrap();
        assert_eq!(runs.iter().map(|run| &*run.resolved.preset).collect::<Vec<_>>(), ["cartpole", "minatar"]);
        assert_eq!(names(&both), ["cartpole-ver-seed4", "minatar_breakout-ver-seed4"]);
    }

    #[test]
    fn a_name_is_safe_for_file_systems() {
        let variant = |key: &str, text: &str| suffix(&[(key.to_owned(), text.to_owned())]);
        assert_eq!(variant("device", "cuda:1"), "-device-cuda-1");
        assert_eq!(variant("termination_reward", "-5"), "-termination-reward--5");
        assert_eq!(variant("samples_per_insert", "none"), "-samples-per-insert-none");
        assert_eq!(variant("strategy", "ver"), "");
    }

    #[test]
    fn a_run_that_is_not_valid_or_planned_twice_is_refused_by_name() {
        let of = |key: &str, values: &str| Sweep { vary: vec![vary(key, values)], ..sweep(5_000) };
        let error = refused(&of("temperature", "0.1,-1"));
        assert!(error.starts_with("cartpole with temperature=-1: temperature must be"), "{error}");
        let error = refused(&of("temprature", "1"));
        assert!(error.contains("did you mean 'temperature'"), "{error}");
        let error = refused(&of("temperature", "0.1,0.10"));
        assert!(error.contains("cartpole-ver-temperature0.1-seed4 is planned twice"), "{error}");
        let many = Sweep { seeds: 4_000, ..sweep(5_000) };
        assert!(refused(&many).contains("12000 runs"), "{}", refused(&many));
    }

    #[test]
    fn a_run_with_a_checkpoint_resumes() {
        let out = tempfile::tempdir().unwrap();
        let run = runs(out.path(), 4, &sweep(5_000)).unwrap().remove(0);
        run::RunDir::create(&run.path, &run.resolved).unwrap();
        assert!(run.arguments().contains(&"--config".to_owned()), "there are no weights yet");
        run::checkpoint::write(&checkpoints(&run.path), "0000000250", |_| Ok(())).unwrap();
        assert_eq!(run.resumes_at(), Some(250));
        assert!(run.arguments().join(" ").starts_with("train --exit-with-parent --resume "));
        run::checkpoint::write(&checkpoints(&run.path), "final", |_| Ok(())).unwrap();
        assert!(run.is_finished());
    }
}
