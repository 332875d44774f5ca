//! One replay shard as a process: parse the flags, start logging, serve, stop. `service.rs` has the RPCs, `shard.rs`
//! the decisions, the crate `replay` the data structure.
#![forbid(unsafe_code)]

use clap::Parser;
use prometheus::Registry;
use replay_server::{Args, Config, Server};
use telemetry::Health;
use tokio::runtime;
use tracing::info;

/// The least and the most threads that serve RPCs. Encoding and decoding are memory copies, so a few threads saturate a
/// network, and the other cores are left to other processes. At least two, so that metrics and health are served while
/// one thread works on the store.
const THREADS: (usize, usize) = (2, 8);

fn main() {
    let args = Args::parse();
    if let Err(error) = run(&args) {
        let text = format!("{error:#}");
        eprintln!("error: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
        std::process::exit(1);
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let config = Config::try_from(args)?;
    telemetry::init(&args.telemetry)?;
    if args.exit_with_parent {
        telemetry::exit_with_parent();
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(THREADS.0, THREADS.1);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(serve(args, &config))
}

async fn serve(args: &Args, config: &Config) -> anyhow::Result<()> {
    let (registry, health) = (Registry::new(), Health::new());
    let server = Server::bind(config, &registry).await?;
    info!(shard_id = server.id(), "shard started");
    let name = format!("shard {}", server.id());
    telemetry::serve(&args.telemetry, &name, registry, health.clone()).await?;
    server.run(&health, telemetry::shutdown_signal()).await
}
