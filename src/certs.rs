//! `quiver certs`: makes the certificates and tokens of a cluster; and the `--secrets` flag of the commands that use them.

use std::path::PathBuf;

use clap::Args;
use rpc::channel::Credentials;
use rpc::secrets::SecretsError;
use rpc::secrets::make::{Made, SecretsRequest, make};

use crate::output::print_line;

/// Make a certificate authority, certificates and tokens for a cluster on several machines
///
/// Creates one folder per role. Give each process its folder with --secrets: connections between machines then use TLS,
/// and a caller may use only the methods of its role. Credentials from one role's folder cannot be used for another
/// role. (The folder `client` has the roles actor, learner and admin.) The folder `authority` can issue credentials for
/// any role: keep it offline. Run the command again on the same folder to renew: it keeps what is still valid, adds
/// hosts, and replaces certificates that expire within 30 days.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Certs {
    /// Parent of the folders to create: authority, replay, learner, actor, admin, client
    #[arg(long, value_name = "DIR", default_value = "secrets")]
    out: PathBuf,
    /// Another host name or IP address of shards and learner, for third-party clients that verify it; repeat for each. Quiver's
    /// own programs verify the server's role instead of its host name
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Validity of certificates in days
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=7300))]
    days: u32,
    /// Callers authenticate with certificates (mutual TLS) instead of tokens. Stays in force until --tokens
    #[arg(long, conflicts_with = "tokens")]
    mutual: bool,
    /// Callers authenticate with tokens (the default)
    #[arg(long)]
    tokens: bool,
    /// Replace certificates that are still valid. Tokens are kept; to replace a token, delete its file first
    #[arg(long)]
    renew: bool,
}

const EXAMPLES: &str = "\
Example:
  quiver certs                                        then copy each folder to the machines that use it:
  quiver-replay-server --listen 0.0.0.0:7701 --secrets secrets/replay --data-dir /data/replay
  quiver-learner --listen 0.0.0.0:7700 --secrets secrets/learner --shard replay-1:7701 --config ... --run-dir ...
  quiver-actor --learner trainer:7700 --secrets secrets/actor
  quiver inspect replay-1:7701 --secrets secrets/admin

Keep secrets/authority off these machines: its key can issue a certificate for any role.";

impl Certs {
    pub fn run(&self) -> anyhow::Result<()> {
        let (hosts, days) = (self.hosts.clone(), self.days);
        let mutual = (self.mutual || self.tokens).then_some(self.mutual);
        let made = make(&self.out, &SecretsRequest { hosts, days, mutual, renew: self.renew })?;
        let out = self.out.display();
        print_line(&match made {
            Made::New => {
                format!(
                    "created {out}/{{replay,learner,actor,evaluator,admin,client}} for --secrets, and {out}/authority; keep the authority offline"
                )
            }
            Made::Renewed => {
                format!(
                    "created new certificates in {out}: copy the folders to their machines again and restart the processes that use them"
                )
            }
            Made::Kept { days } => {
                format!("{out} is valid for {days} more days; --renew replaces the certificates anyway")
            }
        })
    }
}

/// The credentials of a command.
#[derive(Args, Clone, Debug)]
pub struct SecretsArgs {
    /// Connect over TLS. DIR is the folder `admin` that `quiver certs` created
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    secrets: Option<PathBuf>,
}

impl SecretsArgs {
    pub fn credentials(&self) -> Result<Credentials, SecretsError> {
        Credentials::load(self.secrets.as_deref())
    }
}
