//! `quiver adjust`: changes the pace of a run, how much its replay keeps or in which shards, while it trains.

use std::collections::HashMap;

use anyhow::{anyhow, bail};
use clap::Args;
use proto::v1;
use proto::v1::learner_client::LearnerClient;
use rpc::address::Address;
use rpc::role::Role;

use crate::certs::SecretsArgs;
use crate::output::say;
use crate::processes;

/// Change a run while it trains: its ratio of samples to inserts, its replay's size, its shards
///
/// Everything is checked first: a change that would stall the run is refused. It lasts, also when the run is resumed.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Adjust {
    /// A run that trains on this machine (its directory, or its name below runs/), or a learner's address
    whose: String,
    /// Samples taken per transition inserted, or none to let both run free
    #[arg(long, value_name = "RATIO")]
    samples_per_insert: Option<String>,
    /// Transitions in the replay before the next batch
    #[arg(long, value_name = "ITEMS")]
    min_size: Option<String>,
    /// Transitions kept, by all shards together
    #[arg(long, value_name = "ITEMS")]
    capacity: Option<String>,
    /// α: priorities are raised to this power
    #[arg(long, value_name = "ALPHA")]
    priority_exponent: Option<String>,
    /// Go on without these shards, which are lost for good: numbers from 0 with commas between, or none to go on with all,
    /// each as soon as it answers
    #[arg(long, value_name = "NUMBERS")]
    without_shards: Option<String>,
    #[command(flatten)]
    secrets: SecretsArgs,
}

const EXAMPLES: &str = "\
Examples:
  quiver adjust pong-ver-seed0 --samples-per-insert 4
  quiver adjust 127.0.0.1:7000 --capacity 2M --priority-exponent 0.6
  quiver adjust pong-ver-seed0 --without-shards 1     do not wait for shard 1 any more";

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
                "say what to change: --samples-per-insert, --min-size, --capacity, --priority-exponent or --without-shards"
            );
        }
        let learner: Address = match processes::addresses(&self.whose, "learner")?.as_slice() {
            [learner] => learner.clone(),
            _ => bail!("{} has no learner that runs", self.whose),
        };
        let mut changed: Vec<String> = settings.iter().map(|(key, text)| format!("{key} = {text}")).collect();
        changed.sort();
        let credentials = self.secrets.credentials()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reply = runtime.block_on(async {
            let mut client = LearnerClient::new(credentials.channel(Role::Learner, &learner));
            client.adjust(v1::AdjustRequest { settings }).await
        });
        reply.map_err(|status| anyhow!("{learner}: {}", credentials.describe(&learner, &status)))?;
        say(&format!("from now on: {}", changed.join(", ")))
    }
}
