//! `quiver snapshot`: a shard's contents into a file, while it serves.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use proto::limits::SAMPLE_BYTES_MAX;
use proto::v1;
use proto::v1::replay_client::ReplayClient;
use rpc::address::Address;
use rpc::channel::channel;
use rpc::shard::describe;
use tonic::Status;

use crate::output::{remark, say};

/// Save a replay shard's contents while it serves
///
/// The file begins a shard anew elsewhere: quiver-replay-server --data-dir DIR --restore FILE
#[derive(Args)]
#[command(after_help = "Example:\n  quiver snapshot 127.0.0.1:7777 shard-0.snapshot")]
pub struct Snapshot {
    /// The shard's address: host:port or unix:/path
    shard: Address,
    /// Where the snapshot goes; what is there is replaced once the new one is complete
    file: PathBuf,
}

impl Snapshot {
    pub fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bytes = runtime.block_on(self.save())?;
        say(&format!("{} has {:.1} MB", self.file.display(), bytes as f64 / 1e6))
    }

    async fn save(&self) -> anyhow::Result<u64> {
        let part = self.file.with_added_extension("part");
        let cannot = || format!("can't write {}", part.display());
        let failed = |status: Status| anyhow!("{}: {}", self.shard, describe(&status));
        let mut client = ReplayClient::new(channel(&self.shard)).max_decoding_message_size(SAMPLE_BYTES_MAX);
        let mut pieces = client.snapshot(v1::SnapshotRequest {}).await.map_err(failed)?.into_inner();
        let mut file = BufWriter::new(File::create(&part).with_context(cannot)?);
        let (mut bytes, mut told) = (0, 0);
        while let Some(v1::SnapshotReply { piece }) = pieces.message().await.map_err(failed)? {
            file.write_all(&piece).with_context(cannot)?;
            bytes += piece.len() as u64;
            if bytes - told >= 256 << 20 {
                told = bytes;
                remark(&format!("{:.0} MB so far", bytes as f64 / 1e6));
            }
        }
        file.into_inner()
            .map_err(|error| error.into_error())
            .and_then(|file| file.sync_all())
            .with_context(cannot)?;
        fs::rename(&part, &self.file).with_context(|| format!("can't write {}", self.file.display()))?;
        Ok(bytes)
    }
}
