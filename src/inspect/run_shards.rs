//! The shards of a run, by number, and why one of them is missing.
//!
//! The learner assigns a number to a shard id when the shard first responds, and stores the list in the run directory
//! (`shards.json`). Settings changed by `quiver adjust` are in `adjusted.json`. For a shard given by its address, nothing is
//! known here.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use run::adjusted;
use serde_json::Value;
use settings::Resolved;

use crate::runs;

/// The shards of a run; empty if the target is an address.
#[derive(Debug, Default)]
pub struct RunShards {
    /// Shard ids by number; empty if the shard has not responded to the learner yet.
    names: Vec<String>,
    /// Shards that the run excludes.
    without: BTreeSet<usize>,
    /// Shards that the run excluded and will use again as soon as they respond.
    returning: BTreeSet<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    pub number: usize,
    /// Its id; empty if it never responded.
    pub id: String,
    pub why: &'static str,
}

impl RunShards {
    /// Reads the files of a run, given by directory or name; empty if `target` is an address.
    pub fn read(target: &str) -> Result<Self> {
        let run = runs::find(Path::new(target));
        if run.is_dir() { Self::of(&run) } else { Ok(Self::default()) }
    }

    fn of(run: &Path) -> Result<Self> {
        let mut settings = Resolved::from_run(&run.join("config.toml"))?.settings;
        adjusted::apply(&mut settings, &adjusted::load(run)?)?;
        let path = run.join("shards.json");
        let kept: Value = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| {
                format!(
                    "{} is damaged: delete it, the learner writes it again when it resumes",
                    path.display()
                )
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => Value::Null,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("can't read {}; check its permissions", path.display()));
            }
        };
        let listed = |key: &str| kept[key].as_array().into_iter().flatten();
        let mut names: Vec<String> =
            listed("names").map(|name| name.as_str().unwrap_or_default().to_owned()).collect();
        let returning = listed("returning").filter_map(|number| number.as_u64()?.try_into().ok()).collect();
        names.resize(names.len().max(settings.shards as usize), String::new());
        Ok(Self { names, without: settings.without_shards.0, returning })
    }

    /// The number of the shard with this id.
    pub fn number(&self, id: &str) -> Option<usize> {
        self.names.iter().position(|name| name == id)
    }

    /// Whether the run excludes a shard, in words.
    pub fn exclusion(&self, number: usize) -> Option<&'static str> {
        if self.without.contains(&number) {
            Some("excluded: the run continues without it")
        } else if self.returning.contains(&number) {
            Some("returning: the run continues without it until it responds")
        } else {
            None
        }
    }

    /// The shards of the run that did not respond.
    pub fn missing(&self, answered: &[&str]) -> Vec<Missing> {
        let silent = |id: &str| {
            if id.is_empty() { "it has not responded to the learner yet" } else { "it does not respond" }
        };
        let numbered = self.names.iter().enumerate().filter(|(_, id)| !answered.contains(&id.as_str()));
        let missing = |(number, id): (usize, &String)| Missing {
            number,
            id: id.clone(),
            why: self.exclusion(number).unwrap_or_else(|| silent(id)),
        };
        numbered.map(missing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::resolve::Layers;

    #[test]
    fn every_shard_has_a_number_and_every_missing_one_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        let mut resolved = Layers::default().resolve(Some("cartpole")).unwrap();
        resolved.settings.shards = 4;
        fs::write(run.join("config.toml"), resolved.to_toml(true)).unwrap();
        let reasons = |shards: &RunShards, answered: &[&str]| -> Vec<(usize, &str)> {
            shards.missing(answered).iter().map(|missing| (missing.number, missing.why)).collect()
        };
        let new = RunShards::of(run).unwrap();
        assert_eq!((new.number("a"), reasons(&new, &["a"]).len()), (None, 4));
        assert_eq!(reasons(&new, &["a"])[0], (0, "it has not responded to the learner yet"));

        fs::write(run.join("shards.json"), r#"{"names":["a","b","c","d"],"returning":[1]}"#).unwrap();
        adjusted::save(run, &[("without_shards".to_owned(), "2".to_owned())].into()).unwrap();
        let shards = RunShards::of(run).unwrap();
        assert_eq!((shards.number("d"), shards.number("x")), (Some(3), None));
        assert_eq!((shards.exclusion(0), shards.exclusion(2).is_some()), (None, true));
        let expected = [
            (1, "returning: the run continues without it until it responds"),
            (2, "excluded: the run continues without it"),
            (3, "it does not respond"),
        ];
        assert_eq!(reasons(&shards, &["a"]), expected);
        assert_eq!(reasons(&shards, &["a", "b", "c", "d"]), []);
        assert_eq!(RunShards::default().missing(&["a"]), [], "nothing is known of an address");
    }
}
