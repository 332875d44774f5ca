//! One replay shard as a process: parse the flags, start logging, serve health, open the store, serve, stop.
//! `service.rs` has the RPCs, `shard.rs` the decisions, the crate `replay` the data structure.
#![forbid(unsafe_code)]

use clap::Parser;
use prometheus::Registry;
use replay_server::{Args, BoundServer, Config};
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
    let bound = BoundServer::bind(config, &registry).await?;
    health.starting(match (&config.restore, &config.data_dir) {
        (Some(_), _) => "restoring the snapshot",
        (None, Some(_)) => "recovering the data directory",
        (None, None) => "creating an empty shard",
    });
    telemetry::serve(&args.telemetry, "shard", registry, health.clone()).await?;
    let server = bound.open(config)?;
    info!(shard_id = server.id(), "shard started");
    server.run(&health, telemetry::shutdown_signal()).await
}
