//! The listener behind `/metrics`, `/healthz` and, for who has one, a page for people.
//!
//! Plain HTTP/1 for Prometheus, probes and browsers. It is on loopback unless told otherwise, and serves no secrets.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;
use tracing::info;

use crate::process::Process;
use crate::{Health, TelemetryArgs, status_file};

/// Draws an HTML page of how things stand.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// A page has its style and script within itself, and may ask for itself again. Nothing else is loaded, whatever gets into
/// it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

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
    serve_beside(Router::new(), args, name, registry, health).await
}

/// Like [`serve`], with a page at `/`.
pub async fn serve_with_page(
    args: &TelemetryArgs,
    name: &str,
    registry: Registry,
    health: Health,
    page: Page,
) -> anyhow::Result<SocketAddr> {
    let router = Router::new().route("/", get(move || show(page.clone())));
    serve_beside(router, args, name, registry, health).await
}

async fn serve_beside(
    router: Router,
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
    let router = router
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

/// Drawing takes milliseconds, for which a thread that serves others must not be held.
async fn show(page: Page) -> Response {
    match tokio::task::spawn_blocking(move || page()).await {
        Ok(text) => {
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CACHE_CONTROL, "no-store"),
                (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::REFERRER_POLICY, "no-referrer"),
            ];
            (headers, text).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the page can't be drawn\n").into_response(),
    }
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
