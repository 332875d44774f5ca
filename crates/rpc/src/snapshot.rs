//! A shard's contents into a file, while it serves.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::channel::Channel;
use proto::v1;
use proto::v1::replay_client::ReplayClient;
use tonic::Status;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The shard does not give one.
    #[error("{0}")]
    Shard(#[from] Status),
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// Saves into `file`, whose former contents are replaced once the new ones are complete. `progress` hears how many bytes
/// there are so far; in the end that is what is returned.
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
