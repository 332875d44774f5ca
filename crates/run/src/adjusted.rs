//! Settings that `quiver adjust` changed while the run trained, saved beside its configuration.
//!
//! They stay in force after a restart of the learner and when the run is resumed.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::directory::{RunDirError, write_atomically};
use settings::Settings;
use settings::resolve::ConfigError;

const FILE: &str = "adjusted.json";

/// Changed settings: key and new value, both as text.
pub type Changes = BTreeMap<String, String>;

fn path(run: &Path) -> PathBuf {
    run.join(FILE)
}

/// Saves changes; earlier changes of other settings stay.
pub fn save(run: &Path, changes: &Changes) -> Result<(), AdjustedError> {
    let mut all = load(run)?;
    all.extend(changes.clone());
    write_atomically(&path(run), serde_json::to_string_pretty(&all).expect("text as JSON").as_bytes())?;
    Ok(())
}

/// All changes saved for this run.
pub fn load(run: &Path) -> Result<Changes, AdjustedError> {
    match fs::read(path(run)) {
        Ok(text) => serde_json::from_slice(&text).map_err(AdjustedError::Damaged),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Changes::new()),
        Err(error) => Err(AdjustedError::Read(error)),
    }
}

/// Applies changes to settings.
pub fn apply(settings: &mut Settings, changes: &Changes) -> Result<(), ConfigError> {
    for (key, text) in changes {
        if let Some(Err(error)) = settings.set(key, text) {
            return Err(ConfigError(format!("{FILE}: {key}: {error}")));
        }
    }
    Ok(())
}

/// Why changes can't be loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum AdjustedError {
    /// The file is not a JSON object of settings.
    #[error("{FILE} is damaged ({0}): delete it to discard all adjusted settings")]
    Damaged(serde_json::Error),
    #[error("can't read {FILE}: {0}; check its permissions, or delete it to discard all adjusted settings")]
    Read(std::io::Error),
    #[error(transparent)]
    Write(#[from] RunDirError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_changes_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        assert_eq!(load(folder.path()).unwrap(), Changes::new());
        save(folder.path(), &one("capacity", "1000")).unwrap();
        save(folder.path(), &one("min_size", "100")).unwrap();
        save(folder.path(), &one("capacity", "2000")).unwrap();
        let all = load(folder.path()).unwrap();
        assert_eq!((all["capacity"].as_str(), all["min_size"].as_str(), all.len()), ("2000", "100", 2));
    }

    #[test]
    fn changes_override_settings() {
        let mut settings = settings::Layers::default().resolve(Some("pong")).unwrap().settings;
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        apply(&mut settings, &one("without_shards", "1,2")).unwrap();
        assert_eq!(settings.without_shards.0, [1, 2].into());
        let error = apply(&mut settings, &one("capacity", "much")).unwrap_err();
        assert!(error.0.contains("adjusted.json: capacity"), "{error}");
    }
}
