//! `quiver snapshot`: copies a shard's contents into a file while the shard serves.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use proto::limits::SAMPLE_BYTES_MAX;
use proto::v1::replay_client::ReplayClient;
use rpc::address::Address;
use rpc::role::Role;
use rpc::snapshot::SnapshotError;

use crate::certs::SecretsArgs;
use crate::output::{print_line, print_note};

/// Copy a replay shard's contents into a file while the shard serves
///
/// Start a shard from the file with: quiver-replay-server --data-dir DIR --restore FILE
#[derive(Args)]
#[command(after_help = "Example:\n  quiver snapshot 127.0.0.1:7701 shard-0.snapshot")]
pub struct Snapshot {
    /// The shard's address: host:port or unix:/path. Under `quiver train`, processes.json in the run directory names it
    shard: Address,
    /// The file to write. An existing file is replaced once the snapshot is complete
    file: PathBuf,
    #[command(flatten)]
    secrets: SecretsArgs,
}

impl Snapshot {
    pub fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bytes = runtime.block_on(self.save())?;
        print_line(&format!("wrote {}, {:.1} MB", self.file.display(), bytes as f64 / 1e6))
    }

    async fn save(&self) -> anyhow::Result<u64> {
        let credentials = self.secrets.credentials()?;
        let channel = credentials.channel(Role::Replay, &self.shard);
        let client = ReplayClient::new(channel).max_decoding_message_size(SAMPLE_BYTES_MAX);
        let mut reported = 0;
        let progress = |bytes| {
            if bytes - reported >= 256 << 20 {
                reported = bytes;
                print_note(&format!("{:.0} MB received", bytes as f64 / 1e6));
            }
        };
        rpc::snapshot::save(client, &self.file, progress).await.map_err(|error| match error {
            SnapshotError::Shard(status) => {
                anyhow!("{}", credentials.describe_at(&self.shard, &status))
            }
            SnapshotError::File(error) => {
                let hint = "choose another file, or free space";
                anyhow::Error::new(error).context(format!("can't write {}; {hint}", self.file.display()))
            }
        })
    }
}
