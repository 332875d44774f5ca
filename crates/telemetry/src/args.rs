//! The flags that all binaries share.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Set on each flag: a heading for the struct would also apply to the flags that follow in the including struct.
const HEADING: &str = "Log and metrics";

/// Flags for logging, metrics and health.
#[derive(clap::Args, Clone, Debug)]
pub struct TelemetryArgs {
    /// Address of /metrics (Prometheus) and /healthz. Port 0 selects a free port, which the log reports
    #[arg(long, help_heading = HEADING, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    pub metrics_listen: SocketAddr,

    /// Write {"name", "pid", "metrics"} to this file as JSON once /metrics is served, so that other programs find it
    #[arg(long, help_heading = HEADING, value_name = "PATH")]
    pub status_file: Option<PathBuf>,

    /// Format of log lines on stderr
    #[arg(long, help_heading = HEADING, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Minimum level of log lines
    #[arg(long, help_heading = HEADING, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
}

/// Format of log lines.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable.
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

/// Minimum level of log lines.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Failures that were not recovered.
    Error,
    /// Recoverable problems; the process continues.
    Warn,
    /// Start, stop, connections, configuration changes and other significant events.
    Info,
    /// Details for debugging.
    Debug,
    /// Everything.
    Trace,
}
