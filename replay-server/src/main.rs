//! One replay shard as a process.
#![forbid(unsafe_code)]

fn main() {}
