//! Plans the runs of a sweep: their settings, directories, and what they have in common.
//!
//! `sweep.json` in the sweep's folder records the settings that all runs share. A command with other settings is
//! refused, because a table that mixes two experiments looks like any other. Games, strategies and seeds may be added
//! later, since each run is independent of the others.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use run::checkpoint::numbers;
use run::command::Sweep;
use run::directory::{checkpoints, write_atomically};
use serde::{Deserialize, Serialize};
use settings::Resolved;
use settings::SETTINGS;
use settings::presets;
use settings::resolve::{Layers, flag};
use value::Strategy;

/// The settings in which runs of a sweep differ, besides the game.
pub const OWN: [&str; 2] = ["seed", "strategy"];

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// `boxing-ver-seed0`.
    pub name: String,
    /// The game's canonical name.
    pub game: String,
    pub strategy: Strategy,
    pub seed: u64,
    pub resolved: Resolved,
    /// The run directory.
    pub path: PathBuf,
    /// The file with its output.
    pub log: PathBuf,
}

impl Run {
    /// Frames at which its training ends.
    pub fn budget(&self) -> u64 {
        self.resolved.settings.frames.0
    }

    /// Whether it has trained to its end.
    pub fn is_finished(&self) -> bool {
        checkpoints(&self.path).join("final").is_dir()
    }

    /// Whether it has a checkpoint to resume from. Without one its weights are lost, and the shards' transitions would
    /// come from another network than the resumed one.
    pub fn can_resume(&self) -> bool {
        self.path.join("config.toml").is_file() && !numbers(&checkpoints(&self.path)).is_empty()
    }

    /// The arguments of `quiver` that start or resume it. In both cases the run exits when its stdin closes.
    pub fn arguments(&self, sweep: &Sweep) -> Vec<String> {
        let path = self.path.display().to_string();
        if self.can_resume() {
            return ["train", "--exit-with-parent", "--resume", &path].map(str::to_owned).to_vec();
        }
        let own = [("seed", self.seed.to_string()), ("strategy", self.strategy.to_string())];
        let own = own.iter().map(|(key, text)| (*key, text.as_str()));
        let flags = sweep.flags.iter().map(|(key, text)| (key.as_str(), text.as_str()));
        let begin =
            ["train", &self.game, "--exit-with-parent", "--preset", &sweep.preset, "--run-dir", &path];
        let begin = begin.map(str::to_owned);
        let settings = own.chain(flags).map(|(key, text)| format!("{}={text}", flag(key)));
        begin.into_iter().chain(settings).collect()
    }
}

/// All runs of a sweep, ordered by seed, so that a sweep that is stopped early leaves complete comparisons.
pub fn runs(out: &Path, first_seed: u64, sweep: &Sweep) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for number in 0..sweep.seeds {
        for game in &sweep.games {
            for &strategy in &sweep.strategies {
                runs.push(plan(out, sweep, game, strategy, first_seed.wrapping_add(number))?);
            }
        }
    }
    Ok(runs)
}

fn plan(out: &Path, sweep: &Sweep, game: &str, strategy: Strategy, seed: u64) -> Result<Run> {
    let own = [("seed".to_owned(), seed.to_string()), ("strategy".to_owned(), strategy.to_string())];
    let layers = Layers {
        preset: Some(&sweep.preset),
        file: None,
        environment: sweep.environment.clone(),
        flags: sweep.flags.iter().cloned().chain(own).collect(),
    };
    let resolved = layers.resolve(Some(game))?;
    let name = format!("{}-{strategy}-seed{seed}", resolved.game);
    let path = out.join("runs").join(&name);
    let log = out.join("logs").join(format!("{name}.log"));
    Ok(Run { name, game: resolved.game.clone(), strategy, seed, resolved, path, log })
}

/// The settings that all runs of a sweep share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Shared {
    preset: String,
    settings: BTreeMap<String, String>,
}

impl Shared {
    fn of(run: &Run) -> Self {
        let Resolved { preset, settings, .. } = &run.resolved;
        let shared = SETTINGS.iter().map(|setting| setting.key).filter(|key| !OWN.contains(key));
        let text = |key: &str| (key.to_owned(), settings.get(key).unwrap_or_default());
        Self { preset: preset.clone(), settings: shared.map(text).collect() }
    }

    /// The first difference, as (setting, value in `self`, value in `other`).
    fn difference(&self, other: &Self) -> Option<(String, String, String)> {
        // The file of an older version lacks newer settings. Its runs had the values of their preset.
        let preset = presets::find(&self.preset).map(presets::Preset::settings);
        let default = |key: &str| preset.as_ref().ok().and_then(|settings| settings.get(key));
        let of = |shared: &Self, key: &str| {
            shared.settings.get(key).cloned().or_else(|| default(key)).unwrap_or("nothing".to_owned())
        };
        let keys = self.settings.keys().chain(other.settings.keys());
        let mut differ = keys.filter(|key| of(self, key) != of(other, key));
        let found = differ.next().map(|key| (key.clone(), of(self, key), of(other, key)));
        let presets = || ("preset".to_owned(), self.preset.clone(), other.preset.clone());
        found.or_else(|| (self.preset != other.preset).then(presets))
    }
}

/// Locks the folder for these runs until the file is dropped. Refuses a folder that another sweep uses or that holds
/// other settings.
pub(crate) fn claim(out: &Path, runs: &[Run]) -> Result<File> {
    fs::create_dir_all(out)
        .with_context(|| format!("can't create {}: choose another --out", out.display()))?;
    let path = out.join("sweep.lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.with_context(|| format!("can't write {}: choose another --out", path.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            bail!("another sweep is using {}: wait for it, or choose another --out", out.display())
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("can't lock {}", path.display()));
        }
    }
    let Some(first) = runs.first() else {
        bail!("the sweep has no runs: give at least one game, strategy and seed")
    };
    let shared = Shared::of(first);
    match read(&out.join("sweep.json"))? {
        Some(there) => {
            if let Some((key, was, is)) = there.difference(&shared) {
                bail!(
                    "{} holds a sweep with {key} = {was}, not {is}: give the same settings to resume it, or \
                     choose another --out",
                    out.display()
                );
            }
        }
        None => {
            let path = out.join("sweep.json");
            write_atomically(&path, &serde_json::to_vec_pretty(&shared)?)
                .with_context(|| format!("can't write {}", path.display()))?;
        }
    }
    for folder in ["runs", "logs"] {
        let folder = out.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("can't create {}: choose another --out", folder.display()))?;
    }
    Ok(lock)
}

fn read(path: &Path) -> Result<Option<Shared>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .with_context(|| format!("{} is damaged: restore it, or choose another --out", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("can't read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sweep;

    #[test]
    fn every_game_strategy_and_seed_is_its_own_run() {
        let out = tempfile::tempdir().unwrap();
        let runs = runs(out.path(), 4, &sweep(5_000)).unwrap();
        let names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names.len(), 6);
        assert_eq!((names[0], names[5]), ("cartpole-uniform-seed4", "cartpole-ver-seed5"));
        let words = runs[1].arguments(&sweep(5_000)).join(" ");
        assert!(
            words.starts_with("train cartpole --exit-with-parent --preset cartpole --run-dir "),
            "{words}"
        );
        assert!(words.ends_with("cartpole-per-seed4 --seed=4 --strategy=per --frames=5000"), "{words}");
        assert!(!runs[1].can_resume() && !runs[1].is_finished());
    }

    #[test]
    fn a_run_with_a_checkpoint_resumes() {
        let out = tempfile::tempdir().unwrap();
        let run = runs(out.path(), 4, &sweep(5_000)).unwrap().remove(0);
        run::RunDir::create(&run.path, &run.resolved).unwrap();
        assert!(
            run.arguments(&sweep(5_000)).join(" ").starts_with("train cartpole "),
            "there are no weights yet"
        );
        run::checkpoint::write(&checkpoints(&run.path), "0000000250", |_| Ok(())).unwrap();
        assert!(run.arguments(&sweep(5_000)).join(" ").starts_with("train --exit-with-parent --resume "));
        run::checkpoint::write(&checkpoints(&run.path), "final", |_| Ok(())).unwrap();
        assert!(run.is_finished());
    }

    #[test]
    fn a_sweep_with_other_settings_is_refused_and_one_with_more_seeds_is_not() {
        let out = tempfile::tempdir().unwrap();
        let claim_of = |sweep: &Sweep| claim(out.path(), &runs(out.path(), 4, sweep).unwrap());
        drop(claim_of(&sweep(5_000)).unwrap());
        let error = claim_of(&sweep(6_000)).unwrap_err().to_string();
        assert!(error.contains("frames = 5000, not 6000"), "{error}");
        drop(claim_of(&Sweep { seeds: 3, parallel: 1, ..sweep(5_000) }).unwrap());
    }

    #[test]
    fn a_sweep_started_before_a_setting_existed_can_be_resumed() {
        let out = tempfile::tempdir().unwrap();
        let claim_of = |sweep: &Sweep| claim(out.path(), &runs(out.path(), 4, sweep).unwrap());
        drop(claim_of(&sweep(5_000)).unwrap());
        let path = out.path().join("sweep.json");
        let mut older: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        older["settings"].as_object_mut().unwrap().remove("munchausen_floor").unwrap();
        fs::write(&path, older.to_string()).unwrap();
        drop(claim_of(&sweep(5_000)).unwrap());
        let changed = Sweep { flags: vec![("munchausen_floor".into(), "-2".into())], ..sweep(5_000) };
        assert!(claim_of(&changed).is_err());
    }

    #[test]
    fn a_folder_has_one_sweep_at_a_time() {
        let out = tempfile::tempdir().unwrap();
        let runs = runs(out.path(), 4, &sweep(5_000)).unwrap();
        let held = claim(out.path(), &runs).unwrap();
        assert!(claim(out.path(), &runs).unwrap_err().to_string().contains("another sweep"));
        drop(held);
        claim(out.path(), &runs).unwrap();
    }
}
