//! The real binary with a data directory: what it keeps however it ends, and what it refuses to take up.

#[path = "../common/mod.rs"]
mod common;

mod cuts;
mod directory;
mod flush;
mod kills;
mod ledger;
mod snapshots;
