//! Telemetry of every process: a log, `/metrics`, `/healthz`, and shutdown signals.
//!
//! ```text
//! telemetry::init(&args.telemetry)?;                 // the log, to stderr
//! let (registry, health) = (Registry::new(), Health::new());
//! telemetry::serve(&args.telemetry, "actor-0", registry.clone(), health.clone()).await?;
//! health.ready();
//! telemetry::shutdown_signal().await;                     // SIGTERM or Ctrl-C
//! ```
//!
//! The binary creates the registry and passes it in, so that a test can read it. Each binary defines its own metrics;
//! this crate adds only the process metrics that the system provides.
#![forbid(unsafe_code)]

mod args;
mod bounded;
mod health;
mod listener;
mod log;
mod metrics;
mod process;
mod shutdown;
mod status_file;

pub use args::{LogFormat, LogLevel, TelemetryArgs};
pub use health::Health;
pub use listener::{PageRenderer, serve, serve_with_page};
pub use log::init;
pub use metrics::NewMetric;
pub use shutdown::{exit_with_parent, shutdown_signal};
