//! Clients of replay shards and learner, and what every server has.
#![forbid(unsafe_code)]
