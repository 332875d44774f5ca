//! The flags of the process, validated once.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use replay::BYTE_UNITS;
use rpc::address::Address;
use telemetry::TelemetryArgs;

use crate::store_backend::StoreBackend;

/// Default share of the machine's memory that a store may use. The rest is for the system, messages in flight and other
/// processes.
const MEMORY_SHARE: f64 = 0.8;
/// Default of --fsync for a shard with files.
const FSYNC_DEFAULT: Fsync = Fsync::Every(Duration::from_secs(10));
/// Characters in a shard id given with --id.
const ID_CHARACTERS_MAX: usize = 128;

/// One replay shard: stores the newest transitions of a training run and samples them by priority.
///
/// `quiver train` starts its own shards. On several machines, start one process per shard and give the learner their
/// addresses. The learner configures the shards. With --data-dir everything acknowledged survives the process, even if
/// it is killed, and the next start resumes from there. Without it, a restarted shard is empty, and the run continues.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "quiver-replay-server",
    version,
    after_help = "Examples:\n  quiver-replay-server --listen 127.0.0.1:7701 --metrics-listen 127.0.0.1:9101 --data-dir /data/replay\n  quiver-replay-server --data-dir /data/elsewhere --restore shard-0.snapshot"
)]
pub struct Args {
    /// Address to serve on: host:port, or unix:/path for this machine only. Port 0 selects a free port, which the log
    /// reports
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7701")]
    pub listen: Address,

    /// Serve over TLS and reject unauthorized callers. DIR is the folder `replay` that `quiver certs` created
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    pub secrets: Option<PathBuf>,

    /// Allow unauthenticated plaintext on a non-loopback address
    #[arg(long, conflicts_with = "secrets")]
    pub insecure: bool,

    /// Store everything in files under this directory. Several shards may share it: each locks its own slot
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// When to flush the files of --data-dir to disk: none (leave it to the system), every N seconds, or always (before
    /// each acknowledgement). Protects against power loss; a killed process loses no file in any case [default: 10]
    #[arg(long, value_name = "none|SECONDS|always")]
    pub fsync: Option<Fsync>,

    /// Start with the contents and the id of this snapshot (made by `quiver snapshot`). With --data-dir, the shard
    /// takes the first slot that no other shard has locked, and this slot must be empty
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,

    /// The shard's permanent id for learner and actors. Not with --data-dir, where the slot has an id, or --restore, where
    /// the snapshot has one [default: random]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["data_dir", "restore"])]
    pub id: Option<String>,

    /// The largest store that the learner may configure, files included, such as 8GiB; connections and replies need more
    /// [default: 80% of the memory of the machine or container; no limit with --data-dir, as files need not fit into
    /// memory]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub memory_limit: Option<MemorySize>,

    /// Exit with code 0 when the learner reports the end of the run. For containers that start and stop together
    #[arg(long)]
    pub exit_with_run: bool,

    /// Exit at once, with code 0, when stdin closes: for launchers that hold the other end of a pipe, so the shard ends
    /// with them. With stdin at /dev/null (systemd, nohup) it exits at its start
    #[arg(long)]
    pub exit_with_parent: bool,

    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// A size in bytes, written as `--replay-bytes` is: 8GiB, 500MB, or a plain number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub u64);

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("expected a size such as 8GiB or 500MB, got {text:?}");
        let unit = BYTE_UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
        let (number, size) = unit.unwrap_or((text, 1));
        let number: u64 = number.trim().parse().map_err(|_| unknown())?;
        number.checked_mul(size).map(MemorySize).ok_or_else(unknown)
    }
}

/// When files are flushed to disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fsync {
    /// When the system decides.
    Never,
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

/// The validated flags, with defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Address,
    /// Folder with certificates and keys. Without it, the shard serves plaintext and authorizes every caller.
    pub secrets: Option<PathBuf>,
    /// The id of a shard without a data directory.
    pub id: String,
    /// Directory of its files, if any.
    pub data_dir: Option<PathBuf>,
    pub fsync: Fsync,
    /// The snapshot to start from.
    pub restore: Option<PathBuf>,
    /// The most memory that a store may use.
    pub memory_limit: u64,
    /// Exit when the run ends.
    pub exit_with_run: bool,
}

impl Config {
    /// Locks the shard's backend, and restores a snapshot into it if one was given.
    pub fn store_backend(&self) -> anyhow::Result<StoreBackend> {
        let mut backend = match &self.data_dir {
            None => StoreBackend::in_memory(self.id.clone()),
            Some(directory) => StoreBackend::lock_directory(directory)
                .with_context(|| format!("--data-dir {}", directory.display()))?,
        };
        if let Some(snapshot) = &self.restore {
            backend.restore(snapshot).with_context(|| format!("--restore {}", snapshot.display()))?;
        }
        Ok(backend)
    }
}

impl TryFrom<&Args> for Config {
    type Error = anyhow::Error;

    fn try_from(args: &Args) -> anyhow::Result<Self> {
        args.listen.check_exposure(args.secrets.is_some(), args.insecure)?;
        let id = match &args.id {
            None => {
                let random =
                    random_bytes().context("cannot read /dev/urandom to create a random id: give --id")?;
                random.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            Some(id) => {
                let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
                let is_valid = (1..=ID_CHARACTERS_MAX).contains(&id.len()) && id.bytes().all(allowed);
                ensure!(
                    is_valid,
                    "--id {id:?} must have 1 to {ID_CHARACTERS_MAX} characters of a-z, A-Z, 0-9, '.', '-' and '_'"
                );
                id.clone()
            }
        };
        let memory_limit = match args.memory_limit {
            Some(MemorySize(bytes)) => bytes,
            None if args.data_dir.is_some() => u64::MAX,
            None => {
                (memory_bytes().context("cannot determine the machine's memory: give --memory-limit")? as f64
                    * MEMORY_SHARE) as u64
            }
        };
        ensure!(
            args.data_dir.is_some() || matches!(args.fsync, None | Some(Fsync::Never)),
            "--fsync needs --data-dir: this shard keeps everything in memory, so there are no files to flush"
        );
        let (listen, data_dir, restore) = (args.listen.clone(), args.data_dir.clone(), args.restore.clone());
        let fsync = args.fsync.unwrap_or(FSYNC_DEFAULT);
        let (exit_with_run, secrets) = (args.exit_with_run, args.secrets.clone());
        Ok(Self { listen, secrets, id, data_dir, fsync, restore, memory_limit, exit_with_run })
    }
}

/// For a random id.
fn random_bytes() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The machine's memory, or the limit of the container if that is less.
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
    fn a_start_without_flags_has_a_memory_limit_and_an_id_that_no_other_start_has() {
        let (one, other) = (config(&[]).unwrap(), config(&[]).unwrap());
        assert_eq!(one.id.len(), 32);
        assert_ne!(one.id, other.id);
        assert!(one.memory_limit > 1 << 24);
        assert_eq!(one.listen.to_string(), "127.0.0.1:7701");
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
        assert!(refused(&["--id", "a", "--restore", "b"]).contains("cannot be used with '--restore"));
    }

    #[test]
    fn a_memory_limit_has_the_units_of_replay_bytes() {
        let limit = |text| config(&[&format!("--memory-limit={text}")]).map(|config| config.memory_limit);
        assert_eq!(limit("1GiB").unwrap(), 1 << 30);
        assert_eq!(limit("500 MB").unwrap(), 500_000_000);
        assert_eq!(limit("123").unwrap(), 123);
        for wrong in ["1G", "", "-1", "99999999999GiB"] {
            assert!(limit(wrong).unwrap_err().to_string().contains("a size such as 8GiB"), "{wrong}");
        }
    }

    #[test]
    fn fsync_parses_none_seconds_and_always() {
        let fsync = |text| config(&["--data-dir", "d", "--fsync", text]).unwrap().fsync;
        assert_eq!(fsync("none"), Fsync::Never);
        assert_eq!(fsync("0.5"), Fsync::Every(Duration::from_millis(500)));
        assert_eq!(fsync("always"), Fsync::Always);
        assert_eq!(config(&["--data-dir", "d"]).unwrap().fsync, Fsync::Every(Duration::from_secs(10)));
    }

    #[test]
    fn a_shard_without_files_refuses_to_flush_them() {
        for fsync in ["always", "5"] {
            let refused = config(&["--fsync", fsync]).unwrap_err().to_string();
            assert!(refused.contains("--fsync needs --data-dir"), "{refused}");
        }
        assert_eq!(config(&["--fsync", "none"]).unwrap().fsync, Fsync::Never);
    }
}
