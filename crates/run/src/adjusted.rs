//! Settings that were changed while the run trained, kept beside its configuration.
//!
//! A learner that comes back goes on with them, and so does whoever resumes the run.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::directory::{DirectoryError, write_whole};
use settings::Settings;
use settings::resolve::ConfigError;

const FILE: &str = "adjusted.json";

/// Settings and their new values, as text.
pub type Changes = BTreeMap<String, String>;

fn path(run: &Path) -> PathBuf {
    run.join(FILE)
}

/// Keeps changes, with those of before.
pub fn keep(run: &Path, changes: &Changes) -> Result<(), AdjustedError> {
    let mut all = kept(run)?;
    all.extend(changes.clone());
    write_whole(&path(run), serde_json::to_string_pretty(&all).expect("text as JSON").as_bytes())?;
    Ok(())
}

/// What was changed in this run so far.
pub fn kept(run: &Path) -> Result<Changes, AdjustedError> {
    match fs::read(path(run)) {
        Ok(text) => serde_json::from_slice(&text).map_err(AdjustedError::Damaged),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Changes::new()),
        Err(error) => Err(AdjustedError::Read(error)),
    }
}

/// Lays changes over settings.
pub fn apply(settings: &mut Settings, changes: &Changes) -> Result<(), ConfigError> {
    for (key, text) in changes {
        if let Some(Err(error)) = settings.set(key, text) {
            return Err(ConfigError(format!("{FILE}: {key}: {error}")));
        }
    }
    Ok(())
}

/// Why changes can't be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum AdjustedError {
    /// It is no JSON of settings.
    #[error("{FILE} is damaged ({0}): delete it to forget what was changed")]
    Damaged(serde_json::Error),
    /// It can't be read.
    #[error("can't read {FILE}: {0}")]
    Read(std::io::Error),
    /// It can't be written.
    #[error(transparent)]
    Write(#[from] DirectoryError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_kept_and_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        assert_eq!(kept(folder.path()).unwrap(), Changes::new());
        keep(folder.path(), &one("capacity", "1000")).unwrap();
        keep(folder.path(), &one("min_size", "100")).unwrap();
        keep(folder.path(), &one("capacity", "2000")).unwrap();
        let all = kept(folder.path()).unwrap();
        assert_eq!((all["capacity"].as_str(), all["min_size"].as_str(), all.len()), ("2000", "100", 2));
    }

    #[test]
    fn changes_are_laid_over_settings() {
        let mut settings = settings::Layers::default().resolve(Some("pong")).unwrap().settings;
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        apply(&mut settings, &one("without_shards", "1,2")).unwrap();
        assert_eq!(settings.without_shards.0, [1, 2].into());
        let error = apply(&mut settings, &one("capacity", "much")).unwrap_err();
        assert!(error.0.contains("adjusted.json: capacity"), "{error}");
    }
}
