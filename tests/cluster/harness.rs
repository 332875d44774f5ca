//! A cluster by hand, as on many machines, but over sockets in one folder. Every part can be stopped and started alone.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::{PackedBatch, v1};
use rpc::address::Address;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::process::{Process, command, until};
use crate::wire;

static TURN: Mutex<()> = Mutex::new(());

/// Waits for its turn. A test that failed has left nothing behind.
pub fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder whose path is short enough for sockets.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("quiver-test-").tempdir_in("/tmp").unwrap()
}

/// Shards, a learner and actors. Actor `i` has index `i`.
pub struct Cluster {
    pub shards: Vec<Process>,
    pub learner: Process,
    pub actors: Vec<Process>,
    pub runtime: Runtime,
    linger: u32,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts everyone. `flags` are settings beside CartPole's own.
    pub fn start(shards: usize, actors: usize, flags: &[&str]) -> Self {
        Self::start_with_linger(shards, actors, flags, 0)
    }

    /// The same, with a learner that stays so many seconds when the run has ended.
    pub fn start_with_linger(shards: usize, actors: usize, flags: &[&str], linger: u32) -> Self {
        let turn = turn();
        let folder = folder();
        configure(folder.path(), shards, actors, flags);
        let path = folder.path();
        let addresses: Vec<Address> = (0..shards).map(|index| shard_address(path, index)).collect();
        Self {
            shards: (0..shards).map(|index| shard(path, index)).collect(),
            learner: learner(path, &addresses, linger),
            linger,
            actors: (0..actors).map(|index| actor(path, index)).collect(),
            runtime: wire::runtime(),
            folder,
            _turn: turn,
        }
    }

    /// Gives the run other settings, for the learner's next start.
    pub fn configure(&self, flags: &[&str]) {
        configure(self.path(), self.shards.len(), self.actors.len(), flags);
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn run_dir(&self) -> PathBuf {
        self.path().join("run")
    }

    pub fn shard_address(&self, index: usize) -> Address {
        shard_address(self.path(), index)
    }

    pub fn learner_address(&self) -> Address {
        Address::Unix(self.path().join("l"))
    }

    /// Starts a shard that was killed; it comes back empty.
    pub fn start_shard(&mut self, index: usize) {
        self.shards[index] = shard(self.folder.path(), index);
    }

    /// Starts a shard at an address with the data directory of that name.
    pub fn start_shard_with(&mut self, index: usize, data: &str) {
        let data = ["--data-dir".into(), self.path().join(data).display().to_string()];
        self.shards[index] = shard_as(self.folder.path(), index, &data);
    }

    pub fn start_learner(&mut self) {
        self.start_learner_with_shards(&self.shard_addresses());
    }

    /// A learner that looks for its shards there.
    pub fn start_learner_with_shards(&mut self, shards: &[Address]) {
        self.learner = learner(self.folder.path(), shards, self.linger);
    }

    fn shard_addresses(&self) -> Vec<Address> {
        (0..self.shards.len()).map(|index| shard_address(self.path(), index)).collect()
    }

    pub fn start_actor(&mut self, index: usize) {
        self.actors[index] = actor(self.folder.path(), index);
    }

    /// An evaluator, or an actor that requests no index.
    pub fn start_member(&self, name: &str, flags: &[&str]) -> Process {
        let mut arguments = vec!["--learner".into(), self.learner_address().to_string()];
        arguments.extend(flags.iter().map(ToString::to_string));
        Process::start(self.path(), name, "quiver-actor", &arguments)
    }

    pub fn info(&self, shard: usize) -> v1::InfoReply {
        self.runtime.block_on(wire::info(&self.shard_address(shard)))
    }

    pub fn counters(&self, shard: usize) -> v1::Counters {
        self.info(shard).shard.unwrap().counters.unwrap()
    }

    pub fn table(&self, shard: usize) -> v1::TableStatus {
        self.info(shard).shard.unwrap().tables.first().copied().unwrap_or_default()
    }

    /// The items of a shard, as far as a thousand draws show them.
    pub fn items(&self, shard: usize) -> PackedBatch {
        let (run, incarnation) = self.run();
        let address = self.shard_address(shard);
        let drawn = wire::sample(&address, &run, incarnation, wire::even_points(1000));
        self.runtime.block_on(drawn).unwrap_or_default()
    }

    /// Gradient steps of the learner's life.
    pub fn updates(&self) -> f64 {
        self.learner.metric("quiver_learner_updates_total")
    }

    /// Whether the learner says that it waits for one of these.
    pub fn learner_waits_for(&self, whats: &[&str]) -> bool {
        let text = self.learner.page("/metrics");
        let waits =
            |what| crate::process::metric(&text, &format!("quiver_learner_blocked{{on=\"{what}\"}}")) == 1.0;
        whats.iter().any(waits)
    }

    /// The run's name, and which start of the learner this is.
    pub fn run(&self) -> (String, u32) {
        let read = |name| std::fs::read_to_string(self.run_dir().join(name)).unwrap();
        (read("run-id"), read("learner-incarnation").parse().unwrap())
    }

    /// Training makes progress from here: updates, and inserts into these shards.
    #[track_caller]
    pub fn moves_on(&self, shards: &[usize]) {
        // From what was asked for or prepared before.
        const MORE_THAN_IN_FLIGHT: f64 = 40.0;
        let updates = self.updates();
        until("the learner makes updates", || self.updates() >= updates + MORE_THAN_IN_FLIGHT);
        for &shard in shards {
            let inserts = self.counters(shard).inserts;
            until(&format!("shard {shard} is inserted into"), || self.counters(shard).inserts > inserts + 20);
        }
    }

    /// All shards hold this many items each.
    #[track_caller]
    pub fn fill(&self, items: u64) {
        for shard in 0..self.shards.len() {
            until(&format!("shard {shard} is filled"), || self.table(shard).items >= items);
        }
    }
}

/// Writes the settings. Without `--frames` among the flags, the run has no end that a test would see.
pub fn configure(folder: &Path, shards: usize, actors: usize, flags: &[&str]) {
    let mut command = command("quiver");
    command.args(["config", "show", "cartpole", "--shards", &shards.to_string()]);
    command.args(["--actors", &actors.to_string()]).args(flags);
    if !flags.contains(&"--frames") {
        command.args(["--frames", "100000000", "--checkpoint-every-frames", "50000000"]);
    }
    let shown = command.output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    std::fs::write(folder.join("config.toml"), shown.stdout).unwrap();
}

fn shard(folder: &Path, index: usize) -> Process {
    shard_as(folder, index, &["--id".into(), format!("shard-{index}")])
}

fn shard_as(folder: &Path, index: usize, flags: &[String]) -> Process {
    let listen = shard_address(folder, index).to_string();
    let arguments = [&["--listen".into(), listen], flags].concat();
    Process::start(folder, &format!("shard-{index}"), "quiver-replay-server", &arguments)
}

fn shard_address(folder: &Path, index: usize) -> Address {
    Address::Unix(folder.join(format!("s{index}")))
}

fn learner(folder: &Path, shards: &[Address], linger: u32) -> Process {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut arguments = vec!["--config".into(), at("config.toml"), "--run-dir".into(), at("run")];
    arguments.extend(["--listen".into(), format!("unix:{}", at("l"))]);
    arguments.extend(["--linger-seconds".into(), linger.to_string()]);
    arguments.extend(shards.iter().flat_map(|shard| ["--shard".into(), shard.to_string()]));
    Process::start(folder, "learner", "quiver-learner", &arguments)
}

fn actor(folder: &Path, index: usize) -> Process {
    let learner = format!("unix:{}", folder.join("l").display());
    let arguments = ["--learner".into(), learner, "--index".into(), index.to_string()];
    Process::start(folder, &format!("actor-{index}"), "quiver-actor", &arguments)
}
