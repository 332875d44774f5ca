//! One replay shard as a process: parse, start the log, serve, drain. `service.rs` has the wire, `shard.rs` what it
//! decides, the crate `replay` the data structure.
#![forbid(unsafe_code)]

use clap::Parser;
use prometheus::Registry;
use replay_server::{Args, Config, Server};
use telemetry::Health;
use tokio::runtime;
use tracing::info;

/// Threads for the wire. Encoding and decoding are memory copies, so a few threads fill a network, and the rest of the
/// machine is for others. Two at least: one may be at the store while the other says how it goes.
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
    if args.lifeline {
        telemetry::lifeline();
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(THREADS.0, THREADS.1);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(serve(args, &config))
}

async fn serve(args: &Args, config: &Config) -> anyhow::Result<()> {
    let (registry, health) = (Registry::new(), Health::new());
    let server = Server::bind(config, &registry).await?;
    info!(id = server.id(), address = %server.address(), "shard starts");
    let name = format!("shard {}", server.id());
    telemetry::serve(&args.telemetry, &name, registry, health.clone()).await?;
    server.run(&health, telemetry::terminated()).await
}
