//! The real binary with a data directory: what it keeps however it ends, and what it refuses to take up.

mod common;

/// Files in `tests/durable/`. The test's root lies beside `tests/common`, so both are found without a path attribute.
mod durable {
    mod cuts;
    mod directory;
    mod flush;
    mod kills;
    mod ledger;
    mod snapshots;
}
