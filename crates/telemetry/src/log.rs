//! The log: `tracing` to stderr. Stdout is reserved for the results of commands.

use std::io::{IsTerminal, stderr};

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::{LogFormat, LogLevel, TelemetryArgs};

/// Libraries that log every HTTP/2 frame at debug level. They never log below info, so that our own details stay
/// readable.
const NOISY: [&str; 5] = ["h2", "hyper", "hyper_util", "tonic", "tower"];

/// Initializes the log. Call it once, before the first log line.
pub fn init(args: &TelemetryArgs) -> anyhow::Result<()> {
    let level = match args.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let quieter = level.min(LevelFilter::INFO);
    let levels = NOISY.map(|target| (target, quieter));
    let filter = Targets::new().with_default(level).with_targets(levels);
    let lines = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let lines = match args.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(lines.with_filter(filter)).try_init().context("the log is already initialized")
}
