//! `processes.json` in the run's directory: who runs, for people, scripts and tests. Gone when nobody does.

use std::fs;
use std::path::{Path, PathBuf};

use run::directory::write_whole;
use serde_json::{Value, json};

use super::child::Child;
use super::fate::Role;
use super::sockets::Sockets;

/// The file, kept up to date.
#[derive(Debug)]
pub struct Roster {
    path: PathBuf,
    written: Option<Value>,
}

impl Roster {
    pub fn new(run: &Path) -> Self {
        Self { path: run.join("processes.json"), written: None }
    }

    /// Writes the file if anything in it has changed. One that can't be written is no reason to stop training.
    pub fn update(&mut self, children: &[Child], sockets: &Sockets) {
        let entries = children.iter().map(|child| {
            json!({
                "name": child.name(),
                "pid": child.pid(),
                "address": (child.role() != Role::Player).then(|| sockets.address(child.name()).to_string_lossy().into_owned()),
                "metrics": child.pid().and_then(|_| metrics(&sockets.status(child.name()))),
                "restarts": child.starts.saturating_sub(1),
            })
        });
        let now = Value::Array(entries.collect());
        if self.written.as_ref() != Some(&now) {
            let _ = write_whole(&self.path, format!("{now:#}\n").as_bytes());
            self.written = Some(now);
        }
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        if self.written.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where a child shows its metrics, as its status file says once it listens.
pub fn metrics(status: &Path) -> Option<String> {
    let status: Value = serde_json::from_slice(&fs::read(status).ok()?).ok()?;
    status.get("metrics")?.as_str().map(ToOwned::to_owned)
}
