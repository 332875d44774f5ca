//! What a figure has to say, for the report and for a test.

use std::fmt;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::options::{Effort, Options};

/// The outcome of one figure's experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// `fig1` … `fig6`; files begin with it.
    pub name: String,
    /// A heading.
    pub title: String,
    /// What was done, in a paragraph.
    pub about: String,
    /// Claims beside what was measured.
    pub claims: Vec<Claim>,
    /// Numbers.
    pub tables: Vec<FigureTable>,
    /// Pictures, in the order of reading.
    pub pictures: Vec<Picture>,
    /// Settings that matter, as (name, value).
    pub settings: Vec<(String, String)>,
    /// How much was done.
    pub effort: Extent,
    /// Of everything random.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
}

/// A claim and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// In our words.
    pub claim: String,
    /// Who says so.
    #[serde(default)]
    pub whose: Whose,
    /// What was measured.
    pub measured: String,
    /// Whether the one agrees with the other.
    pub verdict: Verdict,
}

/// How much of an experiment was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// Minutes on two cores.
    Quick,
    /// What the paper did.
    Full,
    /// Neither: what someone asked for.
    Asked,
}

impl Extent {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Extent::Quick => "quick",
            Extent::Full => "full",
            Extent::Asked => "as asked for",
        }
    }
}

impl From<Effort> for Extent {
    fn from(effort: Effort) -> Self {
        effort.pick(Extent::Quick, Extent::Full)
    }
}

/// Who makes a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// The paper.
    #[default]
    Paper,
    /// We do.
    Ours,
}

impl Whose {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Whose::Paper => "the paper's",
            Whose::Ours => "ours",
        }
    }
}

/// Whether a claim was seen to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// This experiment is too small to say.
    Open,
}

impl Verdict {
    /// Holds or fails.
    pub fn of(holds: bool) -> Self {
        if holds { Verdict::Holds } else { Verdict::Fails }
    }
}

/// A table of text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureTable {
    /// What it shows.
    pub caption: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// A picture in the results' folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// File name without `.png` and `.svg`.
    pub stem: String,
    /// What one sees.
    pub caption: String,
}

impl Figure {
    /// A figure with nothing in it yet.
    pub fn new(name: &str, title: &str, options: &Options) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            about: String::new(),
            claims: Vec::new(),
            tables: Vec::new(),
            pictures: Vec::new(),
            settings: Vec::new(),
            effort: options.effort.into(),
            seed: options.seed,
            seconds: 0.0,
        }
    }

    /// Adds a claim of the paper.
    pub fn claim(&mut self, claim: &str, measured: String, verdict: Verdict) {
        self.claims.push(Claim { claim: claim.to_owned(), whose: Whose::Paper, measured, verdict });
    }

    /// Adds a claim of our own.
    pub fn finding(&mut self, claim: &str, measured: String, verdict: Verdict) {
        self.claims.push(Claim { claim: claim.to_owned(), whose: Whose::Ours, measured, verdict });
    }

    /// Adds a table.
    pub fn table(&mut self, caption: &str, columns: &[impl AsRef<str>], rows: Vec<Vec<String>>) {
        let columns = columns.iter().map(|name| name.as_ref().to_owned()).collect();
        self.tables.push(FigureTable { caption: caption.to_owned(), columns, rows });
    }

    /// Draws a picture and adds it.
    pub fn picture(&mut self, options: &Options, stem: &str, caption: &str, page: &plot::Page) -> Result<()> {
        options.picture(stem, page)?;
        self.pictures.push(Picture { stem: stem.to_owned(), caption: caption.to_owned() });
        Ok(())
    }

    /// Notes a setting.
    pub fn setting(&mut self, name: &str, value: impl fmt::Display) {
        self.settings.push((name.to_owned(), format!("{value}")));
    }

    /// Whether no claim was seen to fail.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.verdict != Verdict::Fails)
    }

    /// Keeps it beside its files, for the report.
    pub fn save(&self, options: &Options) -> Result<()> {
        options.write(&format!("{}.json", self.name), &serde_json::to_vec_pretty(self)?).map(drop)
    }

    /// Notes how long it took and keeps it, with nothing left to add.
    pub fn finish(mut self, options: &Options, started: Instant) -> Result<Self> {
        self.seconds = started.elapsed().as_secs_f64();
        self.save(options)?;
        Ok(self)
    }

    /// The figure of that name, if it has been made.
    pub fn load(options: &Options, name: &str) -> Result<Option<Self>> {
        let path = options.out().join(format!("{name}.json"));
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("{} is damaged: delete it", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("can't read {}", path.display())),
        }
    }
}
