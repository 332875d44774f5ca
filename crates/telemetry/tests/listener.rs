//! The metrics listener, as Prometheus, a probe and the launcher see it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;
use prometheus::{IntCounter, Registry};
use telemetry::{Health, TelemetryArgs};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

fn args(flags: &[&str]) -> TelemetryArgs {
    Args::parse_from([&["program"], flags].concat()).telemetry
}

async fn get(address: SocketAddr, path: &'static str) -> String {
    let request = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(request).await.unwrap()
}

#[tokio::test]
async fn metrics_health_and_the_status_file_are_served() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("status-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("status.json");
    let args = args(&["--status-file", file.to_str().unwrap()]);
    let (registry, health) = (Registry::new(), Health::new());
    let counter = IntCounter::new("quiver_actor_frames_total", "Frames played").unwrap();
    registry.register(Box::new(counter.clone())).unwrap();
    counter.inc_by(5);
    let address = telemetry::serve(&args, "actor-0", registry.clone(), health.clone()).await.unwrap();
    assert!(address.ip().is_loopback() && address.port() != 0);

    let status = std::fs::read_to_string(&file).unwrap();
    let pid = std::process::id();
    assert_eq!(status, format!("{{\"name\":\"actor-0\",\"pid\":{pid},\"metrics\":\"http://{address}\"}}\n"));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    std::fs::remove_dir_all(directory).unwrap();

    let metrics = get(address, "/metrics").await;
    assert!(
        metrics.starts_with("HTTP/1.1 200 OK") && metrics.contains("text/plain; version=0.0.4"),
        "{metrics}"
    );
    assert!(
        metrics.contains("\nquiver_actor_frames_total 5\n")
            && metrics.contains("\nprocess_cpu_seconds_total ")
    );
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 503"));
    health.waiting("the learner");
    let answer = get(address, "/healthz").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("waiting for the learner\n"),
        "{answer}"
    );
    assert!(get(address, "/secrets").await.starts_with("HTTP/1.1 404"));
    assert!(get(address, "/").await.starts_with("HTTP/1.1 404"), "without a page / is not found");

    let taken = format!("{address}");
    let again =
        telemetry::serve(&self::args(&["--metrics-listen", &taken]), "b", Registry::new(), health).await;
    assert!(again.unwrap_err().to_string().contains("choose another --metrics-listen"));
}

#[tokio::test]
async fn a_page_is_rendered_for_every_request_and_the_rest_is_unchanged() {
    let drawn = AtomicU32::new(0);
    let page = Arc::new(move || format!("<p>{}</p>", drawn.fetch_add(1, Ordering::Relaxed)));
    let health = Health::new();
    let address =
        telemetry::serve_with_page(&args(&[]), "learner", Registry::new(), health, page).await.unwrap();
    for expected in ["<p>0</p>", "<p>1</p>"] {
        let answer = get(address, "/").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with(expected), "{answer}");
        for header in
            ["content-type: text/html; charset=utf-8", "cache-control: no-store", "default-src 'none'"]
        {
            assert!(answer.contains(header), "{answer}");
        }
    }
    assert!(get(address, "/metrics").await.contains("\nprocess_cpu_seconds_total "));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 503"));
    assert!(get(address, "/index.html").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn a_page_that_fails_to_render_is_an_error_and_the_server_continues() {
    let page = Arc::new(|| -> String { panic!("nothing to draw with") });
    let (registry, health) = (Registry::new(), Health::new());
    let address = telemetry::serve_with_page(&args(&[]), "learner", registry, health, page).await.unwrap();
    assert!(get(address, "/").await.starts_with("HTTP/1.1 500"));
    assert!(get(address, "/metrics").await.starts_with("HTTP/1.1 200"));
}

/// Sends a part of a request and keeps the connection.
fn half(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_while_hundreds_of_half_requests_are_open() {
    let address = telemetry::serve(&args(&[]), "shard", Registry::new(), Health::new()).await.unwrap();
    let mut held: Vec<TcpStream> = (0..300).map(|_| half(address)).collect();
    let metrics = get(address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    // The oldest of them were closed, so that the number of open ones is bounded.
    let closed = tokio::task::spawn_blocking(move || {
        held.iter_mut().take(200).all(|stream| !matches!(stream.read(&mut [0; 99]), Ok(1..)))
    });
    assert!(closed.await.unwrap());
    let metrics = get(address, "/metrics").await;
    let closed = metrics
        .lines()
        .find_map(|line| line.strip_prefix("quiver_http_connections_closed_total{reason=\"limit\"} "));
    assert!(closed.unwrap().parse::<f64>().unwrap() >= 236.0, "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_end_is_cut_off() {
    let address = telemetry::serve(&args(&[]), "shard", Registry::new(), Health::new()).await.unwrap();
    let endless = move || {
        let mut stream = half(address);
        // An error is what the test waits for: the server hung up.
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
        let mut body = TcpStream::connect(address).unwrap();
        body.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n").unwrap();
        while body.write_all(&[b'x'; 4096]).is_ok() {}
    };
    tokio::task::spawn_blocking(endless).await.unwrap();
    assert!(get(address, "/metrics").await.starts_with("HTTP/1.1 200"));
}

/// With simulated time: nothing is said for as long as it takes, and the server hangs up.
#[tokio::test(start_paused = true)]
async fn a_half_request_and_an_idle_connection_are_closed_in_time() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = telemetry::serve(&args(&[]), "shard", Registry::new(), Health::new()).await.unwrap();
    for text in ["", "GET /metrics HTT", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(text.ends_with("\n"), answer.starts_with(b"HTTP/1.1 503"), "{text:?}");
    }
}
