//! Finds the runs to compare and reads what they recorded.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use run::curve;
use run::directory::{checkpoints, read_settings};
use run::output::print_note;
use run::record;
use settings::Resolved;

use crate::runs;

/// A run as it is on disk.
#[derive(Clone, Debug)]
pub struct FoundRun {
    pub path: PathBuf,
    pub resolved: Resolved,
    /// Whether it has trained to its end.
    pub finished: bool,
    /// The agent's evaluations as (frames, mean score), in the order of frames.
    pub points: Vec<(f64, f64)>,
}

impl FoundRun {
    fn read(path: PathBuf) -> anyhow::Result<Self> {
        let resolved = read_settings(&path)?;
        let recorded = path.join(record::EVALUATIONS_FILE).is_file();
        let evaluations =
            if recorded { record::evaluations(&path)?.reported(print_note) } else { Vec::new() };
        let points = curve::points(&evaluations).iter().map(|point| (point.frames, point.mean)).collect();
        let finished = checkpoints(&path).join("final").is_dir();
        Ok(Self { path, resolved, finished, points })
    }
}

/// Reads the runs that these paths name: run directories, names below `runs/`, or folders that hold runs, directly or in
/// `runs/` as a sweep does. A run that is named twice is read once.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<FoundRun>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for name in paths {
        for path in directories(name)? {
            let same = path.canonicalize().with_context(|| format!("can't read {}", path.display()))?;
            if seen.insert(same) {
                found.push(FoundRun::read(path)?);
            }
        }
    }
    Ok(found)
}

fn directories(name: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let path = runs::find(name);
    if !path.exists() {
        bail!("{}; name a run, or a folder of runs", runs::not_found(name));
    }
    if is_run(&path) {
        return Ok(vec![path]);
    }
    for folder in [path.join("runs"), path.clone()] {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut runs: Vec<PathBuf> = entries.filter(|path| is_run(path)).collect();
        runs.sort();
        if !runs.is_empty() {
            return Ok(runs);
        }
    }
    bail!("no runs in {}: name a run directory (it has a config.toml), or a folder of runs", path.display())
}

fn is_run(path: &Path) -> bool {
    path.join("config.toml").is_file()
}
