//! Compiles the .proto files. protox is a compiler in Rust, so no protoc has to be installed.

use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=quiver");
    let files = protox::compile(["quiver/v1/replay.proto", "quiver/v1/learner.proto"], ["."])?;
    // Servers answer reflection with this.
    let descriptor = PathBuf::from(std::env::var("OUT_DIR")?).join("quiver.bin");
    std::fs::write(descriptor, files.encode_to_vec())?;
    // Frames and weights are handed on without being copied out of the message.
    // A grant carries the key of the run's tickets, which must not appear in a log: `lib.rs` has its `Debug`.
    tonic_prost_build::configure().bytes(".").skip_debug([".quiver.v1.GrantRequest"]).compile_fds(files)?;
    Ok(())
}
