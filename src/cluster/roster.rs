//! `processes.json` in the run directory: the running processes, for commands, scripts and tests. It is deleted when the
//! cluster ends.

use std::fs;
use std::path::{Path, PathBuf};

use run::directory::write_atomically;
use serde_json::{Value, json};

use super::child::Child;
use super::restart::ChildRole;
use super::sockets::Sockets;

/// The writer of the file.
#[derive(Debug)]
pub struct Roster {
    path: PathBuf,
    written: Option<Value>,
}

impl Roster {
    pub fn new(run: &Path) -> Self {
        Self { path: run.join("processes.json"), written: None }
    }

    /// Writes the file if its content has changed. An error is ignored: it must not stop training.
    pub fn update(&mut self, children: &[Child], sockets: &Sockets) {
        let entries = children.iter().map(|child| {
            json!({
                "name": child.name(),
                "pid": child.pid(),
                "address": (child.role() != ChildRole::Player).then(|| sockets.address(child.name()).to_string_lossy().into_owned()),
                "metrics": child.pid().and_then(|_| metrics(&sockets.status(child.name()))),
                "restarts": child.starts.saturating_sub(1),
            })
        });
        let now = Value::Array(entries.collect());
        if self.written.as_ref() != Some(&now) {
            let _ = write_atomically(&self.path, format!("{now:#}\n").as_bytes());
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

/// The address of a child's metrics, from its status file, which it writes once it listens.
pub fn metrics(status: &Path) -> Option<String> {
    let status: Value = serde_json::from_slice(&fs::read(status).ok()?).ok()?;
    status.get("metrics")?.as_str().map(ToOwned::to_owned)
}
