//! What the process is told when it starts: flags, checked once.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use rpc::address::Address;
use telemetry::TelemetryArgs;

use crate::home::Place;

/// Share of the machine's memory that a store may ask for unless told otherwise. The rest is for the system, the
/// messages on their way and the neighbours.
const MEMORY_SHARE: f64 = 0.8;
/// Characters in a name that a person chooses.
const ID_CHARACTERS_MAX: usize = 128;

/// One replay shard: keeps the newest transitions of a training run and draws them by priority.
///
/// `quiver train` starts its own. On many machines, start one for each shard and give the learner their addresses; it
/// tells them what to hold and how much to take in. With --data-dir everything acknowledged survives the process, however
/// it ends, and the shard goes on where it was; without, it comes back empty and the run goes on all the same.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "quiver-replay-server",
    version,
    after_help = "Examples:\n  quiver-replay-server --listen 127.0.0.1:7777 --metrics-listen 127.0.0.1:9777 --data-dir /data/replay\n  quiver-replay-server --data-dir /data/elsewhere --restore shard-0.snapshot"
)]
pub struct Args {
    /// Where to serve: host:port, or unix:/path for this machine only. Port 0 picks a free one, and the log says which
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7777")]
    pub listen: Address,

    /// Speak TLS, and let in only whom the secrets in this folder name ('quiver certs' makes it: replay)
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    pub secrets: Option<PathBuf>,

    /// Listen where other machines can reach it although everyone there may do everything
    #[arg(long, conflicts_with = "secrets")]
    pub insecure: bool,

    /// Keep everything in files under this directory. Several shards may share it: each takes a slot of its own
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// When files reach the disk: none (when the system likes), every N seconds, or always (before each
    /// acknowledgement). This is about loss of power: a process that dies loses nothing either way
    #[arg(long, value_name = "none|SECONDS|always", default_value = "10")]
    pub fsync: Fsync,

    /// Begin with what a snapshot holds (`quiver snapshot` makes one). The data directory must have an empty slot
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,

    /// The shard's name for ever, by which learner and actors know it [default: a random one; with --data-dir, the slot's]
    #[arg(long, value_name = "NAME", conflicts_with = "data_dir")]
    pub id: Option<String>,

    /// The most memory, in bytes, that the learner may ask for [default: 80% of what there is; with --data-dir, no bound,
    /// as files need not fit into memory]
    #[arg(long, value_name = "BYTES")]
    pub bytes_limit: Option<u64>,

    /// End, with exit code 0, when the learner says that the run has ended. For containers that start and stop as one
    #[arg(long)]
    pub end_with_run: bool,

    /// End at once when standard input ends. For launchers: however they die, the shard dies with them
    #[arg(long)]
    pub lifeline: bool,

    /// Log, metrics and health.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// When files reach the disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fsync {
    /// When the system likes.
    Never,
    /// So often.
    Every(Duration),
    /// Before each acknowledgement.
    Always,
}

impl FromStr for Fsync {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("expected none, always or a number of seconds from 0.1 to 86400, got {text:?}");
        match text {
            "none" => Ok(Fsync::Never),
            "always" => Ok(Fsync::Always),
            _ => {
                let seconds: f64 = text.parse().map_err(|_| unknown())?;
                (0.1..=86_400.0)
                    .contains(&seconds)
                    .then(|| Fsync::Every(Duration::from_secs_f64(seconds)))
                    .ok_or_else(unknown)
            }
        }
    }
}

/// The flags, checked and completed.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to serve.
    pub listen: Address,
    /// What it asks of those who come, unless they may do everything.
    pub secrets: Option<PathBuf>,
    /// The name of a shard without a data directory.
    pub id: String,
    /// Where it keeps its files, if it has any.
    pub data_dir: Option<PathBuf>,
    /// When they reach the disk.
    pub fsync: Fsync,
    /// What it begins with.
    pub restore: Option<PathBuf>,
    /// The most that a store may take.
    pub bytes_limit: u64,
    /// Whether it ends when the run does.
    pub end_with_run: bool,
}

impl Config {
    /// Takes the shard's place, and fills it with a snapshot if one was given.
    pub fn place(&self) -> anyhow::Result<Place> {
        let mut place = match &self.data_dir {
            None => Place::memory(self.id.clone()),
            Some(directory) => {
                Place::directory(directory).with_context(|| format!("--data-dir {}", directory.display()))?
            }
        };
        if let Some(snapshot) = &self.restore {
            place.restore(snapshot).with_context(|| format!("--restore {}", snapshot.display()))?;
        }
        Ok(place)
    }
}

impl TryFrom<&Args> for Config {
    type Error = anyhow::Error;

    fn try_from(args: &Args) -> anyhow::Result<Self> {
        args.listen.check_exposure(args.secrets.is_some(), args.insecure)?;
        let id = match &args.id {
            None => {
                let random = random_bytes().context("cannot read /dev/urandom for a random name")?;
                random.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            Some(id) => {
                let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
                let sound = (1..=ID_CHARACTERS_MAX).contains(&id.len()) && id.bytes().all(allowed);
                ensure!(
                    sound,
                    "--id {id:?} must be 1 to {ID_CHARACTERS_MAX} of a-z, A-Z, 0-9, '.', '-' and '_'"
                );
                id.clone()
            }
        };
        let bytes_limit = match args.bytes_limit {
            Some(bytes) => bytes,
            None if args.data_dir.is_some() => u64::MAX,
            None => {
                (memory_bytes().context("cannot tell how much memory there is, give --bytes-limit")? as f64
                    * MEMORY_SHARE) as u64
            }
        };
        let (listen, data_dir, restore) = (args.listen.clone(), args.data_dir.clone(), args.restore.clone());
        let (fsync, end_with_run, secrets) = (args.fsync, args.end_with_run, args.secrets.clone());
        Ok(Self { listen, secrets, id, data_dir, fsync, restore, bytes_limit, end_with_run })
    }
}

/// For a name.
fn random_bytes() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What the machine has, or the container may use if that is less.
fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes: u64 = text.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok()?;
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = container.and_then(|text| text.trim().parse().ok());
    Some(container.unwrap_or(u64::MAX).min(kilobytes * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: &[&str]) -> anyhow::Result<Config> {
        let flags = [&["quiver-replay-server"], flags].concat();
        Config::try_from(&Args::try_parse_from(flags)?)
    }

    #[test]
    fn a_start_without_flags_has_a_name_and_a_bound_and_another_one_another_name() {
        let (one, other) = (config(&[]).unwrap(), config(&[]).unwrap());
        assert_eq!(one.id.len(), 32);
        assert_ne!(one.id, other.id);
        assert!(one.bytes_limit > 1 << 24);
        assert_eq!(one.listen.to_string(), "http://127.0.0.1:7777");
    }

    #[test]
    fn names_and_addresses_are_checked() {
        assert_eq!(config(&["--id", "shard-0.blue_1"]).unwrap().id, "shard-0.blue_1");
        let refused = |flags: &[&str]| config(flags).unwrap_err().to_string();
        assert!(refused(&["--id", "../x"]).contains("--id"));
        assert!(refused(&["--id", ""]).contains("--id"));
        assert!(refused(&["--listen", "nowhere"]).contains("no port"));
        assert!(refused(&["--fsync", "sometimes"]).contains("none, always or a number of seconds"));
        assert!(refused(&["--id", "a", "--data-dir", "b"]).contains("cannot be used with"));
    }

    #[test]
    fn fsync_is_never_now_and_then_or_always() {
        let fsync = |text| config(&["--fsync", text]).unwrap().fsync;
        assert_eq!(fsync("none"), Fsync::Never);
        assert_eq!(fsync("0.5"), Fsync::Every(Duration::from_millis(500)));
        assert_eq!(fsync("always"), Fsync::Always);
    }
}
