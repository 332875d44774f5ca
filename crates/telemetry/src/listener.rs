//! The listener behind `/metrics` and `/healthz`.
//!
//! Plain HTTP/1 for Prometheus, probes and people. It is on loopback unless told otherwise, and serves no secrets.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;
use tracing::info;

use crate::process::Process;
use crate::{Health, TelemetryArgs, status_file};

/// Serves `/metrics` and `/healthz` for as long as the runtime lives, and answers with the address.
///
/// The system's own metrics of this process are added to the registry. The status file is written when the listener is
/// up.
pub async fn serve(
    args: &TelemetryArgs,
    name: &str,
    registry: Registry,
    health: Health,
) -> anyhow::Result<SocketAddr> {
    registry.register(Box::new(Process::new()?)).context("process metrics are registered already")?;
    let wished = args.metrics_listen;
    let listener = TcpListener::bind(wished)
        .await
        .with_context(|| format!("cannot listen on {wished}; choose another --metrics-listen"))?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/metrics", get(async move || metrics(&registry)))
        .route("/healthz", get(async move || healthz(&health)));
    // It ends with the runtime. Accept errors are retried inside, so there is nothing to wait for.
    tokio::spawn(async move { axum::serve(listener, router).await });
    if let Some(path) = &args.status_file {
        status_file::write(path, name, address)?;
    }
    info!(name, metrics = %format_args!("http://{address}/metrics"), "metrics are served");
    Ok(address)
}

fn metrics(registry: &Registry) -> impl IntoResponse + use<> {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, TEXT_FORMAT)], text),
        Err(error) => {
            let plain = "text/plain; charset=utf-8";
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, plain)], error.to_string())
        }
    }
}

fn healthz(health: &Health) -> impl IntoResponse + use<> {
    let (status, text) = health.answer();
    (StatusCode::from_u16(status).expect("a known status"), format!("{text}\n"))
}
