//! The HTTP server for `/metrics`, `/healthz` and an optional status page.
//!
//! Plain HTTP/1 for Prometheus, probes and browsers. It listens on loopback by default and serves no secrets.

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

use crate::bounded::BoundedListener;
use crate::process::Process;
use crate::{Health, TelemetryArgs, status_file};

/// Renders the HTML status page.
pub type PageRenderer = Arc<dyn Fn() -> String + Send + Sync>;

/// Content security policy of the page: style and script are inline, and the page may only reload itself. Injected
/// content cannot load anything else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Serves `/metrics` and `/healthz` until the runtime ends. Returns the bound address.
///
/// It adds the system's metrics of this process to the registry, and writes the status file once the listener is bound.
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
    page: PageRenderer,
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
    registry.register(Box::new(Process::new()?)).context("process metrics are already registered")?;
    let requested = args.metrics_listen;
    let listener = TcpListener::bind(requested)
        .await
        .with_context(|| format!("cannot listen on {requested}; choose another --metrics-listen"))?;
    let address = listener.local_addr()?;
    let listener =
        BoundedListener::new(listener, &registry).context("process metrics are already registered")?;
    let router = router
        .route("/metrics", get(async move || metrics(&registry)))
        .route("/healthz", get(async move || healthz(&health)));
    // The task ends with the runtime. The listener retries accept errors itself, so the handle is not needed.
    tokio::spawn(async move { axum::serve(listener, router).await });
    if let Some(path) = &args.status_file {
        status_file::write(path, name, address)?;
    }
    info!(process = name, version = env!("CARGO_PKG_VERSION"), url = %format_args!("http://{address}/metrics"), "metrics server listening");
    Ok(address)
}

/// Rendering takes milliseconds, so it runs on a blocking thread and does not delay other requests.
async fn show(page: PageRenderer) -> Response {
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
        Err(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "cannot render the page, see the log\n").into_response()
        }
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
