//! The log: `tracing` to standard error.
//!
//! Standard output is left to what a command prints as its result.

use std::io::{IsTerminal, stderr};

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::{LogFormat, LogLevel, TelemetryArgs};

/// Libraries that log every HTTP/2 frame when asked for details. Theirs are not what one looks for in ours.
const TALKATIVE: [&str; 5] = ["h2", "hyper", "hyper_util", "tonic", "tower"];

/// Starts the log. Call it once, before anything is logged.
pub fn init(args: &TelemetryArgs) -> anyhow::Result<()> {
    let level = match args.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let quieter = level.min(LevelFilter::INFO);
    let levels = TALKATIVE.map(|target| (target, quieter));
    let filter = Targets::new().with_default(level).with_targets(levels);
    let lines = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let lines = match args.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(lines.with_filter(filter)).try_init().context("the log was started twice")
}
