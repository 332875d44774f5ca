//! `quiver train` and all that it starts, seen from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use rpc::address::Address;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{folder, turn};
use crate::process::{Process, command, get, metric, until, until_some};

/// A running `quiver train`.
pub struct Launched {
    pub process: Process,
    run: PathBuf,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// One line of `processes.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub pid: u32,
    pub metrics: Option<String>,
}

impl Launched {
    /// Starts a run of CartPole.
    pub fn start(flags: &[&str]) -> Self {
        let (turn, folder) = (turn(), folder());
        let run = folder.path().join("run");
        let first = ["train", "cartpole", "--run-dir"];
        let process =
            Self::launch(folder.path(), first.map(Into::into).into_iter().chain([path(&run)]), flags);
        Self { process, run, folder, _turn: turn }
    }

    /// Resumes the run after the launcher has ended.
    pub fn resume(&mut self, flags: &[&str]) {
        let words = ["train".into(), "--resume".into(), path(&self.run)];
        self.process = Self::launch(self.folder.path(), words.into_iter(), flags);
    }

    fn launch(folder: &Path, words: impl Iterator<Item = String>, flags: &[&str]) -> Process {
        let mut command = command("quiver");
        command.args(words).args(flags).current_dir(folder);
        Process::spawn(folder, "train", command)
    }

    pub fn run(&self) -> &Path {
        &self.run
    }

    /// A file of the run's directory.
    pub fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.run.join(name)).ok()
    }

    pub fn roster(&self) -> Vec<Entry> {
        let Some(text) = self.file("processes.json") else { return Vec::new() };
        let entries: serde_json::Value = serde_json::from_str(&text).unwrap();
        let entry = |entry: &serde_json::Value| {
            Some(Entry {
                name: entry["name"].as_str()?.to_owned(),
                pid: entry["pid"].as_u64()? as u32,
                metrics: entry["metrics"].as_str().map(ToOwned::to_owned),
            })
        };
        entries.as_array().unwrap().iter().filter_map(entry).filter(is_there).collect()
    }

    /// Waits until a child of this name runs.
    #[track_caller]
    pub fn child(&self, name: &str) -> Entry {
        until_some(&format!("{name} runs"), || self.roster().into_iter().find(|entry| entry.name == name))
    }

    /// One figure of the learner; `None` if it is not there.
    pub fn learner(&self, name: &str) -> Option<f64> {
        let learner = self.roster().into_iter().find(|entry| entry.name == "learner")?;
        Some(metric(&get(&learner.metrics?, "/metrics")?, name))
    }

    /// Where a shard listens, as its command line says.
    pub fn shard_address(&self, index: usize) -> Option<Address> {
        let name = format!("shard-{index}");
        let entry = self.roster().into_iter().find(|entry| entry.name == name)?;
        let words = command_line(entry.pid);
        let at = words.iter().position(|word| word == "--listen")?;
        words.get(at + 1)?.parse().ok()
    }

    /// Frames of the newest checkpoint, which is its name.
    #[track_caller]
    pub fn newest_checkpoint(&self) -> u64 {
        run::checkpoint::numbers(&self.run.join("checkpoints")).last().copied().expect("there is one")
    }

    /// The run has all its frames, and its evaluations are recorded up to the last, which has so many games.
    #[track_caller]
    pub fn ended_well(&self, budget: u64, games: usize) {
        assert!(self.newest_checkpoint() >= budget);
        assert!(self.run.join("checkpoints/final/weights.safetensors").is_file());
        let text = self.file("evaluations.jsonl").unwrap();
        let evaluations: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect();
        let last = evaluations.last().expect("there are evaluations");
        assert!(last["frames"].as_u64().unwrap() >= budget, "{last}");
        assert_eq!(last["scores"].as_array().unwrap().len(), games, "{last}");
    }

    /// All of them are gone.
    #[track_caller]
    pub fn are_gone(&self, entries: &[Entry]) {
        until(&format!("all are gone of {entries:?}"), || !entries.iter().any(is_there));
        until("no process is listed", || self.roster().is_empty());
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // They should die with the launcher; a test that fails must not leave them if they don't.
        let entries = self.roster();
        let sockets = self.shard_address(0);
        self.process.kill();
        for entry in entries.iter().filter(|entry| is_there(entry)) {
            let _ = Pid::from_raw(entry.pid as i32).map(|pid| kill_process(pid, Signal::KILL));
        }
        if let Some(Address::Unix(path)) = sockets {
            let _ = path.parent().map(fs::remove_dir_all);
        }
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Whether a process runs and is the one that was meant: its status file has its name. One that waits to be reaped has
/// no command line.
pub fn is_there(entry: &Entry) -> bool {
    let status = format!("/{}.json", entry.name);
    command_line(entry.pid).iter().any(|word| word.ends_with(&status))
}

fn command_line(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split_terminator('\0').map(ToOwned::to_owned).collect()
}
