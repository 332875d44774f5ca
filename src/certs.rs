//! `quiver certs`: what the processes of a cluster show to each other; and the flag by which commands show theirs.

use std::path::PathBuf;

use clap::Args;
use rpc::channel::Credentials;
use rpc::secrets::SecretsError;
use rpc::secrets::make::{Made, Order, make};

use crate::output::say;

/// Make an authority, certificates and tokens, so that a cluster on several machines can be secure
///
/// Each process gets a folder of its own, with --secrets: nothing in it is of use to pretend to be someone else. Connections
/// between machines are then TLS, and everyone may do only what its role is for. Run it again on the same folder to renew:
/// whatever lasts is kept, hosts are added, and certificates that end within 30 days are made anew.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Certs {
    /// Where the folders go: authority, replay, learner, actor, admin, client
    #[arg(long, value_name = "DIR", default_value = "secrets")]
    out: PathBuf,
    /// A further name or address of shards and learner, for clients of other makers, which look at it; once for each. Ours
    /// ask whether it is a shard or a learner, wherever it is
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// How long certificates last
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=7300))]
    days: u32,
    /// Callers show certificates instead of tokens. It stays so until --tokens
    #[arg(long, conflicts_with = "tokens")]
    mutual: bool,
    /// Callers show tokens, as at first
    #[arg(long)]
    tokens: bool,
    /// Make certificates anew although they last. Tokens are kept; to replace one, delete its file first
    #[arg(long)]
    renew: bool,
}

const EXAMPLES: &str = "\
Example:
  quiver certs                                        then copy each folder to where it is used:
  quiver-replay-server --listen 0.0.0.0:7701 --secrets secrets/replay --data-dir /data/replay
  quiver-learner --listen 0.0.0.0:7700 --secrets secrets/learner --shard replay-1:7701 --config ... --run-dir ...
  quiver-actor --learner trainer:7700 --secrets secrets/actor
  quiver inspect replay-1:7701 --secrets secrets/admin

Keep secrets/authority away from all of them: whoever has it can be anyone.";

impl Certs {
    pub fn run(&self) -> anyhow::Result<()> {
        let (hosts, days) = (self.hosts.clone(), self.days);
        let mutual = (self.mutual || self.tokens).then_some(self.mutual);
        let made = make(&self.out, &Order { hosts, days, mutual, renew: self.renew })?;
        let out = self.out.display();
        say(&match made {
            Made::New => {
                format!(
                    "made {out}/{{replay,learner,actor,admin,client}}, for --secrets, and {out}/authority, to be kept away"
                )
            }
            Made::Renewed => {
                format!(
                    "made new certificates in {out}: copy the folders again, and start everyone who has the old ones anew"
                )
            }
            Made::Kept { days } => {
                format!("{out} is good for {days} more days; --renew makes new certificates all the same")
            }
        })
    }
}

/// What a command shows to a cluster.
#[derive(Args, Clone, Debug)]
pub struct SecretsArgs {
    /// For a cluster with secrets: the folder of your own ('quiver certs' makes it: admin)
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    secrets: Option<PathBuf>,
}

impl SecretsArgs {
    pub fn credentials(&self) -> Result<Credentials, SecretsError> {
        Credentials::load(self.secrets.as_deref())
    }
}
