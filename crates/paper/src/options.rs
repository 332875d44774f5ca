//! The options of every figure: effort, seed, output folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use run::directory::write_atomically;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// Minutes on two cores: fewer seeds, shorter runs, the same claims.
    Quick,
    /// What the paper did.
    Full,
}

impl Effort {
    /// The one or the other.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Full => full,
        }
    }
}

/// Options of every figure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much.
    pub effort: Effort,
    /// Of everything random.
    pub seed: u64,
    /// The folder that the results go to.
    pub out: PathBuf,
}

impl Options {
    /// A file of the results; its folder is made if need be.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("can't make {}; choose another --out", self.out.display()))?;
        Ok(self.out.join(name))
    }

    /// Writes a file of the results, whole or not at all.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.file(name)?;
        write_atomically(&path, bytes).with_context(|| format!("can't write {}", path.display()))?;
        Ok(path)
    }

    /// Writes rows with named columns; numbers come back to the last bit.
    pub fn csv(
        &self,
        name: &str,
        header: &[impl AsRef<[u8]>],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Result<PathBuf> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(header)?;
        for row in rows {
            writer.write_record(&row)?;
        }
        self.write(name, &writer.into_inner()?)
    }

    /// Writes a picture as PNG and as SVG.
    pub fn picture(&self, stem: &str, page: &plot::Page) -> Result<()> {
        self.write(&format!("{stem}.png"), &page.png()?)?;
        self.write(&format!("{stem}.svg"), page.svg()?.as_bytes())?;
        Ok(())
    }

    /// Where the results go.
    pub fn out(&self) -> &Path {
        &self.out
    }
}
