//! Which shards a run has, by number, and why one of them is not there.
//!
//! The learner binds numbers to names when a shard is first heard and keeps them in the run's directory (`shards.json`);
//! what an operator has said is in `adjusted.json`. Of a shard that was named by its address nothing is known here.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use run::adjusted;
use serde_json::Value;
use settings::Resolved;

use crate::runs;

/// The shards of a run, if it is one.
#[derive(Debug, Default)]
pub struct Roll {
    /// By number; empty if the learner has not heard it yet.
    names: Vec<String>,
    /// The run goes on without these.
    without: BTreeSet<usize>,
    /// The run did without these, and shall not any more as soon as they answer.
    returning: BTreeSet<usize>,
}

/// One that is not there.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    pub number: usize,
    /// Its name, if it was ever heard.
    pub id: String,
    pub why: &'static str,
}

impl Roll {
    /// Of a run's directory or name; knows nothing if that is an address.
    pub fn read(whose: &str) -> Result<Self> {
        let run = runs::find(Path::new(whose));
        if run.is_dir() { Self::of(&run) } else { Ok(Self::default()) }
    }

    fn of(run: &Path) -> Result<Self> {
        let mut settings = Resolved::from_run(&run.join("config.toml"))?.settings;
        adjusted::apply(&mut settings, &adjusted::kept(run)?)?;
        let kept: Value = match fs::read(run.join("shards.json")) {
            Ok(text) => serde_json::from_slice(&text).context("shards.json is damaged")?,
            Err(error) if error.kind() == ErrorKind::NotFound => Value::Null,
            Err(error) => return Err(error).context("can't read shards.json"),
        };
        let listed = |key: &str| kept[key].as_array().into_iter().flatten();
        let mut names: Vec<String> =
            listed("names").map(|name| name.as_str().unwrap_or_default().to_owned()).collect();
        let returning = listed("returning").filter_map(|number| number.as_u64()?.try_into().ok()).collect();
        names.resize(names.len().max(settings.shards as usize), String::new());
        Ok(Self { names, without: settings.without_shards.0, returning })
    }

    /// The number of the shard of that name.
    pub fn number(&self, id: &str) -> Option<usize> {
        self.names.iter().position(|name| name == id)
    }

    /// What is not as usual with a shard's part in the run.
    pub fn standing(&self, number: usize) -> Option<&'static str> {
        if self.without.contains(&number) {
            Some("left out: the run goes on without it")
        } else if self.returning.contains(&number) {
            Some("expected back: the run goes on without it until it answers")
        } else {
            None
        }
    }

    /// Those that are not among the ones that answered.
    pub fn missing(&self, answered: &[&str]) -> Vec<Missing> {
        let silent =
            |id: &str| if id.is_empty() { "the learner has not heard it yet" } else { "it does not answer" };
        let numbered = self.names.iter().enumerate().filter(|(_, id)| !answered.contains(&id.as_str()));
        let missing = |(number, id): (usize, &String)| Missing {
            number,
            id: id.clone(),
            why: self.standing(number).unwrap_or_else(|| silent(id)),
        };
        numbered.map(missing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::resolve::Layers;

    #[test]
    fn every_shard_has_its_number_and_whoever_is_not_there_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        let mut resolved = Layers::default().resolve(Some("cartpole")).unwrap();
        resolved.settings.shards = 4;
        fs::write(run.join("config.toml"), resolved.to_toml(true)).unwrap();
        let whys = |roll: &Roll, answered: &[&str]| -> Vec<(usize, &str)> {
            roll.missing(answered).iter().map(|missing| (missing.number, missing.why)).collect()
        };
        let young = Roll::of(run).unwrap();
        assert_eq!((young.number("a"), whys(&young, &["a"]).len()), (None, 4));
        assert_eq!(whys(&young, &["a"])[0], (0, "the learner has not heard it yet"));

        fs::write(run.join("shards.json"), r#"{"names":["a","b","c","d"],"returning":[1]}"#).unwrap();
        adjusted::keep(run, &[("without_shards".to_owned(), "2".to_owned())].into()).unwrap();
        let roll = Roll::of(run).unwrap();
        assert_eq!((roll.number("d"), roll.number("x")), (Some(3), None));
        assert_eq!((roll.standing(0), roll.standing(2).is_some()), (None, true));
        let expected = [
            (1, "expected back: the run goes on without it until it answers"),
            (2, "left out: the run goes on without it"),
            (3, "it does not answer"),
        ];
        assert_eq!(whys(&roll, &["a"]), expected);
        assert_eq!(whys(&roll, &["a", "b", "c", "d"]), []);
        assert_eq!(Roll::default().missing(&["a"]), [], "of an address nothing is known");
    }
}
