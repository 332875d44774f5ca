//! Every decoder of bytes that we do not control: messages from the wire, files from a disk.
//!
//! A target is a function of bytes that decodes them and panics if what came of it breaks a promise: what was accepted
//! can be encoded again and is the same, a store that was recovered holds together, an optimised decoder agrees with a
//! naive one. Each target also makes its own seeds, with the real encoders. `run.sh` lets libFuzzer search with
//! coverage; `cargo test` runs the seeds and a fixed number of mutations of them, so that the targets do not rot.
//!
//! Checksums would stop a fuzzer at the door. Where one guards a decoder, the target can put the right one over the
//! damaged bytes (`seal.rs`): what lies behind it has to hold as well.
#![forbid(unsafe_code)]

mod input;
#[cfg(test)]
mod mutate;
mod seal;
mod small;

/// A decoder under attack.
pub struct Target {
    /// The name of its module.
    pub name: &'static str,
    /// Decodes, and panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Mutations in an ordinary test: as many as take a fraction of a second.
    pub mutations: usize,
}

macro_rules! targets {
    ($($name:ident: $mutations:literal,)*) => {
        $(mod $name;)*

        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: $name::run,
            seeds: $name::seeds,
            mutations: $mutations,
        },)*];

        #[cfg(test)]
        mod survives_mutations_of_its_seeds {
            $(#[test]
            fn $name() {
                let target = super::TARGETS.iter().find(|target| target.name == stringify!($name)).unwrap();
                super::mutate::short(target);
            })*
        }
    };
}

targets! {
    codec_frame: 20_000,
    codec_window: 20_000,
    codec_encode: 5_000,
    wire_insert: 2_000,
    wire_batch: 10_000,
    wire_messages: 20_000,
    wire_status: 20_000,
    service: 100,
    learner_service: 200,
    snapshot: 200,
    shard_json: 5_000,
    shard_directory: 200,
    run_settings: 500,
    run_files: 500,
    environment: 2_000,
}
