//! `quiver-dashboards`: writes the dashboards' files, or asks a live Prometheus whether every panel has data.
#![allow(clippy::disallowed_methods, reason = "the check polls Prometheus")]
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use dashboards::probe::{Prometheus, Silent};

/// Time between two looks at a Prometheus that does not have everything yet.
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Dashboards of Quiver: Grafana's JSON and Prometheus' console templates from one source.
#[derive(Debug, Parser)]
#[command(name = "quiver-dashboards", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write deploy/grafana/dashboards and deploy/prometheus/consoles
    Write {
        /// The repository's root
        #[arg(default_value = ".")]
        root: PathBuf,
    },
    /// Run every panel's expressions on a live Prometheus, and fail if one gives no data
    Check {
        /// Its address, such as http://127.0.0.1:9090
        url: String,
        /// How long to wait until all have data, in seconds
        #[arg(long, default_value_t = 0)]
        timeout: u64,
        /// What rates are taken over
        #[arg(long, default_value = "1m")]
        window: String,
    },
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Write { root } => dashboards::files::write(&root)
            .with_context(|| format!("can't write below {}; name the repository's root", root.display())),
        Command::Check { url, timeout, window } => check(&url, Duration::from_secs(timeout), &window),
    }
}

fn check(url: &str, timeout: Duration, window: &str) -> Result<()> {
    let (prometheus, pages) = (Prometheus::new(url)?, dashboards::all());
    let queries: usize = pages.iter().flat_map(|page| page.panels()).map(|panel| panel.queries.len()).sum();
    let started = Instant::now();
    loop {
        let silent = prometheus.silent(&pages, window)?;
        if silent.is_empty() {
            println!("all {queries} queries of {} dashboards have data", pages.len());
            return Ok(());
        }
        if started.elapsed() >= timeout {
            for Silent { dashboard, panel, expression, reason } in &silent {
                eprintln!("{dashboard}, {panel:?}: {reason}: {expression}");
            }
            bail!("{} of {queries} queries have no data at {url}", silent.len());
        }
        sleep(POLL_EVERY);
    }
}
