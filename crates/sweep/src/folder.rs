//! The folder of a sweep: its lock, and `sweep.json`, which records what all its runs have in common.
//!
//! A command with other fixed settings is refused, because a table that mixes two experiments looks like any other. Games,
//! values of varied settings and seeds may be added later, since each run is independent of the others.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use run::directory::write_atomically;
use serde::{Deserialize, Serialize};
use settings::resolve::Layers;
use settings::{Resolved, SETTINGS, Settings, presets};

use crate::plan::{OWN, Run};

/// Locks the folder for these runs until the file is dropped. Refuses a folder that another sweep uses or that holds
/// other settings.
pub fn claim(out: &Path, runs: &[Run]) -> Result<File> {
    if runs.is_empty() {
        bail!("the sweep has no runs: give at least one game, value and seed");
    }
    let create = |folder: &Path| {
        fs::create_dir_all(folder)
            .with_context(|| format!("can't create {}: choose another --out", folder.display()))
    };
    create(out)?;
    let lock = lock(out)?;
    let path = out.join("sweep.json");
    let recorded = read(&path)?;
    if recorded.is_none()
        && let Some(run) = runs.iter().find(|run| run.path.exists())
    {
        bail!("{} is not a run of a sweep: choose another --out", run.path.display());
    }
    if let Some(record) = updated(out, recorded, Record::of(runs))? {
        write_atomically(&path, &serde_json::to_vec_pretty(&record)?)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    for folder in ["runs", "configs", "logs"] {
        create(&out.join(folder))?;
    }
    Ok(lock)
}

fn lock(out: &Path) -> Result<File> {
    let path = out.join("sweep.lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.with_context(|| format!("can't write {}: choose another --out", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!("another sweep is using {}: wait for it, or choose another --out", out.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("can't lock {}", path.display()))
        }
    }
}

/// The content of `sweep.json`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Recorded {
    Sweep(Record),
    /// Of a version that had one preset and varied the strategy only.
    Older(Fixed),
}

/// What the runs of a sweep have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    /// The varied settings, without those of [`OWN`].
    vary: Vec<String>,
    games: BTreeMap<String, Fixed>,
}

impl Record {
    fn of(runs: &[Run]) -> Self {
        let keys = runs.iter().take(1).flat_map(|run| &run.variant).map(|(key, _)| key.clone());
        let vary: Vec<String> = keys.filter(|key| !OWN.contains(&key.as_str())).collect();
        let games = runs.iter().map(|run| (run.game.clone(), Fixed::of(&run.resolved, &vary))).collect();
        Self { vary, games }
    }
}

/// The settings that all runs of a game share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fixed {
    preset: String,
    settings: BTreeMap<String, String>,
}

impl Fixed {
    fn of(resolved: &Resolved, vary: &[String]) -> Self {
        let Resolved { preset, settings, .. } = resolved;
        let keys = SETTINGS.iter().map(|setting| setting.key);
        let keys = keys.filter(|key| !OWN.contains(key) && !vary.iter().any(|varied| varied == key));
        let text = |key: &str| (key.to_owned(), settings.get(key).unwrap_or_default());
        Self { preset: preset.clone(), settings: keys.map(text).collect() }
    }

    /// The first difference from the same game's settings, as (setting, value in `self`, value in `other`).
    fn difference(&self, other: &Self) -> Option<(String, String, String)> {
        let (ours, theirs) = (self.of_preset(), other.of_preset());
        let of = |fixed: &Self, preset: &Option<Settings>, key: &str| {
            // The file of an older version lacks newer settings. Its runs had the values of their preset.
            let default = || preset.as_ref().and_then(|settings| settings.get(key));
            fixed.settings.get(key).cloned().or_else(default).unwrap_or("nothing".to_owned())
        };
        let keys = self.settings.keys().chain(other.settings.keys());
        let values = keys.map(|key| (key.clone(), of(self, &ours, key), of(other, &theirs, key)));
        let found = values.into_iter().find(|(_, was, is)| was != is);
        let presets = || ("preset".to_owned(), self.preset.clone(), other.preset.clone());
        found.or_else(|| (self.preset != other.preset).then(presets))
    }

    /// The first difference from another game's settings that is not one of their presets.
    fn difference_between_games(&self, other: &Self) -> Option<(String, String, String)> {
        if self.preset == other.preset {
            return self.difference(other);
        }
        let (ours, theirs) = (self.of_preset()?, other.of_preset()?);
        let is_default = |preset: &Settings, key: &str, text: &str| {
            preset.get(key).as_deref().is_none_or(|own| own == text)
        };
        let shared = self.settings.iter().filter_map(|(key, was)| Some((key, was, other.settings.get(key)?)));
        let mut given =
            shared.filter(|(key, was, is)| !is_default(&ours, key, was) || !is_default(&theirs, key, is));
        let (key, was, is) = given.find(|(_, was, is)| was != is)?;
        Some((key.clone(), was.clone(), is.clone()))
    }

    /// The settings of the preset with this algorithm, which may have its own.
    fn of_preset(&self) -> Option<Settings> {
        let game = presets::find(&self.preset).ok()?.example_game;
        let algorithm = self.settings.get("algorithm").map(|name| ("algorithm".to_owned(), name.clone()));
        let layers = Layers {
            preset: Some(&self.preset),
            flags: algorithm.into_iter().collect(),
            ..Layers::default()
        };
        Some(layers.resolve(Some(game)).ok()?.settings)
    }
}

/// The record with the planned games added, if it must be written. An error names what the planned sweep changes.
fn updated(out: &Path, recorded: Option<Recorded>, planned: Record) -> Result<Option<Record>> {
    let check_vary = |there: &[String]| {
        if there == planned.vary {
            return Ok(());
        }
        let [was, is] = [there, &planned.vary].map(|keys| match keys {
            [] => "no setting but the strategy".to_owned(),
            keys => keys.join(", "),
        });
        bail!(
            "{} holds a sweep that varies {was}, not {is}: vary the same settings, or choose another --out",
            out.display()
        )
    };
    let refuse = |difference: Option<(String, String, String)>| match difference {
        Some((key, was, is)) => bail!(
            "{} holds a sweep with {key} = {was}, not {is}: give the same settings to resume it, or choose another --out",
            out.display()
        ),
        None => Ok(()),
    };
    let mut record = match recorded {
        None => return Ok(Some(planned)),
        Some(Recorded::Older(fixed)) => {
            check_vary(&[])?;
            planned.games.values().try_for_each(|planned| refuse(fixed.difference(planned)))?;
            return Ok(None);
        }
        Some(Recorded::Sweep(record)) => record,
    };
    check_vary(&record.vary)?;
    let before = record.games.len();
    for (game, planned) in &planned.games {
        match record.games.get(game) {
            Some(there) => refuse(there.difference(planned))?,
            None => {
                record
                    .games
                    .values()
                    .try_for_each(|there| refuse(there.difference_between_games(planned)))?;
                record.games.insert(game.clone(), planned.clone());
            }
        }
    }
    Ok((record.games.len() > before).then_some(record))
}

fn read(path: &Path) -> Result<Option<Recorded>> {
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
    use std::path::PathBuf;

    use run::command::Sweep;

    use super::*;
    use crate::plan::runs;
    use crate::testing::{sweep, vary};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn claim(&self, sweep: &Sweep) -> Result<File, String> {
            claim(self.0.path(), &runs(self.0.path(), 4, sweep).unwrap())
                .map_err(|error| format!("{error:#}"))
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("sweep.json")
        }
    }

    fn with(sweep: Sweep, key: &str, text: &str) -> Sweep {
        let flags = [sweep.flags, vec![(key.to_owned(), text.to_owned())]].concat();
        Sweep { flags, ..sweep }
    }

    fn games(sweep: Sweep, names: &[&str]) -> Sweep {
        Sweep { games: names.iter().map(|&name| name.to_owned()).collect(), preset: None, ..sweep }
    }

    #[test]
    fn a_sweep_with_other_settings_is_refused_and_one_with_more_seeds_is_not() {
        let folder = Folder::new();
        drop(folder.claim(&sweep(5_000)).unwrap());
        let error = folder.claim(&sweep(6_000)).unwrap_err();
        assert!(error.contains("frames = 5000, not 6000"), "{error}");
        drop(folder.claim(&Sweep { seeds: 3, parallel: 1, ..sweep(5_000) }).unwrap());
        drop(folder.claim(&Sweep { vary: vec![vary("strategy", "reaper")], ..sweep(5_000) }).unwrap());
        fs::write(folder.file(), "{").unwrap();
        let error = folder.claim(&sweep(5_000)).unwrap_err();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn values_of_varied_settings_may_be_added_but_not_other_varied_settings() {
        let folder = Folder::new();
        let of = |axes: &[(&str, &str)]| {
            folder.claim(&Sweep {
                vary: axes.iter().map(|(key, all)| vary(key, all)).collect(),
                ..sweep(5_000)
            })
        };
        drop(of(&[("strategy", "per"), ("temperature", "0.1")]).unwrap());
        drop(of(&[("temperature", "0.2,0.3")]).unwrap());
        let error = of(&[("strategy", "per")]).unwrap_err();
        assert!(error.contains("varies temperature, not no setting but the strategy"), "{error}");
        let error = of(&[("temperature", "0.1"), ("discount", "0.9")]).unwrap_err();
        assert!(error.contains("varies temperature, not temperature, discount"), "{error}");
    }

    #[test]
    fn games_of_other_suites_may_be_added_if_the_given_settings_are_the_same() {
        let folder = Folder::new();
        drop(folder.claim(&games(sweep(50_000), &["cartpole"])).unwrap());
        let error = folder.claim(&games(sweep(60_000), &["minatar_breakout"])).unwrap_err();
        assert!(error.contains("frames = 50000, not 60000"), "{error}");
        let added = games(sweep(50_000), &["minatar_breakout"]);
        let error = folder.claim(&with(added.clone(), "batch_size", "16")).unwrap_err();
        assert!(error.contains("batch_size = ") && error.contains(", not 16"), "{error}");
        drop(folder.claim(&added).unwrap());
        drop(folder.claim(&games(sweep(50_000), &["minatar_freeway", "cartpole"])).unwrap());
        let error = folder.claim(&with(games(sweep(50_000), &["cartpole"]), "batch_size", "16")).unwrap_err();
        assert!(error.contains("batch_size"), "{error}");
    }

    #[test]
    fn another_preset_for_the_same_game_is_refused() {
        let folder = Folder::new();
        drop(folder.claim(&sweep(5_000)).unwrap());
        let other = Sweep { preset: Some("paper-cartpole".to_owned()), ..sweep(5_000) };
        assert!(folder.claim(&other).unwrap_err().contains("holds a sweep with "));
    }

    /// A sweep as version 0.1 recorded it.
    #[test]
    fn a_sweep_started_before_a_setting_existed_can_be_resumed() {
        let folder = Folder::new();
        let run = runs(folder.0.path(), 4, &sweep(5_000)).unwrap().remove(0);
        let mut older = Fixed::of(&run.resolved, &[]);
        older.settings.remove("munchausen_floor").unwrap();
        let bytes = serde_json::to_vec(&older).unwrap();
        fs::write(folder.file(), &bytes).unwrap();
        drop(folder.claim(&sweep(5_000)).unwrap());
        assert_eq!(fs::read(folder.file()).unwrap(), bytes, "an older version can still resume it");
        assert!(folder.claim(&with(sweep(5_000), "munchausen_floor", "-2")).is_err());
        let varied = Sweep { vary: vec![vary("temperature", "0.1")], ..sweep(5_000) };
        assert!(folder.claim(&varied).unwrap_err().contains("not temperature"));
    }

    #[test]
    fn a_folder_has_one_sweep_at_a_time() {
        let folder = Folder::new();
        let held = folder.claim(&sweep(5_000)).unwrap();
        assert!(folder.claim(&sweep(5_000)).unwrap_err().contains("another sweep"));
        drop(held);
        folder.claim(&sweep(5_000)).unwrap();
    }

    #[test]
    fn runs_that_no_sweep_has_made_are_left_alone() {
        let folder = Folder::new();
        let run = runs(folder.0.path(), 4, &sweep(5_000)).unwrap().remove(5);
        drop(run::RunDir::create(&run.path, &run.resolved).unwrap());
        let error = folder.claim(&sweep(5_000)).unwrap_err();
        assert!(error.contains("is not a run of a sweep"), "{error}");
        assert!(run.path.join("config.toml").is_file() && !folder.file().exists());
    }
}
