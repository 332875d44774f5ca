//! Which runs make a sweep, where each is kept, and what they have in common.
//!
//! `sweep.json` in the results' folder remembers the settings that all runs share. Whoever comes back with others is
//! refused: half a table from one experiment and half from another looks like a table. Games, strategies and seeds may
//! be added later, since each run is whole in itself.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use run::checkpoint::numbers;
use run::directory::checkpoints;
use run::order::Sweep;
use serde::{Deserialize, Serialize};
use settings::Resolved;
use settings::SETTINGS;
use settings::presets;
use settings::resolve::{Layers, flag};
use value::Strategy;

use crate::options::Options;

/// What sets one run apart from another.
const OWN: [&str; 2] = ["seed", "strategy"];

/// The preset with the paper's own settings.
pub const PAPER: &str = "paper-atari";

/// One run to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// `boxing-ver-seed0`.
    pub name: String,
    /// Canonical name.
    pub game: String,
    /// How experience is replayed.
    pub strategy: Strategy,
    /// Of everything random.
    pub seed: u64,
    /// All its settings.
    pub resolved: Resolved,
    /// Its directory.
    pub path: PathBuf,
    /// What it says.
    pub log: PathBuf,
}

impl Run {
    /// Frames that it is to train.
    pub fn budget(&self) -> u64 {
        self.resolved.settings.frames.0
    }

    /// Whether it has trained to its end.
    pub fn is_finished(&self) -> bool {
        checkpoints(&self.path).join("final").is_dir()
    }

    /// Whether there is a checkpoint to go on from. Without one the weights are lost, and what the shards hold is not worth
    /// a run of which half has taught another network.
    pub fn can_go_on(&self) -> bool {
        self.path.join("config.toml").is_file() && !numbers(&checkpoints(&self.path)).is_empty()
    }

    /// The words after `quiver` that begin it, or go on with it. Either way it ends with whoever holds its standard input.
    pub fn words(&self, sweep: &Sweep) -> Vec<String> {
        let path = self.path.display().to_string();
        if self.can_go_on() {
            return ["train", "--lifeline", "--resume", &path].map(str::to_owned).to_vec();
        }
        let own = [("seed", self.seed.to_string()), ("strategy", self.strategy.to_string())];
        let own = own.iter().map(|(key, text)| (*key, text.as_str()));
        let told = sweep.flags.iter().map(|(key, text)| (key.as_str(), text.as_str()));
        let begin = ["train", &self.game, "--lifeline", "--preset", &sweep.preset, "--run-dir", &path];
        let begin = begin.map(str::to_owned);
        let settings = own.chain(told).map(|(key, text)| format!("{}={text}", flag(key)));
        begin.into_iter().chain(settings).collect()
    }
}

/// All runs of a sweep, seed by seed, so that an early end leaves whole comparisons.
pub fn runs(options: &Options, sweep: &Sweep) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for number in 0..sweep.seeds {
        for game in &sweep.games {
            for &strategy in &sweep.strategies {
                runs.push(plan(options, sweep, game, strategy, options.seed.wrapping_add(number))?);
            }
        }
    }
    Ok(runs)
}

fn plan(options: &Options, sweep: &Sweep, game: &str, strategy: Strategy, seed: u64) -> Result<Run> {
    let own = [("seed".to_owned(), seed.to_string()), ("strategy".to_owned(), strategy.to_string())];
    let layers = Layers {
        preset: Some(&sweep.preset),
        file: None,
        environment: sweep.environment.clone(),
        flags: sweep.flags.iter().cloned().chain(own).collect(),
    };
    let resolved = layers.resolve(Some(game))?;
    let name = format!("{}-{strategy}-seed{seed}", resolved.game);
    let path = options.out().join("runs").join(&name);
    let log = options.out().join("logs").join(format!("{name}.log"));
    Ok(Run { name, game: resolved.game.clone(), strategy, seed, resolved, path, log })
}

/// The preset that a run is compared with: the paper's, or the run's own where the paper's is for other games.
pub fn compared(run: &Run) -> &str {
    let is_for_it = presets::find(PAPER).is_ok_and(|preset| preset.is_for(&run.game));
    if is_for_it { PAPER } else { &run.resolved.preset }
}

/// Where a run's settings are not those of the preset that it is held against, as (setting, here, there).
pub fn differences(run: &Run) -> Vec<(&'static str, String, String)> {
    let Ok(paper) = (Layers { preset: Some(compared(run)), ..Layers::default() }).resolve(Some(&run.game))
    else {
        return Vec::new();
    };
    let keys = SETTINGS.iter().map(|setting| setting.key).filter(|key| !OWN.contains(key));
    let of = |resolved: &Resolved, key: &str| resolved.settings.get(key).unwrap_or_default();
    let both = keys.map(|key| (key, of(&run.resolved, key), of(&paper, key)));
    both.filter(|(_, here, there)| here != there).collect()
}

/// What all runs of a sweep share.
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

    /// The first difference, as (setting, there, here).
    fn difference(&self, other: &Self) -> Option<(String, String, String)> {
        // A sweep of an older version lacks newer settings; its runs had what their preset says.
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

/// The results' folder, held by one sweep at a time.
#[derive(Debug)]
pub struct Claimed {
    _lock: File,
}

/// Takes the folder for these runs; refuses one that another sweep uses or that was made with other settings.
pub fn claim(options: &Options, runs: &[Run]) -> Result<Claimed> {
    let path = options.file("sweep.lock")?;
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.with_context(|| format!("can't write {}; choose another --out", path.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            bail!("another sweep is using {}: wait for it, or choose another --out", options.out().display())
        }
        Err(TryLockError::Error(error)) => return Err(error).context("can't lock the results' folder"),
    }
    let Some(first) = runs.first() else { bail!("a sweep of no runs: name games, strategies and seeds") };
    let shared = Shared::of(first);
    match read(&options.out().join("sweep.json"))? {
        Some(there) => {
            if let Some((key, was, is)) = there.difference(&shared) {
                bail!(
                    "{} holds a sweep with {key} = {was}, not {is}: give the same settings to go on with it, or \
                     choose another --out",
                    options.out().display()
                );
            }
        }
        None => drop(options.write("sweep.json", &serde_json::to_vec_pretty(&shared)?)?),
    }
    for folder in ["runs", "logs"] {
        let folder = options.out().join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("can't make {}; choose another --out", folder.display()))?;
    }
    Ok(Claimed { _lock: lock })
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
pub(super) mod tests {
    use super::*;
    use crate::options::Effort;

    /// A sweep over CartPole, which needs no ROM.
    pub fn sweep(frames: u64) -> Sweep {
        Sweep {
            games: vec!["cartpole".to_owned()],
            strategies: Strategy::PAPER.to_vec(),
            seeds: 2,
            parallel: 2,
            preset: "cartpole".to_owned(),
            flags: vec![("frames".to_owned(), frames.to_string())],
            changed: true,
            environment: Vec::new(),
        }
    }

    pub fn options(out: &Path) -> Options {
        Options { effort: Effort::Quick, seed: 4, out: out.to_owned() }
    }

    #[test]
    fn every_game_strategy_and_seed_is_a_run_of_its_own() {
        let out = tempfile::tempdir().unwrap();
        let runs = runs(&options(out.path()), &sweep(5_000)).unwrap();
        let names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names.len(), 6);
        assert_eq!((names[0], names[5]), ("cartpole-uniform-seed4", "cartpole-ver-seed5"));
        let words = runs[1].words(&sweep(5_000)).join(" ");
        assert!(words.starts_with("train cartpole --lifeline --preset cartpole --run-dir "), "{words}");
        assert!(words.ends_with("cartpole-per-seed4 --seed=4 --strategy=per --frames=5000"), "{words}");
        assert!(!runs[1].can_go_on() && !runs[1].is_finished());
    }

    #[test]
    fn a_run_that_has_begun_goes_on() {
        let out = tempfile::tempdir().unwrap();
        let run = runs(&options(out.path()), &sweep(5_000)).unwrap().remove(0);
        run::RunDir::create(&run.path, &run.resolved).unwrap();
        assert!(
            run.words(&sweep(5_000)).join(" ").starts_with("train cartpole "),
            "there are no weights yet"
        );
        run::checkpoint::write(&checkpoints(&run.path), "0000000250", |_| Ok(())).unwrap();
        assert!(run.words(&sweep(5_000)).join(" ").starts_with("train --lifeline --resume "));
        run::checkpoint::write(&checkpoints(&run.path), "final", |_| Ok(())).unwrap();
        assert!(run.is_finished());
    }

    #[test]
    fn what_differs_from_the_papers_settings_is_known() {
        let out = tempfile::tempdir().unwrap();
        let of = |preset: &str| {
            let games = vec!["boxing".to_owned()];
            let sweep = Sweep { games, preset: preset.to_owned(), flags: Vec::new(), ..sweep(5_000) };
            differences(&runs(&options(out.path()), &sweep).unwrap()[0])
        };
        assert_eq!(of("paper-atari"), []);
        let own = differences(&runs(&options(out.path()), &sweep(5_000)).unwrap()[0]);
        assert_eq!(
            own.iter().map(|(key, ..)| *key).collect::<Vec<_>>(),
            ["frames"],
            "of CartPole's own preset"
        );
        let quick = of("quick");
        assert!(quick.iter().any(|(key, here, there)| *key == "temperature" && here != there), "{quick:?}");
        assert!(!quick.iter().any(|(key, ..)| *key == "strategy" || *key == "discount"), "{quick:?}");
    }

    #[test]
    fn a_sweep_with_other_settings_is_refused_and_one_with_more_seeds_is_not() {
        let out = tempfile::tempdir().unwrap();
        let options = options(out.path());
        let claim_of = |sweep: &Sweep| claim(&options, &runs(&options, sweep).unwrap());
        drop(claim_of(&sweep(5_000)).unwrap());
        let error = claim_of(&sweep(6_000)).unwrap_err().to_string();
        assert!(error.contains("frames = 5000, not 6000"), "{error}");
        drop(claim_of(&Sweep { seeds: 3, parallel: 1, ..sweep(5_000) }).unwrap());
    }

    #[test]
    fn a_sweep_from_before_a_setting_existed_can_be_resumed() {
        let out = tempfile::tempdir().unwrap();
        let options = options(out.path());
        let claim_of = |sweep: &Sweep| claim(&options, &runs(&options, sweep).unwrap());
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
        let options = options(out.path());
        let runs = runs(&options, &sweep(5_000)).unwrap();
        let held = claim(&options, &runs).unwrap();
        assert!(claim(&options, &runs).unwrap_err().to_string().contains("another sweep"));
        drop(held);
        claim(&options, &runs).unwrap();
    }
}
