//! What the process is told when it starts: flags, checked once.

use std::fs;
use std::io::Read;

use anyhow::{Context, ensure};
use clap::Parser;
use rpc::address::Address;
use telemetry::TelemetryArgs;

use crate::shard::Identity;

/// Share of the machine's memory that a table may ask for unless told otherwise. The rest is for the system, the
/// messages on their way and the neighbours.
const MEMORY_SHARE: f64 = 0.8;
/// Characters in a name that a person chooses.
const ID_CHARACTERS_MAX: usize = 128;

/// One replay shard: keeps the newest transitions of a training run in memory and draws them by priority.
///
/// `quiver train` starts its own. On many machines, start one for each shard and give the learner their addresses; it
/// tells them what to hold and how much to take in. A shard that is stopped comes back empty, and the run goes on.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "quiver-replay-server",
    version,
    after_help = "Example:\n  quiver-replay-server --listen 127.0.0.1:7777 --metrics-listen 127.0.0.1:9777"
)]
pub struct Args {
    /// Where to serve: host:port, or unix:/path for this machine only. Port 0 picks a free one, and the log says which
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7777")]
    pub listen: Address,

    /// Listen where other machines can reach it although there is no TLS yet
    #[arg(long)]
    pub insecure: bool,

    /// The shard's name for ever, by which learner and actors know it [default: a random one]
    #[arg(long, value_name = "NAME")]
    pub id: Option<String>,

    /// The most memory, in bytes, that the learner may ask for [default: 80% of what there is]
    #[arg(long, value_name = "BYTES")]
    pub bytes_limit: Option<u64>,

    /// End at once when standard input ends. For launchers: however they die, the shard dies with them
    #[arg(long)]
    pub lifeline: bool,

    /// Log, metrics and health.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// The flags, checked and completed.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to serve.
    pub listen: Address,
    /// Who this shard is, in this life.
    pub identity: Identity,
    /// The most that a table may take.
    pub bytes_limit: u64,
}

impl TryFrom<&Args> for Config {
    type Error = anyhow::Error;

    fn try_from(args: &Args) -> anyhow::Result<Self> {
        args.listen.check_exposure(args.insecure)?;
        let random = random_bytes().context("cannot read /dev/urandom for a random name")?;
        let (incarnation, id) = random.split_at(4);
        let id = match &args.id {
            None => id.iter().map(|byte| format!("{byte:02x}")).collect(),
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
        let incarnation = u32::from_le_bytes(incarnation.try_into().expect("four bytes")).max(1);
        let bytes_limit = match args.bytes_limit {
            Some(bytes) => bytes,
            None => {
                (memory_bytes().context("cannot tell how much memory there is, give --bytes-limit")? as f64
                    * MEMORY_SHARE) as u64
            }
        };
        Ok(Self { listen: args.listen.clone(), identity: Identity { id, incarnation }, bytes_limit })
    }
}

/// For an incarnation and a name.
fn random_bytes() -> std::io::Result<[u8; 20]> {
    let mut bytes = [0; 20];
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
        assert_eq!(one.identity.id.len(), 32);
        assert_ne!(one.identity, other.identity);
        assert!(one.identity.incarnation > 0 && one.bytes_limit > 1 << 24);
        assert_eq!(one.listen.to_string(), "http://127.0.0.1:7777");
    }

    #[test]
    fn names_and_addresses_are_checked() {
        assert_eq!(config(&["--id", "shard-0.blue_1"]).unwrap().identity.id, "shard-0.blue_1");
        let refused = |flags: &[&str]| config(flags).unwrap_err().to_string();
        assert!(refused(&["--id", "../x"]).contains("--id"));
        assert!(refused(&["--id", ""]).contains("--id"));
        assert!(refused(&["--listen", "nowhere"]).contains("no port"));
    }
}
