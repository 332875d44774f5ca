//! Saves a shard's contents to a file while the shard serves.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::channel::Channel;
use proto::v1;
use proto::v1::replay_client::ReplayClient;
use tonic::Status;

/// Why a snapshot failed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The shard refused or could not be reached.
    #[error("{0}")]
    Shard(#[from] Status),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// Saves the snapshot to `file` and returns its size in bytes. An existing file is replaced only after the new snapshot
/// is complete. `progress` receives the number of bytes written so far.
pub async fn save(
    mut client: ReplayClient<Channel>,
    file: &Path,
    mut progress: impl FnMut(u64),
) -> Result<u64, SnapshotError> {
    let part = file.with_added_extension("part");
    let mut pieces = client.snapshot(v1::SnapshotRequest {}).await?.into_inner();
    let mut out = BufWriter::new(File::create(&part)?);
    let mut bytes = 0;
    while let Some(v1::SnapshotReply { piece }) = pieces.message().await? {
        out.write_all(&piece)?;
        bytes += piece.len() as u64;
        progress(bytes);
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(&part, file)?;
    Ok(bytes)
}
