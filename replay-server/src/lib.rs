//! The gRPC shell around one replay shard.
#![forbid(unsafe_code)]
