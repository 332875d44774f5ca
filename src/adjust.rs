//! `quiver adjust`: changes settings of an active run.

use std::collections::HashMap;

use anyhow::{anyhow, bail};
use clap::Args;
use proto::v1;
use proto::v1::learner_client::LearnerClient;
use rpc::address::Address;
use rpc::role::Role;
use tonic::Code;

use crate::certs::SecretsArgs;
use crate::output::print_line;
use crate::processes;

/// Change settings of an active run: samples_per_insert, min_size, capacity, priority_exponent, without_shards
///
/// The learner checks all changes first. It refuses a min_size that the remaining shards cannot hold, and a list of
/// without_shards that leaves no shard to write to. Changes are saved in the run directory and survive `--resume`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Adjust {
    /// A run that is training on this machine (its directory, or its name below runs/), or a learner's address
    target: String,
    /// Transitions sampled per transition inserted, or none to decouple actors and learner
    #[arg(long, value_name = "RATIO")]
    samples_per_insert: Option<String>,
    /// Transitions that the replay must hold before the learner samples
    #[arg(long, value_name = "ITEMS")]
    min_size: Option<String>,
    /// Transitions kept, all shards together
    #[arg(long, value_name = "ITEMS")]
    capacity: Option<String>,
    /// PER's α: sampling probability ∝ (priority + priority_constant)^α (the paper writes α_IS)
    #[arg(long, value_name = "ALPHA")]
    priority_exponent: Option<String>,
    /// Continue without these shards, because they are lost for good: comma-separated numbers from 0. Or none: use every shard
    /// again as soon as it responds
    #[arg(long, value_name = "NUMBERS")]
    without_shards: Option<String>,
    #[command(flatten)]
    secrets: SecretsArgs,
}

const EXAMPLES: &str = "\
Examples:
  quiver adjust pong-ver-seed0 --samples-per-insert 4
  quiver adjust 127.0.0.1:7700 --capacity 2M --priority-exponent 0.6
  quiver adjust pong-ver-seed0 --without-shards 1     stop waiting for shard 1";

impl Adjust {
    pub fn run(&self) -> anyhow::Result<()> {
        let given = [
            ("samples_per_insert", &self.samples_per_insert),
            ("min_size", &self.min_size),
            ("capacity", &self.capacity),
            ("priority_exponent", &self.priority_exponent),
            ("without_shards", &self.without_shards),
        ];
        let settings: HashMap<String, String> =
            given.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.clone()?))).collect();
        if settings.is_empty() {
            bail!(
                "nothing to change: give --samples-per-insert, --min-size, --capacity, --priority-exponent or --without-shards"
            );
        }
        let learner: Address = match processes::addresses(&self.target, "learner")?.as_slice() {
            [learner] => learner.clone(),
            _ => bail!(
                "{} has no running learner: start it with 'quiver train --resume {0}', or give the learner's address",
                self.target
            ),
        };
        let mut changed: Vec<String> = settings.iter().map(|(key, text)| format!("{key} = {text}")).collect();
        changed.sort();
        let credentials = self.secrets.credentials()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reply = runtime.block_on(async {
            let mut client = LearnerClient::new(credentials.channel(Role::Learner, &learner));
            client.adjust(v1::AdjustRequest { settings }).await
        });
        reply.map_err(|status| match status.code() {
            // A shard speaks gRPC as well, but it has no such method, and its answer carries no text.
            Code::Unimplemented => anyhow!(
                "{learner} is not a learner's address: name the run, or the address that its learner listens on"
            ),
            _ => anyhow!("{}", credentials.describe_at(&learner, &status)),
        })?;
        print_line(&format!("changed: {}", changed.join(", ")))
    }
}
