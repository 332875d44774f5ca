//! What every process of a cluster has: a log, `/metrics`, `/healthz`, and a decent way to end.
//!
//! ```text
//! telemetry::init(&args.telemetry)?;                 // the log, to stderr
//! let (registry, health) = (Registry::new(), Health::new());
//! telemetry::serve(&args.telemetry, "actor-0", registry.clone(), health.clone()).await?;
//! health.ready();
//! telemetry::terminated().await;                     // SIGTERM or Ctrl-C
//! ```
//!
//! The registry is made by the binary and passed in, so that a test can read it. What is measured is each binary's
//! business; only what the system knows of any process is measured here.
#![forbid(unsafe_code)]

mod args;
mod ending;
mod health;
mod listener;
mod log;
mod metrics;
mod process;
mod status_file;

pub use args::{LogFormat, LogLevel, TelemetryArgs};
pub use ending::{lifeline, terminated};
pub use health::Health;
pub use listener::{Page, serve, serve_with_page};
pub use log::init;
pub use metrics::NewMetric;
