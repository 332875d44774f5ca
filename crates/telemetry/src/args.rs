//! The flags that all binaries share.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Said for each flag: a heading for all would go on over the flags of whoever includes these.
const HEADING: &str = "Log and metrics";

/// Log, metrics and health.
#[derive(clap::Args, Clone, Debug)]
pub struct TelemetryArgs {
    /// Where /metrics (Prometheus) and /healthz are served. Port 0 picks a free one, and the log says which
    #[arg(long, help_heading = HEADING, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    pub metrics_listen: SocketAddr,

    /// Write {"name", "pid", "metrics"} to this file as JSON once /metrics is served, so that others find it
    #[arg(long, help_heading = HEADING, value_name = "PATH")]
    pub status_file: Option<PathBuf>,

    /// How log lines look, on standard error
    #[arg(long, help_heading = HEADING, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// The least important lines that are logged
    #[arg(long, help_heading = HEADING, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
}

/// How log lines look.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

/// How important a log line is.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Something failed and was not mended.
    Error,
    /// Something is wrong, and the process goes on.
    Warn,
    /// What an operator wants to know hourly.
    Info,
    /// What one wants to know while looking for a fault.
    Debug,
    /// Everything.
    Trace,
}
